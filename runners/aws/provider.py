"""The verbs of the provider ``aws``."""

from __future__ import annotations

from collections.abc import Iterable

from orchestrator.domain.machine import LaunchRequest, Machine, Place, ProviderError
from orchestrator.domain.matrix import Platform
from orchestrator.domain.prices import Price
from orchestrator.domain.quota import BootImage, Demand, Quota, QuotaLevel
from runners.aws import machines, platform_config
from runners.aws.catalogue import InstanceCatalogue
from runners.aws.images import AwsImages
from runners.aws.inventory import Ec2PlaceFinder, Inventory, listed_places
from runners.aws.launch import Ec2Launcher
from runners.aws.network import Network
from runners.aws.prices import price_list, read_on_demand, read_spot
from runners.aws.quotas import Ec2QuotaReader
from runners.aws.resources import INSTANCE, Resources
from runners.aws.sdk import AwsAccount
from runners.provider_context import ProviderContext

CONSOLE_LIMIT = 64 * 1024
"""Maximum characters of console output; EC2 keeps about as much."""


class AwsProvider:
    """Rents instances of EC2. Any thread may use it."""

    def __init__(self, context: ProviderContext) -> None:
        self._context = context
        project = context.settings.get("project") or "seatrial"
        self._account = AwsAccount()
        catalogue = InstanceCatalogue(self._account, context.now)
        network = Network(
            self._account,
            context.now,
            project=project,
            ingress_cidr=context.settings.get("ingress_cidr") or "",
        )
        self._finder = Ec2PlaceFinder(catalogue, network, context.now)
        self._launcher = Ec2Launcher(
            account=self._account,
            catalogue=catalogue,
            images=AwsImages(self._account, context.now),
            network=network,
            project=project,
            templates=context.templates,
        )
        self._inventory = Inventory(self._account, project)
        self._resources = Resources(self._account)
        self._quotas = Ec2QuotaReader(self._account, catalogue)

    def is_configured(self) -> bool:
        """Return whether keys or a profile are available; an instance's role is not checked."""
        return self._account.has_credentials()

    def places(self, platform: Platform) -> tuple[Place, ...]:
        """Return zones with the platform's types in its order, with prices.

        Raises ProviderError.
        """
        return self._finder.places(
            platform_config.parse_platform(platform), price_list(self._context.prices)
        )

    def listed_places(self, platform: Platform) -> tuple[Place, ...]:
        """Return places at known prices; EC2 is not asked. Raises ConfigError."""
        return listed_places(
            platform_config.parse_platform(platform), price_list(self._context.prices)
        )

    def launch(self, request: LaunchRequest) -> Machine:
        """Launch an instance; the same token returns the same one. Raises ProviderError."""
        return self._launcher.launch(request)

    def image(self, platform: Platform, place: Place) -> BootImage:
        """Return the image that an instance at the place would boot now. Raises ProviderError."""
        found = self._launcher.image(platform, place)
        simulated = self._account.is_simulated(place.region)
        return BootImage(found.id, simulated=simulated, name=found.name)

    def inspect(self, machine_id: str) -> Machine:
        """Return the machine's present state; TERMINATED if EC2 does not know it.

        Raises ProviderError.
        """
        return self._resources.inspect(machine_id)

    def terminate(self, machine_id: str) -> None:
        """Start to terminate the machine; idempotent. Raises ProviderError."""
        self._resources.terminate(machine_id)

    def inventory(self) -> Iterable[Machine]:
        """Return the project's resources in every enabled region. Raises ProviderError."""
        return self._inventory.read()

    def console(self, machine_id: str) -> str:
        """Return the end of the instance's console output; empty until EC2 has it."""
        region, instance_id = machines.split_id(machine_id)
        if instance_id.partition("-")[0] != INSTANCE:
            return ""
        asked = {"what": instance_id, "InstanceId": instance_id}
        try:
            answer = self._account.read("ec2", region, "get_console_output", Latest=True, **asked)
        except ProviderError as error:
            if error.code != "UnsupportedOperation":
                raise
            # Older types keep only the output of their last start or stop.
            answer = self._account.read("ec2", region, "get_console_output", **asked)
        return str(answer.get("Output", ""))[-CONSOLE_LIMIT:]

    def demands(self, platform: Platform, place: Place) -> tuple[Demand, ...]:
        """Return the vCPU quota that one machine at the place uses. Raises ProviderError."""
        return self._quotas.demands(place)

    def level(self, quota: Quota) -> QuotaLevel:
        """Return limit and usage; a value that cannot be read is unknown, with the reason."""
        return self._quotas.level(quota)

    def read_prices(self) -> Iterable[Price]:
        """Yield the present on-demand and spot prices of the instance types in the price table.

        The price table is the one that ships with Seatrial. Raises ProviderError.
        """
        now = self._context.now()
        yield from read_on_demand(self._account, now)
        yield from read_spot(self._account, now)

    def known_prices(self) -> Iterable[Price]:
        """Return the shipped prices, updated with refreshed ones."""
        return tuple(price_list(self._context.prices).newest.values())
