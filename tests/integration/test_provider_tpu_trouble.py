"""The provider `tpu`: refusals at the call and after it, and everything that lingers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from orchestrator.domain.machine import (
    CapacityError,
    ConfigError,
    CredentialsError,
    Extent,
    MachineState,
    ProviderError,
    ProviderUnavailableError,
    QuotaError,
)
from runners.tpu import TpuProvider
from tests.integration import tpu_world
from tests.integration.tpu_world import ZONE, Skewed, ask, creates, release, scripted, until
from tests.lab.faults import Fault
from tests.lab.google.codes import tpu_fault
from tests.lab.tpu_cloud import TpuCloud

# fixtures
api = tpu_world.api
clock = tpu_world.clock
cloud = tpu_world.cloud
machines = tpu_world.machines
open_provider = tpu_world.open_provider
provider = tpu_world.provider


# refusals


REFUSALS = [
    (tpu_fault("RESOURCE_EXHAUSTED"), QuotaError, Extent.PLACE),
    (
        tpu_fault("RESOURCE_EXHAUSTED", message="Quota limit exceeded in region us-west4."),
        QuotaError,
        Extent.MARKET,
    ),
    (tpu_fault("PERMISSION_DENIED"), CredentialsError, Extent.PROJECT),
    (tpu_fault("UNAUTHENTICATED"), CredentialsError, Extent.PROJECT),
    (tpu_fault("FAILED_PRECONDITION"), CredentialsError, Extent.PROJECT),
    (tpu_fault("NOT_FOUND"), CapacityError, Extent.ZONE),
    (tpu_fault("INVALID_ARGUMENT"), ConfigError, Extent.PLACE),
    (tpu_fault("UNAVAILABLE"), ProviderUnavailableError, Extent.PLACE),
    (tpu_fault("INTERNAL"), ProviderUnavailableError, Extent.PLACE),
    (tpu_fault("DEADLINE_EXCEEDED"), ProviderUnavailableError, Extent.PLACE),
]


@pytest.mark.parametrize(("fault", "kind", "extent"), REFUSALS)
def test_a_refusal_at_the_call_is_asked_once_and_makes_nothing(
    provider: TpuProvider,
    cloud: TpuCloud,
    api: Mapping[str, str],
    fault: Fault,
    kind: type[ProviderError],
    extent: Extent,
) -> None:
    scripted(cloud, fault)
    with pytest.raises(kind, match=ZONE) as caught:
        provider.launch(ask(options=api))
    assert type(caught.value) is kind
    assert caught.value.extent is extent
    assert creates(cloud) == [fault.code]
    assert cloud.alive() == []


def test_a_stockout_at_the_call_is_no_quota(
    provider: TpuProvider, cloud: TpuCloud, api: Mapping[str, str]
) -> None:
    words = "There is no more capacity in the zone"
    scripted(cloud, Fault("RESOURCE_EXHAUSTED", words, status=8))
    with pytest.raises(CapacityError, match="no more capacity"):
        provider.launch(ask(options=api))


@pytest.mark.parametrize(
    ("code", "ended"),
    [
        ("RESOURCE_EXHAUSTED", "capacity"),
        ("FAILED_PRECONDITION", "capacity"),
        ("INVALID_ARGUMENT", "preempted"),
        ("INTERNAL", "failed"),
    ],
)
def test_a_create_that_fails_after_it_was_accepted_is_found_by_inspect(
    provider: TpuProvider, cloud: TpuCloud, api: Mapping[str, str], code: str, ended: str
) -> None:
    fault = tpu_fault(code, in_operation=True)
    cloud.faults.script("CreateNode" if api else "provisioning", [fault])
    machine = provider.launch(ask(options=api))
    seen = until(provider, machine.id, MachineState.STOPPING, MachineState.TERMINATED)
    assert (seen.ended, seen.id) == (ended, machine.id)
    assert fault.message in seen.detail or "node PREEMPTED" in seen.detail
    assert provider.inspect(machine.id).ended == ended
    release(provider, machine.id)
    assert cloud.alive() == []
    assert cloud.faults.unused == 0


def test_a_request_whose_operation_failed_at_once_is_refused_at_once(
    provider: TpuProvider, cloud: TpuCloud
) -> None:
    cloud.refuse("CreateQueuedResource", "RESOURCE_EXHAUSTED", in_operation=True)
    with pytest.raises(CapacityError, match="no more capacity"):
        provider.launch(ask())
    assert cloud.alive() == []


def test_an_operation_that_failed_for_no_known_reason_is_not_asked_for_ever(
    provider: TpuProvider, cloud: TpuCloud
) -> None:
    cloud.refuse("CreateQueuedResource", "INTERNAL", in_operation=True)
    machine = provider.launch(ask())
    seen = provider.inspect(machine.id)
    assert (seen.state, seen.ended) == (MachineState.TERMINATED, "failed")
    assert "INTERNAL" in seen.detail


def test_reads_are_repeated_once_and_no_more(provider: TpuProvider, cloud: TpuCloud) -> None:
    machine = provider.launch(ask())
    until(provider, machine.id, MachineState.READY)
    cloud.faults.script("GetQueuedResource", [tpu_fault("UNAVAILABLE")])
    assert provider.inspect(machine.id).state is MachineState.READY
    cloud.faults.script("GetQueuedResource", [tpu_fault("UNAVAILABLE")] * 2)
    with pytest.raises(ProviderUnavailableError):
        provider.inspect(machine.id)
    assert cloud.faults.unused == 0


def test_a_delete_that_fails_can_be_repeated(
    provider: TpuProvider, cloud: TpuCloud, api: Mapping[str, str]
) -> None:
    machine = provider.launch(ask(options=api))
    until(provider, machine.id, MachineState.READY)
    name = "DeleteNode" if api else "DeleteQueuedResource"
    cloud.faults.script(name, [tpu_fault("UNAVAILABLE")] * 3)
    for _ in range(3):
        with pytest.raises(ProviderUnavailableError):
            provider.terminate(machine.id)
    release(provider, machine.id)
    assert cloud.alive() == []


@pytest.mark.parametrize("code", ["UNAVAILABLE", "INTERNAL"])
def test_a_delete_whose_operation_fails_is_not_taken_for_done(
    provider: TpuProvider, cloud: TpuCloud, api: Mapping[str, str], code: str
) -> None:
    machine = provider.launch(ask(options=api))
    until(provider, machine.id, MachineState.READY)
    name = "DeleteNode" if api else "DeleteQueuedResource"
    cloud.faults.script(name, [tpu_fault("INTERNAL", in_operation=True)])
    provider.terminate(machine.id)
    assert provider.inspect(machine.id).state is MachineState.READY
    cloud.refuse(name, code, after=True)
    with pytest.raises(ProviderUnavailableError):
        provider.terminate(machine.id)
    release(provider, machine.id)
    assert cloud.alive() == []


# what lingers


def test_a_queued_wait_that_expires_is_a_lack_of_capacity_and_is_cleaned_up(
    provider: TpuProvider, cloud: TpuCloud, clock: Skewed
) -> None:
    cloud.dry.add(ZONE)
    machine = provider.launch(ask(options={"wait_minutes": "2"}))
    seen = until(provider, machine.id, MachineState.REQUESTED)
    clock.move(60)
    seen = provider.inspect(machine.id)
    assert (seen.state, seen.kind) == (MachineState.REQUESTED, "queued-resource")
    clock.move(61)
    seen = until(provider, machine.id, MachineState.STOPPING)
    assert seen.ended == "capacity"
    assert [(one.id, one.kind) for one in provider.inventory()] == [(machine.id, "queued-resource")]
    release(provider, machine.id)
    assert cloud.alive() == []


def test_a_preempted_machine_lingers_until_it_is_ended(
    provider: TpuProvider, cloud: TpuCloud, api: Mapping[str, str]
) -> None:
    machine = provider.launch(ask(market="spot", options=api))
    until(provider, machine.id, MachineState.READY)
    cloud.preempt("seatrial-seatrial-t-1", notice_s=0)
    seen = until(provider, machine.id, MachineState.STOPPING)
    assert seen.ended == "preempted"
    assert seen.ended_at is not None, "the API tells no time: the look has one"
    assert [one.id for one in provider.inventory()] == [machine.id]
    assert cloud.alive() != []
    release(provider, machine.id)
    assert cloud.alive() == []


def test_a_waiting_request_is_in_the_inventory_without_a_node(
    provider: TpuProvider, cloud: TpuCloud
) -> None:
    cloud.dry.add(ZONE)
    machine = provider.launch(ask())
    (found,) = provider.inventory()
    assert (found.id, found.kind, found.token) == (machine.id, "queued-resource", "t-1")
    release(provider, machine.id)
    assert cloud.alive() == []


def test_a_node_whose_request_vanished_is_found_and_ended(
    provider: TpuProvider, cloud: TpuCloud
) -> None:
    machine = provider.launch(ask())
    until(provider, machine.id, MachineState.READY)
    cloud.queue.known.clear()
    (orphan,) = provider.inventory()
    assert orphan.id == f"{ZONE}/nodes/seatrial-seatrial-t-1"
    assert orphan.token == "t-1"
    assert provider.inspect(machine.id).state is MachineState.READY  # not gone: half of it is there
    release(provider, machine.id)
    assert cloud.alive() == []


def test_an_orphaned_node_is_ended_by_its_own_id_too(
    provider: TpuProvider, cloud: TpuCloud
) -> None:
    until(provider, provider.launch(ask()).id, MachineState.READY)
    cloud.queue.known.clear()
    (orphan,) = provider.inventory()
    release(provider, orphan.id)
    assert cloud.alive() == []


def test_other_projects_machines_are_not_ours(
    provider: TpuProvider, open_provider: Callable[..., TpuProvider], api: Mapping[str, str]
) -> None:
    theirs = open_provider(project="other").launch(ask("t-9", options=api))
    mine = provider.launch(ask(options=api))
    assert [machine.id for machine in provider.inventory()] == [mine.id]
    assert theirs.id != mine.id


def test_an_inventory_that_is_not_whole_is_an_error(provider: TpuProvider, cloud: TpuCloud) -> None:
    provider.launch(ask())
    for name in ("ListNodes", "ListQueuedResources"):
        cloud.faults.script(name, [tpu_fault("UNAVAILABLE")] * 2)
        with pytest.raises(ProviderUnavailableError, match="all zones"):
            provider.inventory()
    assert len(list(provider.inventory())) == 1


def test_what_cannot_be_seen_yet_is_not_made_twice(
    provider: TpuProvider, cloud: TpuCloud, api: Mapping[str, str]
) -> None:
    cloud.invisible_for_looks = 2
    machine = provider.launch(ask(options=api))
    assert provider.inspect(machine.id).state in (MachineState.TERMINATED, MachineState.REQUESTED)
    until(provider, machine.id, MachineState.READY)
    assert len(list(provider.inventory())) == 1


def test_what_cannot_be_seen_yet_is_not_taken_for_gone(
    provider: TpuProvider, cloud: TpuCloud, clock: Skewed, api: Mapping[str, str]
) -> None:
    cloud.invisible_for_looks, cloud.hides_from_changes = 4, True
    machine = provider.launch(ask(options=api))
    provider.terminate(machine.id)  # not to be found, so nothing is ended
    assert provider.inspect(machine.id).state is MachineState.REQUESTED
    while cloud.alive():
        provider.terminate(machine.id)
    assert provider.inspect(machine.id).state is MachineState.TERMINATED


def test_what_somebody_else_deleted_is_gone_after_a_while(
    provider: TpuProvider, cloud: TpuCloud, clock: Skewed
) -> None:
    machine = provider.launch(ask())
    until(provider, machine.id, MachineState.READY)
    cloud.queue.known.clear()
    cloud.nodes.known.clear()
    clock.move(61)
    seen = provider.inspect(machine.id)
    assert (seen.state, seen.ended) == (MachineState.TERMINATED, "")


def test_a_reason_that_cannot_be_read_leaves_gone_as_it_is(
    provider: TpuProvider, cloud: TpuCloud
) -> None:
    cloud.faults.always("ListOperations", tpu_fault("PERMISSION_DENIED"))
    seen = provider.inspect(f"{ZONE}/nodes/x")
    assert (seen.state, seen.ended) == (MachineState.TERMINATED, "")
    assert "PERMISSION_DENIED" in seen.detail
