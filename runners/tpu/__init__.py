"""The provider ``tpu``: Cloud TPU virtual machines, by queued resources or as plain nodes.

`TRAITS` are known without Google's libraries; the first use of a provider imports them.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, cast

from orchestrator.domain.machine import LaunchRequest, Machine, Place, ProviderTraits
from orchestrator.domain.matrix import Platform
from runners.provider_context import ProviderContext

if TYPE_CHECKING:
    from orchestrator.domain.document_problems import Problem
    from orchestrator.domain.prices import Price
    from orchestrator.domain.quota import Demand, Quota, QuotaLevel
    from runners.tpu.wiring import CloudTpu


def _check(platform: Platform) -> Iterable[Problem]:
    module = import_module("runners.tpu.platform_config")
    found: Iterable[Problem] = module.check_platform(platform)
    return found


TRAITS = ProviderTraits(
    name="tpu",
    keys=frozenset(
        {"accelerator_type", "runtime_version", "locations", "market", "connect", "bastion"}
    ),
    required=frozenset({"accelerator_type"}),
    rented=True,
    notice="gcp",
    caution=(
        "a TPU does not end by itself: it costs until somebody ends it. `seatrial bootstrap gcp` "
        "sets up a kill switch in your own account; without it have a second controller on another "
        "computer (docs/explanation/machine-lifecycle.md)"
    ),
    check=_check,
    extra="gcp",
    setting="gcp_project",
)


class TpuProvider:
    """Rents Cloud TPU virtual machines with one host.

    The API has no expiry for a TPU: the guest's timer stops the work, not the bill. The janitor
    therefore terminates a machine that was not released.
    """

    def __init__(self, context: ProviderContext) -> None:
        self._context = context

    def is_configured(self) -> bool:
        """Return whether a Google Cloud project to rent in is set."""
        return bool(self._context.settings.get("gcp_project"))

    def places(self, platform: Platform) -> tuple[Place, ...]:
        """Zones x markets in the matrix's order. Raises ConfigError, NotOfferedError."""
        return self._cloud.places(platform)

    def launch(self, request: LaunchRequest) -> Machine:
        """Launch a machine; the same token returns the same one. Raises ProviderError."""
        return self._cloud.launch(request)

    def inspect(self, machine_id: str) -> Machine:
        """Return the machine's present state. Raises ProviderError."""
        return self._cloud.inspect(machine_id)

    def terminate(self, machine_id: str) -> None:
        """Start to delete the machine and its queue entry. Raises ProviderError."""
        self._cloud.terminate(machine_id)

    def inventory(self) -> Iterable[Machine]:
        """Return the project's resources in every zone. Raises ProviderError."""
        return self._cloud.inventory()

    def read_prices(self) -> Iterable[Price]:
        """Prices from the Cloud Billing catalogue. Raises ProviderError."""
        return self._cloud.read_prices()

    def known_prices(self) -> Iterable[Price]:
        """Return the shipped prices, updated with refreshed ones."""
        return self._cloud.known_prices()

    def demands(self, platform: Platform, place: Place) -> tuple[Demand, ...]:
        """The chips that a machine takes of its zone's quota."""
        return self._cloud.demands(platform, place)

    def level(self, quota: Quota) -> QuotaLevel:
        """Limit and usage of a quota now; unknown with the reason."""
        return self._cloud.level(quota)

    def close(self) -> None:
        """Drop the connections; the next call opens others."""
        self._cloud.close()

    @cached_property
    def _cloud(self) -> CloudTpu:
        return cast("CloudTpu", import_module("runners.tpu.wiring").CloudTpu(self._context))
