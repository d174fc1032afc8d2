"""A platform's hosts: their checks and connections."""

from __future__ import annotations

from orchestrator.domain.extend_record import filled
from orchestrator.domain.machine import ConfigError, SshEndpoint
from orchestrator.domain.matrix import Host, Platform
from orchestrator.domain.matrix_checks import checked_host


def endpoint_of(host: Host, bastion: Host | None) -> SshEndpoint:
    """Return how to connect to the host, through the bastion if there is one."""
    return filled(SshEndpoint, host, unset=("lease", "kind", "proxy_command"), bastion=bastion)


def checked_hosts(platform: Platform) -> tuple[Host, ...]:
    """Return the platform's hosts in their order. Raises ConfigError, naming the field."""
    if not platform.hosts:
        raise ConfigError("hosts: list at least one host with its address, user and keys")
    hosts: list[Host] = []
    for index, listed in enumerate(platform.hosts):
        host = checked_host(listed, at=f"hosts[{index}]")
        if any(host.place == other.place for other in hosts):
            raise ConfigError(f"hosts[{index}]: {host.place} is listed twice")
        hosts.append(host)
    return tuple(hosts)
