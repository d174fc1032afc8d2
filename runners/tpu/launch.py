"""Launches machines: sends one request, and adopts a machine that exists already.

A TPU has no expiry: neither API accepts a run duration, and a guest that powers itself off is still
billed. The startup script's timer therefore stops the work, not the bill; the release of the cell
stops the bill, or else the janitor does. Only the waiting time of a queued resource can be limited
here.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

from google.cloud import tpu_v2

from orchestrator.domain.machine import (
    ConfigError,
    LaunchRequest,
    Login,
    Machine,
    MachineState,
    ProviderError,
    ProviderUnavailableError,
)
from runners.first_boot import startup_script
from runners.google.account import entry
from runners.google.firewall import Firewall, required_ingress
from runners.google.names import label, labels
from runners.tpu.client import WRITE_TIMEOUT_S, TpuApi
from runners.tpu.errors import ApiRefusal, refused
from runners.tpu.names import (
    NODES,
    QUEUED,
    Handle,
    location,
    network_tag,
    request_id,
    resource_id,
)
from runners.tpu.platform_config import TpuPlatformConfig, parse_platform
from runners.tpu.states import ListedTpu, machine_of
from runners.tpu.status import TpuStatusReader, error_of

# The guest gets a service account whether one is named or not, and with no scope given that one
# may do everything. These two let it write logs and metrics.
_SCOPES = (
    "https://www.googleapis.com/auth/logging.write",
    "https://www.googleapis.com/auth/monitoring.write",
)


class TpuLauncher:
    """Makes machines."""

    def __init__(
        self,
        tpu_api: TpuApi,
        status: TpuStatusReader,
        firewall: Firewall | None,
        *,
        settings: Mapping[str, str],
        templates: Path,
    ) -> None:
        self._tpu_api = tpu_api
        self._status = status
        self._firewall = firewall
        self._project = settings.get("project") or "seatrial"
        self._settings = settings
        self._templates = templates

    def launch(self, request: LaunchRequest) -> Machine:
        """Launch a machine; its id, which the token determines, prevents a second one in the zone.

        Raises:
            ProviderError: As `runners.tpu.errors` classifies the answer.
        """
        config = parse_platform(request.platform)
        zone, kind, market = _place(request)
        if kind != config.accelerator.name:
            raise ConfigError(f"{request.place.name} is no place of a {config.accelerator.name}")
        ingress = required_ingress(self._settings) if config.public else ""
        handle = Handle(
            zone, QUEUED if config.queued else NODES, resource_id(self._project, request.token)
        )
        node = self._node(request, config)
        self._guard(config, ingress)
        try:
            if config.queued:
                return self._queue(request, config, handle, node, spot=market == "spot")
            return self._create(handle, node, spot=market == "spot")
        except ProviderError as error:
            if error.code != "ALREADY_EXISTS":
                raise
        return self._adopt(request, handle)

    def _guard(self, config: TpuPlatformConfig, ingress: str) -> None:
        """Restrict access to the ingress network; a user's network has the user's rules."""
        if config.public and not config.has_own_network and self._firewall is not None:
            self._firewall.ensure(ingress)

    def _queue(
        self,
        request: LaunchRequest,
        config: TpuPlatformConfig,
        handle: Handle,
        node: tpu_v2.Node,
        *,
        spot: bool,
    ) -> Machine:
        parent = location(self._tpu_api.project, handle.zone)
        queued = queued_resource(parent, handle, node, spot=spot, wait_s=config.wait_s)
        body = tpu_v2.CreateQueuedResourceRequest(
            parent=parent,
            queued_resource_id=handle.id,
            queued_resource=queued,
            request_id=request_id(self._project, request.token, handle.zone),
        )
        what = f"create queued resource {handle.machine_id} ({node.accelerator_type})"
        operation = self._tpu_api.once(
            what, lambda client: client.create_queued_resource(body, timeout=WRITE_TIMEOUT_S)
        )
        _refuse(error_of(operation.operation), what)
        return self._ordered(ListedTpu(handle, queued, None, simulated=self._tpu_api.simulated))

    def _create(self, handle: Handle, node: tpu_v2.Node, *, spot: bool) -> Machine:
        node.scheduling_config = tpu_v2.SchedulingConfig(spot=spot)
        body = tpu_v2.CreateNodeRequest(
            parent=location(self._tpu_api.project, handle.zone), node_id=handle.id, node=node
        )
        what = f"create node {handle.machine_id} ({node.accelerator_type})"
        operation = self._tpu_api.once(
            what, lambda client: client.create_node(body, timeout=WRITE_TIMEOUT_S)
        )
        _refuse(error_of(operation.operation), what)
        return self._ordered(ListedTpu(handle, None, node, simulated=self._tpu_api.simulated))

    def _adopt(self, request: LaunchRequest, handle: Handle) -> Machine:
        """Return the existing machine of this id. Raises ConfigError if it has another owner.

        The answer to its create request was lost, or it was created by others.
        """
        queued = self._status.queued(handle) if handle.collection == QUEUED else None
        node = None if queued is not None else self._status.node(handle.beside(NODES))
        if queued is None and node is None:
            raise ProviderUnavailableError(
                f"{handle.machine_id} was made before, and is not to be seen yet",
                code="ALREADY_EXISTS",
            )
        found = machine_of(ListedTpu(handle, queued, node, simulated=self._tpu_api.simulated))
        ours = (label(request.token), label(self._project))
        if (found.token, found.tags.get("seatrial-project")) != ours:
            raise ConfigError(
                f"{handle.machine_id} exists and is not ours (its labels: "
                f"{dict(found.tags) or 'none'}); its owner must delete it, as the name is taken",
                code="ALREADY_EXISTS",
            )
        return self._ordered(ListedTpu(handle, queued, node, simulated=self._tpu_api.simulated))

    def _ordered(self, seen: ListedTpu) -> Machine:
        """Return the machine's state directly after the call; `inspect` returns later states."""
        machine = machine_of(seen)
        return Machine(
            id=machine.id,
            token=machine.token,
            state=MachineState.REQUESTED,
            detail="asked for",
            kind=machine.kind,
            tags=machine.tags,
            facts=machine.facts,
            simulated=machine.simulated,
        )

    def _node(self, request: LaunchRequest, config: TpuPlatformConfig) -> tpu_v2.Node:
        tags = {
            **request.tags,
            "seatrial-project": self._project,
            "seatrial-token": request.token,
        }
        return tpu_v2.Node(
            accelerator_type=config.accelerator.name,
            runtime_version=config.accelerator.runtime_version,
            network_config=tpu_v2.NetworkConfig(
                network=config.network,
                subnetwork=config.subnetwork,
                enable_external_ips=config.public,
            ),
            service_account=tpu_v2.ServiceAccount(scope=_SCOPES),
            metadata=self._metadata(request, config),
            labels={**config.labels, **labels(tags)},
            tags=[network_tag(self._project)],
        )

    def _metadata(self, request: LaunchRequest, config: TpuPlatformConfig) -> dict[str, str]:
        metadata = entry(_login(request), config.user)
        if request.expires_at is not None:
            metadata["startup-script"] = startup_script(
                expires_at=request.expires_at, templates=self._templates
            )
        return metadata


