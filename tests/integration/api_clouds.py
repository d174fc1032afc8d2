"""The interface over a cloud in memory that has quotas and prices, and leases in its ledger."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal

from starlette.testclient import TestClient

from orchestrator.api.app import create_app
from orchestrator.application.context import Context
from orchestrator.domain.cell import Lease, LeaseState
from orchestrator.domain.machine import (
    LaunchRequest,
    Login,
    Place,
    ProviderUnavailableError,
    SshEndpoint,
)
from orchestrator.domain.matrix import Platform
from orchestrator.domain.money import lease_bill
from orchestrator.domain.prices import Price
from orchestrator.domain.quota import BootImage, Demand, Quota, QuotaLevel
from runners.fake import FakeCloud, FakeProvider
from runners.provider_context import ProviderContext
from tests.integration.api_context import BEGIN, Desk
from tests.platforms import as_platform

GPUS = Quota("fake", "north", "L-3819A6DF", "G/VT spot", "vCPU")
OFFER = Place(
    "north",
    price_usd_per_hour=Decimal("1.006"),
    disk_usd_per_hour=Decimal("0.0123"),
    address_usd_per_hour=Decimal("0.005"),
    minimum_s=60,
    priced="table of 2026-01-01",
    region="north",
    zone="north",
    market="spot",
    instance_type="g5.xlarge",
)
LOGIN = Login("ssh-ed25519 AAAA", "-----BEGIN secret-----\n", "ssh-ed25519 HOST", "host secret")


class CostlyProvider(FakeProvider):
    """Knows its quotas and its prices."""

    level_now = QuotaLevel(8, 4)
    is_down = False
    offered: tuple[Place, ...] = ()
    """Instead of the cloud's own places."""
    image_names: Mapping[str, str] = {}
    """By platform."""

    def image(self, platform: Platform, place: Place) -> BootImage:
        return BootImage("", name=self.image_names.get(platform.id, ""))

    def places(self, platform: Platform) -> tuple[Place, ...]:
        return self.offered or super().places(platform)

    def demands(self, platform: Platform, place: Place) -> tuple[Demand, ...]:
        return (Demand(replace(GPUS, scope=place.region), 4),)

    def level(self, quota: Quota) -> QuotaLevel:
        return self.level_now

    def is_configured(self) -> bool:
        return True

    def read_prices(self) -> Iterator[Price]:
        if self.is_down:
            raise ProviderUnavailableError("the price list is not answered")
        yield price("north", "1.006")
        yield price("south", "0")

    def known_prices(self) -> tuple[Price, ...]:
        return (price("north", "1.01"),)


def price(place: str, usd: str) -> Price:
    return Price("fake", "g5.xlarge", place, "on-demand", Decimal(usd), BEGIN, "pricing API")


@dataclass
class Clouds:
    """A desk, its cloud, and a client that speaks to both."""

    desk: Desk
    cloud: FakeCloud
    provider: CostlyProvider
    client: TestClient
    context: Context

    def rent(self, token: str, **tags: str) -> str:
        """A machine that the ledger does not know."""
        ends = self.desk.clock.now() + timedelta(hours=1)
        said = {
            "seatrial-project": "seatrial",
            "seatrial-controller": "me",
            "seatrial-token": token,
            "seatrial-run": "run-x",
            "seatrial-expires-at": str(int(ends.timestamp())),
        }
        request = LaunchRequest(token, Place("north"), as_platform({}), said | tags)
        return self.cloud.launch(request).id

    def lease(
        self,
        run_id: str,
        cell: str,
        lease_id: str,
        *,
        offer: Place = OFFER,
        provider: str = "fake",
    ) -> Lease:
        """An open lease of a running cell, held since now, which can be entered."""
        leases = self.desk.database.stores.leases
        attempt = f"{self.desk.cell_id(run_id, cell)}-1"
        at = self.desk.clock.now()
        made = Lease(
            id=lease_id,
            attempt_id=attempt,
            provider=provider,
            place=offer.name,
            state=LeaseState.RESERVED,
            reserved_usd=Decimal(1),
            price_usd_per_hour=offer.price_usd_per_hour,
            reserved_at=at,
            offer=offer,
        )
        leases.reserve(made, run_id=run_id, exclusive=False)
        leases.keep_login(lease_id, LOGIN)
        leases.launching(lease_id, at=at)
        leases.active(lease_id, f"fake-{lease_id}", at=at)
        endpoint = SshEndpoint("203.0.113.7", "ubuntu", "ssh-ed25519 HOST", lease=lease_id)
        leases.reached(lease_id, endpoint)
        return leases.get(lease_id)

    def settle(self, lease_id: str) -> Decimal:
        """Close a lease now; answers what it cost."""
        leases, at = self.desk.database.stores.leases, self.desk.clock.now()
        cost = lease_bill(replace(leases.get(lease_id), gone_at=at), at).total_usd
        leases.gone(lease_id, at=at, cost_usd=cost)
        return cost


def clouds(desk: Desk) -> Clouds:
    """Put the cloud behind the interface."""
    cloud = FakeCloud()
    stores = desk.context.stores
    provider = CostlyProvider(ProviderContext(stores.static_hosts, prices=stores.prices), cloud)
    traits = {"fake": desk.context.traits["fake"]}
    janitor = replace(desk.context.janitor, provider=lambda _: provider, traits=traits)
    context = replace(desk.context, janitor=janitor, traits=traits, provider=lambda _: provider)
    app = create_app(context, guard=None)
    return Clouds(desk, cloud, provider, desk.speak(app), context)
