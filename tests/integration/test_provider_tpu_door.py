"""Who may knock at a TPU VM: the one network that was named, by rules of the provider's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from google.cloud import tpu_v2

from orchestrator.domain.machine import (
    ConfigError,
    CredentialsError,
    MachineState,
    ProviderUnavailableError,
)
from runners.fake import MemoryHostStore
from runners.gcp import GcpProvider
from runners.provider_context import ProviderContext
from runners.tpu import TpuProvider
from tests.integration.gcp_lab import RULE, called
from tests.integration.tpu_world import TEMPLATES, Skewed, ask
from tests.lab.compute_cloud import ComputeCloud
from tests.lab.machines import NoMachines
from tests.lab.tpu_cloud import TpuCloud


@pytest.fixture
def compute() -> Iterator[ComputeCloud]:
    with ComputeCloud(machines=NoMachines()) as compute:
        yield compute


@pytest.fixture
def tpus() -> Iterator[TpuCloud]:
    with TpuCloud(machines=NoMachines()) as tpus:
        yield tpus


@pytest.fixture
def settings(compute: ComputeCloud, tpus: TpuCloud) -> dict[str, str]:
    return {
        "project": "seatrial",
        "ingress_cidr": "192.0.2.1/32",
        "gcp_project": "lab",
        "gcp_tpu_endpoint": tpus.target,
        "gcp_compute_endpoint": compute.endpoint_url,
    }


@pytest.fixture
def opened(settings: dict[str, str]) -> Iterator[Callable[..., TpuProvider]]:
    made: list[TpuProvider] = []

    def make(**more: str) -> TpuProvider:
        given = {k: v for k, v in (settings | more).items() if v}
        context = ProviderContext(MemoryHostStore(), given, now=Skewed(), templates=TEMPLATES)
        made.append(TpuProvider(context))
        return made[-1]

    yield make
    for provider in made:
        provider.close()


def rules(compute: ComputeCloud) -> dict[str, dict]:
    return dict(compute._state.network.firewalls)


@pytest.mark.parametrize("options", [{}, {"api": "node"}, {"network": "default"}])
def test_a_public_tpu_lets_in_one_network_and_nobody_else(opened, compute, tpus, options) -> None:
    provider = opened()
    provider.launch(ask("t-1", options=options))
    provider.launch(ask("t-2", options=options))
    assert called(compute, RULE) == 2
    made = [name for name in rules(compute) if name.startswith("seatrial-seatrial-tpu")]
    assert len(made) == 2
    allow, deny = sorted(made)
    assert rules(compute)[allow]["sourceRanges"] == ["192.0.2.1/32"]
    assert rules(compute)[deny]["sourceRanges"] == ["0.0.0.0/0"]
    assert rules(compute)[deny]["priority"] > rules(compute)[allow]["priority"]
    tags = {tuple(rules(compute)[name]["targetTags"]) for name in made}
    carried = {(tag,) for order in orders(tpus) for tag in order.tags}
    assert tags == carried
    assert len(tags) == 1


def orders(tpus: TpuCloud) -> list[tpu_v2.Node]:
    """The nodes as they were asked for."""
    with tpus._lock:
        nodes = [node.order.node for node in tpus.nodes.known.values()]
        return nodes + [queued.order.node for queued in tpus.queue.known.values()]


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
    context = ProviderContext(MemoryHostStore(), settings, now=Skewed(), templates=TEMPLATES)
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
        assert provider.inspect(rule.id).state is MachineState.TERMINATED
    assert [m for m in provider.inventory() if m.kind == "firewall"] == []


def test_an_emulated_tpu_without_a_network_beside_it_asks_no_real_one(opened) -> None:
    provider = opened(gcp_compute_endpoint="")
    provider.launch(ask("t-1"))
    assert {m.kind for m in provider.inventory()} <= {"machine", "queued-resource"}


@pytest.mark.parametrize("after", [False, True])
def test_a_lost_answer_makes_no_second_rule_and_no_machine(opened, compute, tpus, after) -> None:
    provider = opened()
    compute.refuse(RULE, "backendError", after=after)
    with pytest.raises(ProviderUnavailableError, match="firewall rule"):
        provider.launch(ask("t-1"))
    assert tpus.alive() == []
    provider.launch(ask("t-1"))
    assert len(compute._state.network.made_firewalls()) == 2
    assert called(compute, RULE) == (2 if after else 3)


def test_a_rule_that_cannot_be_made_stops_the_launch(opened, compute, tpus) -> None:
    compute.refuse(RULE, "forbidden")
    with pytest.raises(CredentialsError, match=r"roles/compute\.securityAdmin"):
        opened().launch(ask("t-1"))
    assert tpus.alive() == []


def test_a_network_of_the_users_has_rules_of_theirs(opened, compute) -> None:
    opened().launch(ask("t-1", options={"network": "projects/lab/global/networks/ours"}))
    assert compute._state.network.made_firewalls() == []


def test_rules_that_cannot_be_listed_make_the_inventory_incomplete(opened, compute) -> None:
    provider = opened()
    provider.launch(ask("t-1"))
    compute.refuse("firewalls.list", "backendError", "backendError")
    with pytest.raises(ProviderUnavailableError, match="firewall rules"):
        provider.inventory()
    compute.refuse("firewalls.list", "forbidden")
    with pytest.raises(CredentialsError):
        provider.inventory()


def test_whoever_lets_nobody_in_need_not_let_us_read_rules(opened, compute) -> None:
    provider = opened(ingress_cidr="")
    machine = provider.launch(ask("t-1", connect="private"))
    compute.refuse("firewalls.list", "forbidden")
    assert [m.id for m in provider.inventory()] == [machine.id]
    compute.refuse("firewalls.list", "backendError", "backendError")
    with pytest.raises(ProviderUnavailableError):
        provider.inventory()


def test_a_project_that_is_called_like_anothers_tpus_has_rules_of_its_own(
    opened, compute, settings
) -> None:
    opened().launch(ask("t-1"))
    machines = {**settings, "project": "seatrial-tpu"}
    context = ProviderContext(MemoryHostStore(), machines, now=Skewed(), templates=TEMPLATES)
    other = GcpProvider(context)
    try:
        other._firewall.ensure(settings["ingress_cidr"])
        assert len([m for m in other.inventory() if m.kind == "firewall"]) == 2
    finally:
        other.close()
    tags = [tuple(r["targetTags"]) for r in rules(compute).values() if "targetTags" in r]
    assert len(tags) == 4
    assert len(set(tags)) == 2
