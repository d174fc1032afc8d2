"""The provider ``gcp``: how machines end, what is left of them, and what the sweep finds."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from google.auth.credentials import AnonymousCredentials
from google.cloud import compute_v1

from orchestrator.domain.machine import (
    ConfigError,
    CredentialsError,
    MachineState,
    PartialInventoryError,
    ProviderUnavailableError,
)
from runners.gcp import GcpProvider
from tests.integration.gcp_lab import RULE, ZONE, Clock, ask, called, provider_of, settled, swept
from tests.lab.compute_cloud import ComputeCloud
from tests.lab.faults import Fault
from tests.lab.machines import NoMachines

SPOT = f"{ZONE}/g2-standard-4/spot"
GET, LIST, DELETE = "instances.get", "instances.aggregatedList", "instances.delete"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def machines() -> NoMachines:
    return NoMachines()


@pytest.fixture
def cloud(clock: Clock, machines: NoMachines) -> Iterator[ComputeCloud]:
    with ComputeCloud(machines=machines, clock=clock) as cloud:
        yield cloud


@pytest.fixture
def provider(cloud: ComputeCloud, clock: Clock) -> Iterator[GcpProvider]:
    provider = provider_of(cloud, clock)
    yield provider
    provider.close()


# ends


def test_a_preempted_machine_says_so_while_it_goes_and_after(
    provider: GcpProvider, cloud: ComputeCloud, clock: Clock
) -> None:
    machine = provider.launch(ask(provider, clock, place=SPOT))
    ready = settled(provider, machine.id, MachineState.READY)
    assert ready.facts["market"] == "spot"
    cloud.preempt("seatrial-t-1", notice_s=30)
    going = provider.inspect(machine.id)
    assert (going.state, going.ended) == (MachineState.STOPPING, "preempted")
    assert going.ended_at is None, "the notice is billed"
    clock.ahead += timedelta(seconds=31)
    gone = settled(provider, machine.id, MachineState.TERMINATED)
    ended, seen = gone.ended_at, clock()
    assert gone.ended == "preempted"
    assert "compute.instances.preempted" in gone.detail
    provider.terminate(machine.id)
    clock.ahead += timedelta(seconds=300)
    later = provider.inspect(machine.id)
    assert (later.ended, later.ended_at) == ("preempted", ended)
    assert ended is not None
    assert ended <= seen


def test_a_machine_that_is_ended_while_it_is_taken_away_was_preempted(
    provider: GcpProvider, cloud: ComputeCloud, clock: Clock
) -> None:
    machine = provider.launch(ask(provider, clock, place=SPOT))
    settled(provider, machine.id, MachineState.READY)
    cloud.preempt("seatrial-t-1", notice_s=30)
    provider.terminate(machine.id)  # our own delete is the newer operation
    clock.ahead += timedelta(seconds=31)
    assert settled(provider, machine.id, MachineState.TERMINATED).ended == "preempted"


def test_the_run_duration_ends_it_without_anybody(
    provider: GcpProvider, cloud: ComputeCloud, clock: Clock
) -> None:
    machine = provider.launch(ask(provider, clock, minutes=30))
    settled(provider, machine.id, MachineState.READY)
    clock.ahead += timedelta(minutes=30, seconds=1)
    gone = settled(provider, machine.id, MachineState.TERMINATED)
    assert gone.ended == "deadline"
    assert [kind for kind, _ in cloud.alive()] == ["firewall", "firewall"]


@pytest.mark.parametrize(("after", "ended"), [(10, "failed"), (30.5, "deadline")])
def test_a_machine_that_powered_itself_off_is_on_its_way_out_until_it_is_deleted(
    provider: GcpProvider,
    cloud: ComputeCloud,
    clock: Clock,
    machines: NoMachines,
    after: float,
    ended: str,
) -> None:
    machine = provider.launch(ask(provider, clock, minutes=30.1))  # so much, in whole minutes: 31
    number = settled(provider, machine.id, MachineState.READY).facts["instance_id"]
    clock.ahead += timedelta(minutes=after)
    machines.end(number)
    off = settled(provider, machine.id, MachineState.STOPPING)
    assert off.ended == ended
    assert machine.id in [m.id for m in provider.inventory()]  # its disk still costs
    provider.terminate(machine.id)
    settled(provider, machine.id, MachineState.TERMINATED)
    swept(provider, cloud)


def test_a_machine_that_dies_before_it_runs(
    provider: GcpProvider, cloud: ComputeCloud, clock: Clock
) -> None:
    cloud.die_in_staging("compute.instances.hostError")
    machine = provider.launch(ask(provider, clock))
    assert settled(provider, machine.id, MachineState.TERMINATED).ended == "failed"


def test_a_launch_that_is_called_back_has_no_fault_to_tell(
    provider: GcpProvider, cloud: ComputeCloud, clock: Clock
) -> None:
    cloud.fleet.operation_s = 3600
    machine = provider.launch(ask(provider, clock))
    assert provider.inspect(machine.id).state is MachineState.REQUESTED
    provider.terminate(machine.id)
    gone = provider.inspect(machine.id)
    assert (gone.state, gone.ended) == (MachineState.TERMINATED, "")


def test_an_end_that_fails_is_told_and_can_be_asked_for_again(
    provider: GcpProvider, cloud: ComputeCloud, clock: Clock
) -> None:
    machine = provider.launch(ask(provider, clock))
    settled(provider, machine.id, MachineState.READY)
    cloud.refuse(DELETE, "backendError", "rateLimitExceeded", "resourceNotReady")
    cloud.refuse(DELETE, "INTERNAL_ERROR")  # accepted, and it fails afterwards
    for _ in range(3):
        with pytest.raises(ProviderUnavailableError, match="deleting"):
            provider.terminate(machine.id)
    provider.terminate(machine.id)
    assert provider.inspect(machine.id).state is MachineState.READY
    provider.terminate(machine.id)
    settled(provider, machine.id, MachineState.TERMINATED)


# what looking does when the cloud does not answer


def test_a_look_is_tried_twice_and_no_more(
    provider: GcpProvider, cloud: ComputeCloud, clock: Clock
) -> None:
    machine = provider.launch(ask(provider, clock))
    settled(provider, machine.id, MachineState.READY)
    before = called(cloud, GET)
    cloud.refuse(GET, "backendError")
    assert provider.inspect(machine.id).state is MachineState.READY
    assert called(cloud, GET) == before + 2
    cloud.refuse(GET, "backendError", "badGateway")
    with pytest.raises(ProviderUnavailableError, match="badGateway"):
        provider.inspect(machine.id)
    cloud.refuse(GET, "rateLimitExceeded")
    with pytest.raises(ProviderUnavailableError, match="rateLimitExceeded"):
        provider.inspect(machine.id)  # asking at once again makes it worse
    assert cloud.faults.unused == 0


def test_a_refused_look_is_no_end(provider: GcpProvider, cloud: ComputeCloud, clock: Clock) -> None:
    machine = provider.launch(ask(provider, clock))
    cloud.refuse(GET, "forbidden")
    with pytest.raises(CredentialsError, match="roles/compute"):
        provider.inspect(machine.id)


# inventory


def insert_disk_left_behind(cloud: ComputeCloud, provider: GcpProvider, clock: Clock) -> None:
    """A machine whose disk was made to stay, by an older hand than ours; then deleted."""
    machine = provider.launch(ask(provider, clock, token="left"))
    settled(provider, machine.id, MachineState.READY)
    (disk,) = cloud._state.disks.known.values()
    object.__setattr__(disk.order, "auto_delete", False)
    provider.terminate(machine.id)
    settled(provider, machine.id, MachineState.TERMINATED)


def test_a_disk_left_behind_is_listed_and_deleted(
    provider: GcpProvider, cloud: ComputeCloud, clock: Clock
) -> None:
    insert_disk_left_behind(cloud, provider, clock)
    (disk,) = [m for m in provider.inventory() if m.kind == "disk"]
    assert (disk.id, disk.token) == (f"{ZONE}/disks/seatrial-left", "left")
    assert disk.tags["seatrial-project"] == "seatrial"
    assert provider.inspect(disk.id).state is MachineState.READY
    provider.terminate(disk.id)
    assert provider.inspect(disk.id).state is MachineState.TERMINATED
    assert not [m for m in provider.inventory() if m.kind == "disk"]


def test_a_disk_in_use_goes_with_its_machine(
    provider: GcpProvider, cloud: ComputeCloud, clock: Clock
) -> None:
    machine = provider.launch(ask(provider, clock))
    settled(provider, machine.id, MachineState.READY)
    assert sorted(m.kind for m in provider.inventory()) == ["firewall", "firewall", "machine"]
    with pytest.raises(ProviderUnavailableError, match="already being used"):
        provider.terminate(f"{ZONE}/disks/seatrial-t-1")


def test_a_reserved_address_of_the_project_is_listed_and_released(
    provider: GcpProvider, cloud: ComputeCloud
) -> None:
    client = compute_v1.AddressesClient(
        credentials=AnonymousCredentials(), client_options={"api_endpoint": cloud.endpoint_url}
    )
    address = compute_v1.Address(name="ours", labels={"seatrial-project": "seatrial"})
    client.insert_unary(project="lab", region="us-central1", address_resource=address)
    client.transport.close()
    (found,) = provider.inventory()
    assert (found.kind, found.id) == ("address", "us-central1/addresses/ours")
    assert provider.inspect(found.id).state is MachineState.READY
    swept(provider, cloud)
    assert provider.inspect(found.id).state is MachineState.TERMINATED


def test_the_rules_are_made_once_and_swept(
    provider: GcpProvider, cloud: ComputeCloud, clock: Clock
) -> None:
    for token in ("t-1", "t-2"):
        place = SPOT if token == "t-2" else f"{ZONE}/g2-standard-4/on-demand"
        provider.launch(ask(provider, clock, token=token, place=place))
    assert called(cloud, RULE) == 2
    allow, deny = sorted(cloud._state.network.made_firewalls())
    rules = cloud._state.network.firewalls
    assert deny == f"{allow}-deny"
    assert rules[allow]["sourceRanges"] == ["203.0.113.7/32"]
    assert rules[allow]["allowed"] == [{"IPProtocol": "tcp", "ports": ["22"]}]
    assert rules[deny]["denied"] == [{"IPProtocol": "all"}]
    assert rules[allow]["priority"] < rules[deny]["priority"] < 1000
    assert {tuple(rules[each]["targetTags"]) for each in (allow, deny)} == {("seatrial-seatrial",)}
    listed = [m for m in provider.inventory() if m.kind == "firewall"]
    assert [m.tags["seatrial-shared"] for m in listed] == ["true", "true"]
    swept(provider, cloud)
    provider.launch(ask(provider, clock, token="t-3"))
    assert called(cloud, RULE) == 4  # missing again, made again


def test_a_rule_that_somebody_else_makes_at_the_same_time_is_ours_too(
    provider: GcpProvider, cloud: ComputeCloud, clock: Clock
) -> None:
    cloud.refuse(RULE, "alreadyExists", "alreadyExists")
    provider.launch(ask(provider, clock))


def test_a_rule_that_cannot_be_made_stops_the_launch(
    provider: GcpProvider, cloud: ComputeCloud, clock: Clock
) -> None:
    cloud.refuse(RULE, "forbidden", "CONDITION_NOT_MET")
    with pytest.raises(CredentialsError, match="firewall rule"):
        provider.launch(ask(provider, clock))
    with pytest.raises(ConfigError, match="organisation policy"):
        provider.launch(ask(provider, clock))
    assert called(cloud, "instances.insert") == 0


def test_a_rule_that_fails_after_the_answer_stops_the_launch(
    provider: GcpProvider, cloud: ComputeCloud, clock: Clock
) -> None:
    cloud.operations.change_s = 0.3
    cloud.refuse(RULE, "RESOURCE_NOT_READY")
    with pytest.raises(ProviderUnavailableError, match=r"firewall rule .*RESOURCE_NOT_READY"):
        provider.launch(ask(provider, clock))
    assert called(cloud, "instances.insert") == 0
    provider.launch(ask(provider, clock))
    assert len(cloud.network.made_firewalls()) == 2


def test_the_inventory_reads_every_page_and_nobody_elses(
    provider: GcpProvider, cloud: ComputeCloud, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud.quotas.set("PREEMPTIBLE_NVIDIA_L4_GPUS", 9)
    for name, limit in (("GPUS_ALL_REGIONS", 9), ("CPUS", 99), ("CPUS_ALL_REGIONS", 99)):
        cloud.quotas.set(name, limit)
    cloud.quotas.set("SSD_TOTAL_GB", 9000)
    for number in range(5):
        provider.launch(ask(provider, clock, token=f"t-{number}", place=SPOT))
    stranger = provider_of(cloud, clock, project="other")
    assert [m for m in stranger.inventory() if m.kind == "machine"] == []
    stranger.close()
    # Two on a page: the server decides, whatever the client would take.
    page = compute_v1.AggregatedListInstancesRequest
    monkeypatch.setattr(
        "google.cloud.compute_v1.AggregatedListInstancesRequest",
        lambda **given: page(max_results=2, **given),
    )
    before = called(cloud, LIST)
    found = [m for m in provider.inventory() if m.kind == "machine"]
    assert sorted(m.token for m in found) == [f"t-{number}" for number in range(5)]
    assert called(cloud, LIST) == before + 3


@pytest.mark.parametrize(
    "name", [LIST, "disks.aggregatedList", "addresses.aggregatedList", "firewalls.list"]
)
def test_an_inventory_that_is_not_complete_is_none(
    provider: GcpProvider, cloud: ComputeCloud, name: str
) -> None:
    cloud.faults.script(name, [Fault(drop=True), Fault("backendError", "Backend Error", 503)])
    with pytest.raises(ProviderUnavailableError, match="listing our"):
        list(provider.inventory())


@pytest.mark.parametrize(
    "name", [LIST, "disks.aggregatedList", "addresses.aggregatedList", "firewalls.list"]
)
def test_a_project_that_is_not_there_is_the_settings_fault(
    provider: GcpProvider, cloud: ComputeCloud, name: str
) -> None:
    cloud.faults.script(name, [Fault("notFound", "The resource 'projects/lab' was not found", 404)])
    with pytest.raises(ConfigError, match="projects/lab"):
        list(provider.inventory())


def test_a_zone_that_does_not_answer_makes_the_inventory_incomplete(
    provider: GcpProvider, cloud: ComputeCloud, clock: Clock
) -> None:
    provider.launch(ask(provider, clock))
    cloud.gaps.always.add(ZONE)
    with pytest.raises(
        PartialInventoryError, match=f"in {ZONE}: listing our .*unreachable"
    ) as caught:
        list(provider.inventory())
    assert not [m for m in caught.value.machines if m.kind == "machine"]
    cloud.gaps.always.clear()
    (machine,) = [m for m in provider.inventory() if m.kind == "machine"]
    cloud.gaps.always.add("europe-west4-c")
    with pytest.raises(PartialInventoryError) as caught:
        provider.inventory()
    assert machine in caught.value.machines
