"""Who may knock at a TPU VM: the one network that was named, by rules of the provider's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from orchestrator.domain.machine import ConfigError, MachineState
from runners import ProviderContext
from runners.fake import MemoryBook
from runners.gcp import GcpProvider
from runners.tpu import TpuProvider
from tests.integration.tpu_world import TEMPLATES, Skewed, ask
from tests.lab.compute_cloud import ComputeCloud
from tests.lab.machines import NoMachines
from tests.lab.tpu_cloud import TpuCloud


@pytest.fixture
def compute() -> Iterator[ComputeCloud]:
    with ComputeCloud(machines=NoMachines()) as compute:
        yield compute


@pytest.fixture
def settings(compute: ComputeCloud) -> Iterator[dict[str, str]]:
    with TpuCloud(machines=NoMachines()) as tpu:
        yield {
            "project": "seatrial",
            "ingress_cidr": "192.0.2.1/32",
            "gcp_project": "lab",
            "gcp_tpu_endpoint": tpu.target,
            "gcp_compute_endpoint": compute.endpoint_url,
        }


@pytest.fixture
def opened(settings: dict[str, str]) -> Iterator[Callable[..., TpuProvider]]:
    made: list[TpuProvider] = []

    def make(**more: str) -> TpuProvider:
        given = {k: v for k, v in (settings | more).items() if v}
        context = ProviderContext(MemoryBook(), given, now=Skewed(), templates=TEMPLATES)
        made.append(TpuProvider(context))
        return made[-1]

    yield make
    for provider in made:
        provider.close()


def rules(compute: ComputeCloud) -> dict[str, dict]:
    return dict(compute._state.network.firewalls)


def test_a_public_tpu_lets_in_one_network_and_nobody_else(opened, compute) -> None:
    provider = opened()
    provider.launch(ask("t-1"))
    provider.launch(ask("t-2"))
    made = [name for name in rules(compute) if name.startswith("seatrial-seatrial-tpu")]
    assert len(made) == 2
    allow, deny = sorted(made)
    assert rules(compute)[allow]["sourceRanges"] == ["192.0.2.1/32"]
    assert rules(compute)[deny]["sourceRanges"] == ["0.0.0.0/0"]
    assert rules(compute)[deny]["priority"] > rules(compute)[allow]["priority"]
    tags = {tuple(rules(compute)[name]["targetTags"]) for name in made}
    assert tags == {("seatrial-seatrial-tpu",)}


def test_a_private_tpu_needs_no_rule(opened, compute) -> None:
    before = set(rules(compute))
    opened().launch(ask("t-1", connect="private"))
    assert set(rules(compute)) == before


def test_without_a_network_that_may_enter_nothing_is_launched(opened, compute) -> None:
    provider = opened(ingress_cidr="")
    with pytest.raises(ConfigError, match="SEATRIAL_INGRESS_CIDR"):
        provider.launch(ask("t-1"))
    assert [m for m in provider.inventory() if m.kind != "firewall"] == []


def test_each_google_provider_sweeps_its_own_rules_only(opened, compute, settings) -> None:
    provider = opened()
    provider.launch(ask("t-1"))
    context = ProviderContext(MemoryBook(), settings, now=Skewed(), templates=TEMPLATES)
    other = GcpProvider(context)
    try:
        assert [m for m in other.inventory() if m.kind == "firewall"] == []
    finally:
        other.close()
    mine = [m for m in provider.inventory() if m.kind == "firewall"]
    assert len(mine) == 2
    assert all(m.tags["seatrial-shared"] == "true" for m in mine)
    for rule in mine:
        provider.terminate(rule.id)
        provider.terminate(rule.id)
        assert provider.inspect(rule.id).state is MachineState.GONE
    assert [m for m in provider.inventory() if m.kind == "firewall"] == []


def test_an_emulated_tpu_without_a_network_beside_it_asks_no_real_one(opened) -> None:
    provider = opened(gcp_compute_endpoint="")
    provider.launch(ask("t-1"))
    assert {m.kind for m in provider.inventory()} <= {"machine", "queued-resource"}
