"""Every provider, each with a cloud of its own where it has one, for the common questions."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from types import MappingProxyType, ModuleType

import pytest

from orchestrator.assets import asset_dir
from orchestrator.domain.machine import (
    LaunchRequest,
    Login,
    Machine,
    MachineState,
    Offers,
    Provider,
)
from runners import registry
from runners.aws.inventory import Inventory
from runners.fake import MemoryHostStore
from runners.provider_context import ProviderContext
from tests.contract.acme_cloud import TOKEN, AcmeCloud
from tests.integration.aws_world import account
from tests.lab.aws.codes import LOST as AWS_LOST
from tests.lab.compute_cloud import ComputeCloud
from tests.lab.faults import Fault
from tests.lab.machines import NoMachines
from tests.lab.tpu_cloud import TpuCloud
from tests.platforms import as_platform

EXAMPLE = Path(__file__).parents[2] / "docs/examples/provider"
HOST_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEZha2VGYWtlRmFrZUZha2VGYWtlRmFrZUZha2VGYWtl"
HOST: Mapping[str, object] = {
    "address": "10.0.0.5",
    "user": "ubuntu",
    "key_file": "id_ed25519",
    "host_key": HOST_KEY,
}
PLATFORMS: Mapping[str, Mapping[str, object]] = {
    "local": {"provider": "local"},
    "static": {"provider": "static", "hosts": [HOST, {**HOST, "address": "10.0.0.6"}]},
    "fake": {"provider": "fake", "locations": ["east", "west"]},
    "aws": {
        "provider": "aws",
        "instance_type": "g5.xlarge",
        "locations": ["us-east-1"],
        "market": ["on-demand"],
    },
    "gcp": {
        "provider": "gcp",
        "instance_type": "g2-standard-4",
        "locations": ["us-central1-a", "us-west1-a"],
        "market": ["on-demand"],
    },
    "tpu": {
        "provider": "tpu",
        "accelerator_type": "v5litepod-1",
        "locations": ["us-west4-a", "us-central1-a"],
        "market": ["on-demand"],
    },
    "acme": {"provider": "acme", "instance_type": "gpu-1", "locations": ["west"]},
}
SETTINGS = {"project": "seatrial", "gcp_project": "lab", "ingress_cidr": "203.0.113.7/32"}
RENTED = ("acme", "aws", "fake", "gcp", "tpu")
CLOUDS = ("acme", "aws", "gcp", "tpu")
# EC2 knows a token within a zone, and so do the names that GCE and TPU tokens become: the flow
# therefore repeats a launch at the same place, and makes a new token for another one.
ONE_TOKEN_EVERYWHERE = ("acme", "fake", "local", "static")
LOGIN = Login(
    f"{HOST_KEY} user", "private", HOST_KEY, "-----BEGIN OPENSSH PRIVATE KEY-----\nnone\n"
)
LOST = Fault(drop=True, after=True)
TOMORROW = datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)
"""A request that is made again is the same."""


def _no_loss() -> None:
    raise NotImplementedError("this provider has no answer that could be lost")


@dataclass(frozen=True)
class Case:
    """A provider, and what a test does to the cloud behind it."""

    name: str
    provider: Provider
    settings: Mapping[str, str] = field(default_factory=dict)
    lose_answer: Callable[[], None] = _no_loss
    """Let the next launch succeed without an answer."""
    left: Callable[[], object] = tuple
    """Whatever of the client's still costs, by the cloud's own account."""

    @property
    def platform(self) -> Mapping[str, object]:
        return PLATFORMS[self.name]

    def again(self) -> Provider:
        """The same provider as another controller makes it, which remembers nothing."""
        return load(self.name, self.settings)


def ask(provider: Provider, name: str, *, token: str = "t-1", place: int = 0) -> LaunchRequest:
    """A request as the flow makes it."""
    platform = PLATFORMS[name]
    assert isinstance(provider, Offers)
    places = provider.places(as_platform(platform))
    request = LaunchRequest(token, places[place % len(places)], as_platform(platform), {})
    if name not in CLOUDS:
        return request
    expires = TOMORROW if name != "gcp" else _now() + timedelta(hours=2)
    tags = {
        "seatrial-project": "seatrial",
        "seatrial-controller": "c-1",
        "seatrial-run": "r-1",
        "seatrial-cell": "cell-1",
        "seatrial-attempt": "a-1",
        "seatrial-token": token,
        "seatrial-expires-at": str(int(expires.timestamp())),
    }
    return replace(request, tags=tags, login=LOGIN, expires_at=expires)


def machines_of(provider: Provider) -> list[str]:
    """The machines of its inventory, without their disks and the shared rules of the firewall."""
    return [each.id for each in provider.inventory() if each.kind == "machine"]


def until(provider: Provider, machine: Machine, state: MachineState) -> Machine:
    """Look, as the flow does, until it is so."""
    end = time.monotonic() + 120
    while time.monotonic() < end:
        seen = provider.inspect(machine.id)
        if seen.state is state:
            return seen
        time.sleep(0.02)
    raise AssertionError(f"never {state}, but {seen}")


@contextmanager
def case(name: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Case]:
    """One provider with an account that is empty, until the end of the block."""
    make = {"acme": _acme, "aws": _aws, "gcp": _gcp, "tpu": _tpu}.get(name)
    if make is None:
        yield Case(name, load(name))
        return
    with contextmanager(make)(monkeypatch) as made:
        yield made
        close = getattr(made.provider, "close", None)
        if close:
            close()


def load(name: str, settings: Mapping[str, str] = MappingProxyType({})) -> Provider:
    """A provider with an empty memory."""
    context = ProviderContext(
        MemoryHostStore(), {**SETTINGS, **settings}, now=_now, templates=asset_dir("templates")
    )
    if name == "acme":
        found: Provider = acme_module().AcmeProvider(context)
        return found
    return registry.load(name, context)


def acme_module() -> ModuleType:
    """The example's module, where it lies."""
    source = str(EXAMPLE / "src")
    if source not in sys.path:
        sys.path.append(source)
    return import_module("acme_seatrial")


