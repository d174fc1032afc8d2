"""The provider `tpu`: its four verbs, by queued resources and as plain nodes; exactly once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest

from orchestrator.domain.machine import (
    ConfigError,
    MachineState,
    ProviderUnavailableError,
    SshAddress,
)
from runners.tpu import TpuProvider
from tests.integration import tpu_world
from tests.integration.tpu_world import NODE, TYPE, USER_KEY, ZONE, ask, release, scripted, until
from tests.lab.faults import Fault
from tests.lab.google.codes import tpu_fault
from tests.lab.machines import NO_MACHINE_HOST_KEY, NoMachines
from tests.lab.tpu_cloud import TpuCloud

# fixtures
api = tpu_world.api
clock = tpu_world.clock
cloud = tpu_world.cloud
machines = tpu_world.machines
open_provider = tpu_world.open_provider
provider = tpu_world.provider


# the four verbs, both ways


def test_from_launch_to_gone(
    provider: TpuProvider, cloud: TpuCloud, machines: NoMachines, api: Mapping[str, str]
) -> None:
    launched = provider.launch(ask(options=api))
    collection = "nodes" if api else "queuedResources"
    assert launched.id == f"{ZONE}/{collection}/seatrial-seatrial-t-1"
    assert (launched.token, launched.state) == ("t-1", MachineState.REQUESTED)
    ready = until(provider, launched.id, MachineState.READY)
    assert isinstance(ready.endpoint, SshAddress)
    assert ready.endpoint.user == "ubuntu"
    assert ready.endpoint.host_key == f"ssh-ed25519 {NO_MACHINE_HOST_KEY}"
    assert ready.endpoint.address in machines.booted[0].addresses
    assert (ready.token, ready.kind, ready.simulated) == ("t-1", "machine", True)
    assert ready.facts["instance_type"] == TYPE
    assert ready.facts["image_id"] == "v2-alpha-tpuv5-lite"
    assert (ready.facts["zone"], ready.facts["region"]) == (ZONE, "us-west4")
    assert ready.facts["market"] == "on-demand"
    assert [machine.id for machine in provider.inventory()] == [launched.id]
    release(provider, launched.id)
    provider.terminate(launched.id)
    assert list(provider.inventory()) == []
    assert cloud.alive() == []
    assert machines.live() == ()


def test_the_machine_is_told_what_it_needs_and_nothing_secret(
    provider: TpuProvider, machines: NoMachines, api: Mapping[str, str]
) -> None:
    until(provider, provider.launch(ask(options=api)).id, MachineState.READY)
    told = machines.booted[0].attributes
    assert told["ssh-keys"] == f"ubuntu:{USER_KEY.removesuffix(' run')} ubuntu"
    assert told["block-project-ssh-keys"] == "TRUE"
    assert told["enable-oslogin"] == "FALSE"
    assert told["enable-guest-attributes"] == "TRUE"
    deadline = int(datetime(2030, 1, 1, tzinfo=UTC).timestamp())
    assert str(deadline) in told["startup-script"]
    assert not any("private" in value for value in told.values())


def test_tags_come_back_as_labels_can_carry_them(
    provider: TpuProvider, api: Mapping[str, str]
) -> None:
    (machine,) = [provider.launch(ask(options=api))] and list(provider.inventory())
    asked = ask().tags
    assert set(machine.tags) == set(asked)
    same = {key for key in asked if machine.tags[key] == asked[key]}
    assert set(asked) - same == {"seatrial-cell"}  # its dot is no label


def test_a_machine_whose_labels_are_not_visible_has_the_token_of_its_id(
    provider: TpuProvider, api: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    token = "0" * 26
    machine = provider.launch(ask(token, options=api))
    monkeypatch.setattr("runners.tpu.states.spec_of", lambda seen: None)
    found = provider.inspect(machine.id)
    assert (found.token, found.tags["seatrial-project"]) == (token, "seatrial")


def test_a_machine_carries_the_labels_that_its_owner_requires(
    provider: TpuProvider, cloud: TpuCloud, api: Mapping[str, str]
) -> None:
    machine = provider.launch(ask(options={**api, "labels": "cost-center=42, owner=ml"}))
    until(provider, machine.id, MachineState.READY)
    [node] = cloud.nodes.known.values()
    sent = node.message().labels
    assert (sent["cost-center"], sent["owner"]) == ("42", "ml")
    assert set(machine.tags) == set(ask().tags)


def test_spot_is_asked_for_as_spot(
    provider: TpuProvider, cloud: TpuCloud, api: Mapping[str, str]
) -> None:
    machine = provider.launch(ask(market="spot", options=api))
    assert machine.facts["market"] == "spot"
    assert until(provider, machine.id, MachineState.READY).facts["market"] == "spot"
    assert {line.market for line in cloud.billing()} == {"spot"}


def test_a_private_machine_has_only_its_private_address(
    open_provider: Callable[..., TpuProvider], machines: NoMachines, api: Mapping[str, str]
) -> None:
    provider = open_provider(ingress_cidr="")
    machine = provider.launch(ask(options=api, connect="private"))
    ready = until(provider, machine.id, MachineState.READY)
    assert isinstance(ready.endpoint, SshAddress)
    assert (ready.endpoint.address,) == machines.booted[0].addresses


def test_a_public_machine_needs_to_know_who_may_come(
    open_provider: Callable[..., TpuProvider], cloud: TpuCloud
) -> None:
    with pytest.raises(ConfigError, match="SEATRIAL_INGRESS_CIDR"):
        open_provider(ingress_cidr="").launch(ask())
    assert cloud.alive() == []


def test_the_unknown_is_gone_and_ending_it_is_no_error(provider: TpuProvider) -> None:
    for machine_id in ("nobody-knows-it", f"{ZONE}/nodes/x", f"{ZONE}/queuedResources/x"):
        provider.terminate(machine_id)
        machine = provider.inspect(machine_id)
        assert (machine.state, machine.ended) == (MachineState.TERMINATED, "")


def test_a_guest_that_is_slow_with_its_host_key_is_not_ready(
    provider: TpuProvider, cloud: TpuCloud
) -> None:
    cloud.faults.script("GetGuestAttributes", [tpu_fault("NOT_FOUND")] * 2)
    machine = provider.launch(ask())
    seen = until(provider, machine.id, MachineState.BOOTING)
    assert "host key" in seen.detail or "not to be seen" in seen.detail
    until(provider, machine.id, MachineState.READY)


def test_the_host_key_is_read_once(provider: TpuProvider, cloud: TpuCloud) -> None:
    machine = provider.launch(ask())
    until(provider, machine.id, MachineState.READY)
    before = sum(call.name == "GetGuestAttributes" for call in cloud.calls)
    for _ in range(3):
        assert provider.inspect(machine.id).state is MachineState.READY
    assert sum(call.name == "GetGuestAttributes" for call in cloud.calls) == before


# exactly once


def test_the_same_token_never_makes_a_second_machine(
    provider: TpuProvider, cloud: TpuCloud, machines: NoMachines, api: Mapping[str, str]
) -> None:
    first = provider.launch(ask(options=api))
    assert provider.launch(ask(options=api)).id == first.id
    until(provider, first.id, MachineState.READY)
    again = provider.launch(ask(options=api))
    assert (again.id, again.token) == (first.id, "t-1")
    assert [machine.id for machine in provider.inventory()] == [first.id]
    assert len(machines.booted) == 1


def test_two_tokens_make_two_machines(provider: TpuProvider, api: Mapping[str, str]) -> None:
    made = {provider.launch(ask(token, options=api)).id for token in ("t-1", "t-2")}
    assert {machine.id for machine in provider.inventory()} == made
    assert len(made) == 2


@pytest.mark.parametrize("code", ["UNAVAILABLE", "INTERNAL", "DEADLINE_EXCEEDED"])
def test_a_lost_answer_leaves_one_machine_that_the_token_finds(
    provider: TpuProvider, cloud: TpuCloud, api: Mapping[str, str], code: str
) -> None:
    scripted(cloud, tpu_fault(code, after=True))
    with pytest.raises(ProviderUnavailableError):
        provider.launch(ask(options=api))
    (found,) = provider.inventory()
    assert found.token == "t-1"
    assert provider.launch(ask(options=api)).id == found.id
    assert [machine.id for machine in provider.inventory()] == [found.id]
    until(provider, found.id, MachineState.READY)


def test_a_cut_connection_is_an_unknown_answer(
    provider: TpuProvider, cloud: TpuCloud, api: Mapping[str, str]
) -> None:
    scripted(cloud, Fault(drop=True, after=True))
    with pytest.raises(ProviderUnavailableError):
        provider.launch(ask(options=api))
    until(provider, provider.launch(ask(options=api)).id, MachineState.READY)
    assert len(list(provider.inventory())) == 1


def test_what_is_not_ours_is_not_adopted(
    open_provider: Callable[..., TpuProvider], cloud: TpuCloud, api: Mapping[str, str]
) -> None:
    # Two projects whose long names begin alike have the same id for the same token.
    one = open_provider(project="a-name-of-more-than-20-letters")
    two = open_provider(project="a-name-of-more-than-21-letters")
    made = one.launch(ask(options=api))
    with pytest.raises(ConfigError, match="is not ours") as caught:
        two.launch(ask(options=api))
    assert caught.value.code == "ALREADY_EXISTS"
    assert list(two.inventory()) == []
    assert [machine.id for machine in one.inventory()] == [made.id]


def test_what_was_made_and_is_not_to_be_seen_is_asked_for_again(
    provider: TpuProvider, cloud: TpuCloud
) -> None:
    cloud.lag_s = 30.0
    provider.launch(ask(options=NODE))
    with pytest.raises(ProviderUnavailableError, match="not to be seen yet"):
        provider.launch(ask(options=NODE))


def test_eight_at_once_with_one_token_make_one_machine(
    provider: TpuProvider, machines: NoMachines, api: Mapping[str, str]
) -> None:
    with ThreadPoolExecutor(8) as pool:
        ids = set(pool.map(lambda _: provider.launch(ask(options=api)).id, range(8)))
    (machine_id,) = ids
    until(provider, machine_id, MachineState.READY)
    assert len(machines.booted) == 1
