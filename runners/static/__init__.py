"""The provider ``static``: a pool of running hosts, reached over SSH."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from decimal import Decimal

from orchestrator.domain.copied_fields import filled
from orchestrator.domain.document_problems import Problem
from orchestrator.domain.machine import (
    CapacityError,
    ConfigError,
    LaunchRequest,
    Machine,
    MachineState,
    Place,
    PlatformError,
    ProviderTraits,
    SshEndpoint,
    platform_problems,
)
from orchestrator.domain.matrix import Host, Platform
from orchestrator.domain.matrix_checks import checked_host
from runners.provider_context import ProviderContext


def _check(platform: Platform) -> Iterable[Problem]:
    return platform_problems(platform, [checked_hosts])


TRAITS = ProviderTraits(
    name="static",
    keys=frozenset({"bastion", "hosts"}),
    required=frozenset({"hosts"}),
    rented=False,
    check=_check,
)


class StaticProvider:
    """Provides the hosts that a platform lists, each to one cell at a time."""

    def __init__(self, context: ProviderContext) -> None:
        self._book = context.book

    def places(self, platform: Platform) -> tuple[Place, ...]:
        """Return one exclusive place per host, in the order of the list. Raises ConfigError."""
        return tuple(
            Place(
                name=host.place,
                exclusive=True,
                price_usd_per_hour=Decimal(0),
                options={key: str(value) for key, value in asdict(host).items()},
            )
            for host in checked_hosts(platform)
        )

    def endpoints(self, platform: Platform) -> tuple[SshEndpoint, ...]:
        """Return how to connect to each host, in the order of the list. Raises ConfigError."""
        hosts = checked_hosts(platform)
        return tuple(endpoint_of(host, platform.bastion) for host in hosts)

    def launch(self, request: LaunchRequest) -> Machine:
        """Reserve the host that the place names; the same token returns the same machine.

        Raises:
            ConfigError: The platform lists no such host.
            CapacityError: The host is still reserved by another token.
        """
        for held in self._book.pages(TRAITS.name):
            if held.token == request.token:
                return held
        host = _find(request)
        machine = Machine(
            id=f"{host.place}~{request.token}",
            token=request.token,
            state=MachineState.READY,
            endpoint=endpoint_of(host, request.platform.bastion),
        )
        self._refuse_if_held(host, machine)
        self._book.write(TRAITS.name, machine)
        return machine

    def inspect(self, machine_id: str) -> Machine:
        """Return the reserved machine; TERMINATED without a reservation."""
        known = self._book.read(TRAITS.name, machine_id)
        # The token is set although the machine is unknown: the records are current, so it will
        # not appear later, and no caller has to wait for it.
        token = machine_id.rpartition("~")[2]
        return known or Machine(id=machine_id, token=token, state=MachineState.TERMINATED)

    def terminate(self, machine_id: str) -> None:
        """Release the host; the host itself keeps running."""
        self._book.erase(TRAITS.name, machine_id)

    def inventory(self) -> Iterable[Machine]:
        """Return every host that is in use."""
        return self._book.pages(TRAITS.name)

    def _refuse_if_held(self, host: Host, wanted: Machine) -> None:
        # The lease already keeps others away from an exclusive place; this notices a host that
        # two platforms, or two matrices, list.
        for held in self._book.pages(TRAITS.name):
            if held.id.rpartition("~")[0] == host.place and held.id != wanted.id:
                raise CapacityError(
                    f"host {host.place} is in use as machine {held.id}; it is free again when "
                    "that is released (see `seatrial machines`)"
                )


def _find(request: LaunchRequest) -> Host:
    hosts = checked_hosts(request.platform)
    for host in hosts:
        if host.place == request.place.name:
            return host
    raise ConfigError(
        f"host {request.place.name} is not in the platform's hosts: "
        f"{', '.join(host.place for host in hosts)}"
    )


def endpoint_of(host: Host, bastion: Host | None) -> SshEndpoint:
    """Return how to connect to the host, through the bastion if there is one."""
    return filled(SshEndpoint, host, unset=("lease", "kind", "proxy_command"), bastion=bastion)


def checked_hosts(platform: Platform) -> tuple[Host, ...]:
    """Return the platform's hosts in their order. Raises PlatformError."""
    if not platform.hosts:
        raise PlatformError(("hosts",), "list at least one host with its address, user and keys")
    hosts: list[Host] = []
    for index, listed in enumerate(platform.hosts):
        host = checked_host(listed, path=("hosts", index))
        if any(host.place == other.place for other in hosts):
            raise PlatformError(("hosts", index), f"{host.place} is listed twice")
        hosts.append(host)
    return tuple(hosts)