def _acme(monkeypatch: pytest.MonkeyPatch) -> Iterator[Case]:
    with AcmeCloud() as cloud:
        monkeypatch.setenv("ACME_URL", cloud.url)
        monkeypatch.setenv("ACME_TOKEN", TOKEN)
        yield Case(
            "acme",
            load("acme"),
            lose_answer=lambda: cloud.faults.append("lost"),
            left=lambda: list(cloud.servers),
        )


def _aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[Case]:
    # Every region takes a client and seven questions; that all are asked is a test of aws alone.
    monkeypatch.setattr(Inventory, "regions", lambda _: ("us-east-1", "us-west-2"))
    with account(monkeypatch) as cloud:
        yield Case(
            "aws",
            load("aws"),
            lose_answer=lambda: cloud.faults.script("RunInstances", [AWS_LOST]),
            left=lambda: [one for one in cloud.alive() if one[0] != "security-group"],
        )


def _gcp(_: pytest.MonkeyPatch) -> Iterator[Case]:
    with ComputeCloud(machines=NoMachines()) as cloud:
        settings = {"gcp_compute_endpoint": cloud.endpoint_url}
        yield Case(
            "gcp",
            load("gcp", settings),
            settings,
            lose_answer=lambda: cloud.faults.script("instances.insert", [LOST]),
            left=lambda: [one for one in cloud.alive() if one[0] != "firewall"],
        )


def _tpu(_: pytest.MonkeyPatch) -> Iterator[Case]:
    with TpuCloud(machines=NoMachines()) as cloud:
        settings = {"gcp_tpu_endpoint": cloud.target}
        yield Case(
            "tpu",
            load("tpu", settings),
            settings,
            lose_answer=lambda: cloud.faults.script("CreateQueuedResource", [LOST]),
            left=cloud.alive,
        )


def _now() -> datetime:
    return datetime.now(UTC)
