"""The world that the tests of the provider `tpu` share: the real client, an emulated Cloud TPU."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from orchestrator.domain.machine import (
    LaunchRequest,
    Login,
    Machine,
    MachineState,
    Place,
)
from runners.fake import MemoryHostStore
from runners.provider_context import ProviderContext
from runners.tpu import TpuProvider
from tests.lab.faults import Fault
from tests.lab.machines import NoMachines
from tests.lab.tpu_cloud import TpuCloud
from tests.platforms import as_platform

TEMPLATES = Path(__file__).parents[2] / "templates"
ZONE = "us-west4-a"
TYPE = "v5litepod-1"
USER_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFVzZXJVc2VyVXNlclVzZXJVc2VyVXNlclVzZXJVc2Vy run"
LOGIN = Login(USER_KEY, "private", "ssh-ed25519 AAAA host", "host private")
BOTH = ("CreateQueuedResource", "CreateNode")
QUEUE: Mapping[str, str] = {}
NODE: Mapping[str, str] = {"api": "node"}


class Skewed:
    """The cloud's clock: the computer's, moved by a test."""

    def __init__(self) -> None:
        self.ahead = timedelta()

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self.ahead

    def move(self, seconds: float) -> None:
        self.ahead += timedelta(seconds=seconds)


@pytest.fixture
def clock() -> Skewed:
    return Skewed()


@pytest.fixture
def machines() -> NoMachines:
    return NoMachines()


@pytest.fixture
def cloud(machines: NoMachines, clock: Skewed) -> Iterator[TpuCloud]:
    with TpuCloud(machines=machines, clock=clock) as cloud:
        yield cloud


@pytest.fixture
def open_provider(cloud: TpuCloud, clock: Skewed) -> Iterator[Callable[..., TpuProvider]]:
    opened: list[TpuProvider] = []

    def make(**settings: str) -> TpuProvider:
        given = {
            "project": "seatrial",
            "ingress_cidr": "192.0.2.1/32",
            "gcp_project": "lab",
            "gcp_tpu_endpoint": cloud.target,
            **settings,
        }
        context = ProviderContext(MemoryHostStore(), given, now=clock, templates=TEMPLATES)
        opened.append(TpuProvider(context))
        return opened[-1]

    yield make
    for provider in opened:
        provider.close()


@pytest.fixture
def provider(open_provider: Callable[..., TpuProvider]) -> TpuProvider:
    return open_provider()


@pytest.fixture(params=[QUEUE, NODE], ids=["queued", "node"])
def api(request: pytest.FixtureRequest) -> Mapping[str, str]:
    value: Mapping[str, str] = request.param
    return value


def ask(
    token: str = "t-1",
    *,
    zone: str = ZONE,
    market: str = "on-demand",
    options: Mapping[str, str] = QUEUE,
    **keys: object,
) -> LaunchRequest:
    platform = {"accelerator_type": TYPE, "locations": (zone,), "market": (market,), **keys}
    expires = datetime(2030, 1, 1, tzinfo=UTC)
    tags = {
        "seatrial-project": "seatrial",
        "seatrial-controller": "c-1",
        "seatrial-run": "r-1",
        "seatrial-cell": "gcp-tpu.v5e",
        "seatrial-attempt": "a-1",
        "seatrial-token": token,
        "seatrial-expires-at": str(int(expires.timestamp())),
    }
    return LaunchRequest(
        token=token,
        place=Place(name=f"{zone}/{TYPE}/{market}", zone=zone, market=market),
        platform=as_platform({**platform, "options": dict(options)}),
        tags=tags,
        login=LOGIN,
        expires_at=expires,
    )


def until(
    provider: TpuProvider, machine_id: str, *states: MachineState, limit_s: float = 120.0
) -> Machine:
    """Look until it is in one of the states."""
    end = time.monotonic() + limit_s
    while True:
        machine = provider.inspect(machine_id)
        if machine.state in states:
            return machine
        assert time.monotonic() < end, f"still {machine.state}: {machine.detail}"
        time.sleep(0.02)


def creates(cloud: TpuCloud) -> list[str]:
    return [call.answer for call in cloud.calls if call.name in BOTH]


def scripted(cloud: TpuCloud, *faults: Fault, where: str | None = None) -> None:
    for name in BOTH:
        cloud.faults.script(name, list(faults), where=where)


def release(provider: TpuProvider, machine_id: str) -> None:
    provider.terminate(machine_id)
    until(provider, machine_id, MachineState.TERMINATED)