def queued_resource(
    parent: str, handle: Handle, node: tpu_v2.Node, *, spot: bool, wait_s: int
) -> tpu_v2.QueuedResource:
    """Return a queued resource with one node, one market and a limited waiting time."""
    spec = tpu_v2.QueuedResource.Tpu.NodeSpec(parent=parent, node_id=handle.id, node=node)
    queued = tpu_v2.QueuedResource(
        name=f"{parent}/{handle.collection}/{handle.id}",
        tpu=tpu_v2.QueuedResource.Tpu(node_spec=[spec]),
        queueing_policy=tpu_v2.QueuedResource.QueueingPolicy(
            valid_until_duration=timedelta(seconds=wait_s)
        ),
    )
    if spot:
        queued.spot = tpu_v2.QueuedResource.Spot()
    return queued


def _refuse(answer: ApiRefusal | None, what: str) -> None:
    """Raise the error of an operation that failed at once, if it leads to another place.

    Any other failure is left to the next `inspect`: a retry would only return it again.
    """
    error = refused(answer, what) if answer is not None else None
    if error is not None and not isinstance(error, ProviderUnavailableError):
        raise error


def _login(request: LaunchRequest) -> Login:
    if request.login is None:
        raise ConfigError("a TPU needs the keys of its lease, and the request has none")
    return request.login


def _place(request: LaunchRequest) -> tuple[str, str, str]:
    parts = request.place.name.split("/")
    if len(parts) != 3 or not all(parts):
        raise ConfigError(
            f"{request.place.name!r} is no place of tpu: zone/accelerator type/market"
        )
    return parts[0], parts[1], parts[2]
