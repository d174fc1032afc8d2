"""The provider ``gcp``: its four verbs, and its places, prices, quotas and console output."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from google.cloud import compute_v1

from orchestrator.domain.machine import (
    ConfigError,
    LaunchRequest,
    Machine,
    MachineState,
    Place,
    ProviderUnavailableError,
    whole_inventory,
)
from orchestrator.domain.matrix import Platform
from orchestrator.domain.prices import Price
from orchestrator.domain.quota import BootImage, Demand, Quota, QuotaLevel
from runners.gcp.clients import ComputeClients
from runners.gcp.images import GcpImages, ResolvedImage
from runners.gcp.instance import (
    ResourceId,
    build_instance,
    instance_name,
    network_tag,
    parse_id,
    request_id,
)
from runners.gcp.inventory import demands, everything
from runners.gcp.places import GcpPlaceFinder, KnownPrices, read_catalogue
from runners.gcp.platform_config import GcpPlatformConfig, parse_platform
from runners.gcp.status import GcpStatusReader, as_machine
from runners.google.errors import error_rule
from runners.google.firewall import KIND, TUNNEL_RANGE, Firewall, required_ingress
from runners.google.names import label
from runners.google.quotas import ComputeQuotaReader
from runners.google.responses import (
    READ_TIMEOUT_S,
    WRITE_TIMEOUT_S,
    AlreadyThereError,
    NotThereError,
    create,
    delete,
    is_done,
    is_there,
    of_missing,
    of_operation,
    read,
)
from runners.provider_context import ProviderContext, after_checks
from runners.shell.proxy_command import require_programs

_CONSOLE_BYTES = 64 * 1024


class GcpProvider:
    """Rents virtual machines with GPUs from Compute Engine."""

    def __init__(self, context: ProviderContext) -> None:
        self._context = context
        self._clients = ComputeClients(context.settings)
        self._firewall = Firewall(
            self._clients, provider="gcp", project=self._project, tag=network_tag(self._project)
        )
        self._images = GcpImages(self._clients, context.now)
        self._status = GcpStatusReader(self._clients, context.now)
        self._prices = KnownPrices(context.prices)
        self._offers = GcpPlaceFinder(self._clients, self._prices, context.now)
        self._quotas = ComputeQuotaReader(self._clients)

    # the four verbs

    def launch(self, request: LaunchRequest) -> Machine:
        """Launch a machine; the same token in the same zone returns the same machine.

        Raises:
            ProviderError: Its type determines the next step. Refusals in the operation that this
                starts are reported by `inspect`.
        """
        config = parse_platform(request.platform)
        image = self._images.resolve(config.image)
        wanted = build_instance(
            request,
            config,
            image,
            project=self._project,
            now=self._context.now(),
            templates=self._context.templates,
        )
        ingress = self._ingress(config)
        if ingress and not config.has_own_network:
            self._firewall.ensure(ingress)
        try:
            operation = self._insert(request, wanted)
        except AlreadyThereError:
            return self._adopted(request)
        except ConfigError:
            # The first try may have made it: its image's family may have had another image then.
            if self._status.instance(_id_of(request)) is None:
                raise
            return self._adopted(request)
        except NotThereError as error:
            raise of_missing(f"launching {request.place.name}", error) from error
        return self._ordered(request, operation, image)

    def inspect(self, machine_id: str) -> Machine:
        """Return a machine, disk, address or firewall rule; TERMINATED if it is missing."""
        which = parse_id(machine_id)
        if which is None:
            return Machine(id=machine_id, token="", state=MachineState.TERMINATED)
        if which.kind == KIND:
            return self._firewall.inspect(machine_id)
        if which.collection == "instances":
            return self._status.machine(which)
        is_left = is_there(f"looking at {which}", self._getter(which))
        return Machine(
            id=machine_id,
            token="",
            state=MachineState.READY if is_left else MachineState.TERMINATED,
            kind=which.kind,
            simulated=self._clients.is_simulated,
        )

    def terminate(self, machine_id: str) -> None:
        """Start to delete it with its disk; idempotent."""
        which = parse_id(machine_id)
        if which is None:
            return
        if which.kind == KIND:
            self._firewall.terminate(machine_id)
            return
        # Without a request id: it would answer a repetition with the first try's failure.
        delete(f"deleting {which}", self._deleter(which))

    def inventory(self) -> Iterable[Machine]:
        """Return the resources with the project's label, of every kind, in every zone."""
        labelled, gaps = everything(self._clients, project=self._project)
        return whole_inventory((*labelled, *self._firewall.inventory()), gaps)

    # extras

    def is_configured(self) -> bool:
        """Return whether a Google Cloud project is set."""
        return bool(self._context.settings.get("gcp_project"))

    def image(self, platform: Platform, place: Place) -> BootImage:
        """Return the image that a machine would boot now.

        Its id is empty if the driver is installed at boot, since the id then does not determine
        the driver. Raises ProviderError.
        """
        found = self._images.resolve(parse_platform(platform).image)
        certain = "" if found.needs_driver else found.id
        return BootImage(certain, simulated=self._clients.is_simulated, name=found.name)

    def places(self, platform: Platform) -> tuple[Place, ...]:
        """Return the places, ordered by market, location and type. Raises ProviderError."""
        # a plan reports them already, not only a launch
        return after_checks(
            lambda: self._offered(platform), lambda: self._ingress(parse_platform(platform))
        )

    def _offered(self, platform: Platform) -> tuple[Place, ...]:
        self._clients.require_account()
        return self._offers.places(platform)

    def listed_places(self, platform: Platform) -> tuple[Place, ...]:
        """Return places at known prices; zones of unknown types are asked. Raises ProviderError."""
        return self._offers.places(platform)

    def _ingress(self, config: GcpPlatformConfig) -> str:
        """Return the network that may connect to the machines; empty if none is required.

        Raises:
            ConfigError: It is not set, or the tunnel's program is not installed.
        """
        if config.has_tunnel:
            require_programs("gcloud")
            return TUNNEL_RANGE
        return required_ingress(self._context.settings) if config.is_public else ""

    def known_prices(self) -> tuple[Price, ...]:
        """Return the shipped prices, updated with refreshed ones."""
        return self._prices.all()

    def read_prices(self) -> tuple[Price, ...]:
        """Return the catalogue's prices; empty for an emulation without a catalogue."""
        if not self._clients.has_catalogue:
            return ()
        return read_catalogue(self._clients, self._context.now())

    def demands(self, platform: Platform, place: Place) -> tuple[Demand, ...]:
        """Return the demands for GPUs, CPUs, disk and addresses, in the region and globally."""
        return demands(parse_platform(platform), place, project=self._clients.project)

    def level(self, quota: Quota) -> QuotaLevel:
        """Return limit and usage; unknown, with the reason, if the cloud does not report them."""
        return self._quotas.level(quota)

    def console(self, machine_id: str) -> str:
        """Return the end of its serial port output."""
        which = parse_id(machine_id)
        if which is None or which.collection != "instances":
            return ""
        request = compute_v1.GetSerialPortOutputInstanceRequest(
            project=self._clients.project, zone=which.scope, instance=which.name
        )
        try:
            output = read(
                f"reading the console of {which}",
                lambda: self._clients.instances.get_serial_port_output(
                    request, retry=None, timeout=READ_TIMEOUT_S
                ),
            )
        except NotThereError:
            return ""
        return output.contents[-_CONSOLE_BYTES:]

    def close(self) -> None:
        """Drop the connections; the next call makes new ones."""
        self._clients.close()

    # inside

    @property
    def _project(self) -> str:
        return self._context.settings.get("project", "seatrial")

    def _insert(self, request: LaunchRequest, wanted: compute_v1.Instance) -> compute_v1.Operation:
        call = compute_v1.InsertInstanceRequest(
            project=self._clients.project,
            zone=request.place.zone,
            instance_resource=wanted,
            request_id=request_id(request.token, request.place.zone),
        )
        # The plain operation is used: the future that `insert` returns would wait, and would call
        # Google's own host regardless of the settings.
        return create(
            f"launching {request.place.name}",
            lambda: self._clients.instances.insert_unary(call, retry=None, timeout=WRITE_TIMEOUT_S),
        )

    def _ordered(
        self, request: LaunchRequest, operation: compute_v1.Operation, image: ResolvedImage
    ) -> Machine:
        place = request.place
        if is_done(operation):
            refused = of_operation(f"launching {place.name}", operation)
            # A retry would only return this same operation, so `inspect` reports its error.
            if refused is not None and not isinstance(refused, ProviderUnavailableError):
                raise refused
        return Machine(
            id=str(_id_of(request)),
            token=request.token,
            state=MachineState.REQUESTED,
            detail=f"operation {operation.name}",
            tags=dict(request.tags),
            facts={
                **({"instance_id": str(operation.target_id)} if operation.target_id else {}),
                "instance_type": place.instance_type,
                "zone": place.zone,
                "region": place.region,
                "market": place.market,
                **image.facts,
            },
            simulated=self._clients.is_simulated,
        )

    def _adopted(self, request: LaunchRequest) -> Machine:
        """Return the existing machine of this name; raise ConfigError for another lease's."""
        which = _id_of(request)
        found = self._status.instance(which)
        if found is None:
            raise ProviderUnavailableError(
                f"launching {request.place.name}: {which} is said to exist and is not shown yet; "
                "repeat it a little later",
                code="alreadyExists",
            )
        if found.labels.get("seatrial-token") != label(request.token):
            told = error_rule("alreadyExists")
            raise ConfigError(
                f"launching {request.place.name}: {which} exists and is not of lease "
                f"{request.token}; {told.advice}",
                code="alreadyExists",
                extent=told.extent,
            )
        machine = as_machine(found, which.scope, simulated=self._clients.is_simulated)
        return replace(machine, token=request.token)

    def _getter(self, which: ResourceId) -> Callable[[], object]:
        clients, project = self._clients, self._clients.project
        if which.collection == "addresses":
            return lambda: self._address(which)
        return lambda: clients.disks.get(
            project=project,
            zone=which.scope,
            disk=which.name,
            retry=None,
            timeout=READ_TIMEOUT_S,
        )

    def _address(self, which: ResourceId) -> compute_v1.Address:
        request = compute_v1.ListAddressesRequest(
            project=self._clients.project, region=which.scope, filter=f'name = "{which.name}"'
        )
        found = self._clients.addresses.list(request, retry=None, timeout=READ_TIMEOUT_S)
        for each in found:
            return each
        raise NotThereError(f"there is no {which}")

    def _deleter(self, which: ResourceId) -> Callable[[], object]:
        clients, project = self._clients, self._clients.project
        match which.collection:
            case "instances":
                return lambda: clients.instances.delete_unary(
                    project=project,
                    zone=which.scope,
                    instance=which.name,
                    retry=None,
                    timeout=WRITE_TIMEOUT_S,
                )
            case "disks":
                return lambda: clients.disks.delete_unary(
                    project=project,
                    zone=which.scope,
                    disk=which.name,
                    retry=None,
                    timeout=WRITE_TIMEOUT_S,
                )
        return lambda: clients.addresses.delete_unary(
            project=project,
            region=which.scope,
            address=which.name,
            retry=None,
            timeout=WRITE_TIMEOUT_S,
        )


def _id_of(request: LaunchRequest) -> ResourceId:
    return ResourceId(request.place.zone, "instances", instance_name(request.token))
