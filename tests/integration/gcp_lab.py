"""What the tests of the provider ``gcp`` share: its emulated cloud's clock, and what they ask."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

from orchestrator.domain.machine import LaunchRequest, Login, Machine, MachineState
from orchestrator.domain.prices import PriceBook
from runners.fake import MemoryHostStore
from runners.gcp import GcpProvider
from runners.provider_context import ProviderContext
from tests.lab.compute_cloud import ComputeCloud
from tests.platforms import as_platform

TEMPLATES = Path(__file__).parents[2] / "templates"
ZONE = "us-central1-a"
PLATFORM: Mapping[str, object] = {
    "id": "gcp-l4",
    "provider": "gcp",
    "instance_type": "g2-standard-4",
    "accelerator": {"vendor": "nvidia", "name": "L4", "count": 1},
    "locations": ("us-west1-a", ZONE),
    "market": ("spot", "on-demand"),
    "disk_gb": 100,
}
LOGIN = Login(
    public_key="ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEZha2VGYWtlRmFrZUZha2VGYWtlRmFrZUZha2VGYWtl x",
    private_key="private",
    host_public_key="ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEhvc3RIb3N0SG9zdEhvc3RIb3N0SG9zdEhvc3RI",
    host_private_key="-----BEGIN OPENSSH PRIVATE KEY-----\nhost\n-----END OPENSSH PRIVATE KEY-----",
)
SETTINGS = {"project": "seatrial", "gcp_project": "lab", "ingress_cidr": "203.0.113.7/32"}
INSERT, RULE = "instances.insert", "firewalls.insert"


class Clock:
    """Real time, and what a test adds to it."""

    def __init__(self) -> None:
        self.ahead = timedelta(0)

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self.ahead


def provider_of(
    cloud: ComputeCloud, clock: Clock, *, prices: PriceBook | None = None, **changed: str
) -> GcpProvider:
    """A provider of its own memory, as another process would make it; an empty setting is none."""
    settings = {**SETTINGS, "gcp_compute_endpoint": cloud.endpoint_url, **changed}
    context = ProviderContext(
        book=MemoryHostStore(),
        settings={key: value for key, value in settings.items() if value},
        prices=prices,
        now=clock,
        templates=TEMPLATES,
    )
    return GcpProvider(context)


def ask(
    provider: GcpProvider,
    clock: Clock,
    *,
    token: str = "t-1",
    place: str = f"{ZONE}/g2-standard-4/on-demand",
    minutes: float = 60,
    platform: Mapping[str, object] = PLATFORM,
) -> LaunchRequest:
    (found,) = [each for each in provider.places(as_platform(platform)) if each.name == place]
    now = clock()
    expires_at = now + timedelta(minutes=minutes)
    tags = {
        "seatrial-project": "seatrial",
        "seatrial-controller": "c-1",
        "seatrial-run": "r-1",
        "seatrial-cell": "gcp-l4.image",
        "seatrial-attempt": "a-1",
        "seatrial-token": token,
        "seatrial-expires-at": str(int(expires_at.timestamp())),
    }
    return LaunchRequest(
        token,
        found,
        as_platform(platform),
        tags,
        login=LOGIN,
        expires_at=expires_at,
        asked_at=now,
    )


def settled(provider: GcpProvider, machine_id: str, until: MachineState) -> Machine:
    for _ in range(100):
        machine = provider.inspect(machine_id)
        if machine.state is until:
            return machine
    raise AssertionError(f"never {until}: {machine}")


def called(cloud: ComputeCloud, name: str) -> int:
    return sum(call.name == name for call in cloud.calls)


def swept(provider: GcpProvider, cloud: ComputeCloud) -> None:
    for each in provider.inventory():
        provider.terminate(each.id)
    for _ in range(100):
        if not list(provider.inventory()):
            break
    assert cloud.alive() == []
