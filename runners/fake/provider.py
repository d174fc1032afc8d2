"""The provider ``fake`` over a cloud in memory, and a machine book in memory."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from orchestrator.domain.machine import ConfigError, LaunchRequest, Machine, Place, ProviderTraits
from orchestrator.domain.matrix import Platform
from orchestrator.domain.quota import BootImage
from runners.fake.cloud import PRICE_USD_PER_HOUR, FakeCloud
from runners.provider_context import ProviderContext

TRAITS = ProviderTraits(name="fake", keys=frozenset({"locations"}), rented=True)
DEFAULT_LOCATIONS = ("nowhere",)


class FakeProvider:
    """Rents machines of a `FakeCloud`."""

    def __init__(self, context: ProviderContext, cloud: FakeCloud | None = None) -> None:
        self.context = context
        self.cloud = cloud or FakeCloud()

    def places(self, platform: Platform) -> tuple[Place, ...]:
        """The platform's locations in their order. Raises ConfigError."""
        listed = DEFAULT_LOCATIONS if platform.locations is None else platform.locations
        if isinstance(listed, str) or not listed:
            raise ConfigError("locations: list at least one name")
        return tuple(
            Place(
                name=name,
                zone=name,
                region=name.rstrip("abc"),
                market="on-demand",
                price_usd_per_hour=self.cloud.prices.get(name, PRICE_USD_PER_HOUR),
            )
            for name in listed
        )

    def image(self, platform: Platform, place: Place) -> BootImage:
        """Return the image that a machine would boot now. Raises ProviderError."""
        return BootImage(self.cloud.image(place.name))

    def launch(self, request: LaunchRequest) -> Machine:
        """Create a machine; the same token returns the same one."""
        return self.cloud.launch(request)

    def inspect(self, machine_id: str) -> Machine:
        """Return the machine's present state."""
        return self.cloud.inspect(machine_id)

    def terminate(self, machine_id: str) -> None:
        """Start to terminate the machine."""
        self.cloud.terminate(machine_id)

    def inventory(self) -> Iterable[Machine]:
        """Every machine that is not gone."""
        return self.cloud.inventory()


class MemoryHostStore:
    """Remembers machines for as long as it exists."""

    def __init__(self) -> None:
        self._machines: dict[tuple[str, str], Machine] = {}
        self._lock = threading.Lock()

    def write(self, provider: str, machine: Machine) -> None:
        """Store or replace the machine."""
        with self._lock:
            self._machines[provider, machine.id] = machine

    def read(self, provider: str, machine_id: str) -> Machine | None:
        """The stored machine, or None."""
        return self._machines.get((provider, machine_id))

    def erase(self, provider: str, machine_id: str) -> None:
        """Forget it; unknown is no error."""
        with self._lock:
            self._machines.pop((provider, machine_id), None)

    def pages(self, provider: str) -> tuple[Machine, ...]:
        """Every machine stored for the provider."""
        with self._lock:
            return tuple(one for (owner, _), one in self._machines.items() if owner == provider)
