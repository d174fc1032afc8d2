"""The janitor over a cloud in memory: it ends what nobody owns, and nothing else."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from decimal import Decimal

import pytest

from orchestrator.application.janitor import (
    EXPIRED_GRACE,
    ORPHAN_GRACE,
    PARTING_LOOK,
    SECOND_LOOK,
    Janitor,
)
from orchestrator.domain.cell import LeaseState
from orchestrator.domain.inventory import Ownership
from orchestrator.domain.machine import (
    LaunchRequest,
    Machine,
    MachineState,
    PartialInventoryError,
    Place,
)
from orchestrator.store.stores import Stores
from runners import registry
from runners.fake import LaunchFault
from tests.databases import attempt, create, lease
from tests.integration.fake_world import FakeWorld
from tests.platforms import as_platform

RULE = Machine(
    id="rule",
    token="",
    state=MachineState.READY,
    kind="firewall",
    tags={"seatrial-project": "test", "seatrial-shared": "true"},
)


@pytest.fixture
def here(tmp_path):
    world = FakeWorld(tmp_path)
    yield world
    world.close()


@pytest.fixture
def janitor(here) -> Janitor:
    return Janitor(
        stores=here.database.stores,
        provider=here.world.provider,
        traits={"fake": registry.traits("fake"), "local": registry.traits("local")},
        project="test",
        controller="controller",
        now=here.clock.now,
        settings={},
    )


def rent(here: FakeWorld, token: str, **tags: str) -> str:
    """A machine that no ledger of ours knows."""
    ends = here.clock.now() + timedelta(hours=1)
    said = {
        "seatrial-project": "test",
        "seatrial-controller": "controller",
        "seatrial-token": token,
        "seatrial-expires-at": str(int(ends.timestamp())),
    }
    request = LaunchRequest(token, Place("north"), as_platform({}), said | tags)
    return here.cloud.launch(request).id


def standings(janitor: Janitor) -> list[Ownership]:
    return [sight.ownership for sight in janitor.take_inventory(["fake"]).resources]


def sweep_after(here: FakeWorld, janitor: Janitor, wait: timedelta) -> list[str]:
    here.clock.step(wait.total_seconds())
    return [sight.machine.id for sight in janitor.sweep()]


def known(here: FakeWorld) -> None:
    """The ledger knows the provider."""
    for cell_id in here.launch("earlier"):
        here.engine.run(cell_id)


def test_nothing_is_ended_at_first_sight(here, janitor):
    known(here)
    orphan = rent(here, "nobodys")
    assert sweep_after(here, janitor, timedelta(0)) == []
    assert sweep_after(here, janitor, ORPHAN_GRACE - timedelta(seconds=1)) == []
    assert sweep_after(here, janitor, timedelta(seconds=1)) == [orphan]
    here.cloud.inspect(orphan)
    assert here.cloud.live() == ()


def test_an_orphan_that_finds_its_owner_meanwhile_is_forgotten(here, janitor):
    known(here)
    rent(here, "nobodys")
    janitor.sweep()
    here.cloud.fail_verb("inventory", times=1)
    assert sweep_after(here, janitor, ORPHAN_GRACE) == []  # nothing was seen: nothing is ended
    assert standings(janitor) == [Ownership.ORPHAN]


def test_machines_of_a_running_cell_are_nobodys_business(here, janitor):
    seen: list[Ownership] = []
    here.on_tick.append(lambda world: seen.extend(standings(janitor)))
    known(here)
    assert seen
    assert set(seen) == {Ownership.LEASED}


def test_another_controllers_machine_is_left_alone_until_it_has_expired(here, janitor):
    known(here)
    other = rent(here, "others", **{"seatrial-controller": "another"})
    assert standings(janitor) == [Ownership.FOREIGN]
    assert sweep_after(here, janitor, ORPHAN_GRACE * 2) == []
    assert sweep_after(here, janitor, timedelta(hours=1) - ORPHAN_GRACE * 2) == []
    assert sweep_after(here, janitor, EXPIRED_GRACE) == []
    assert sweep_after(here, janitor, SECOND_LOOK) == [other]


def test_another_projects_machine_is_never_touched(here, janitor):
    known(here)
    rent(here, "strangers", **{"seatrial-project": "elsewhere"})
    assert standings(janitor) == []
    assert sweep_after(here, janitor, timedelta(days=30)) == []
    assert len(here.cloud.live()) == 1


def test_a_machine_that_was_ruled_out_and_turned_up_is_ended_and_paid_for(here, janitor):
    here.cloud.fail("north", LaunchFault.LOST_ANSWER)
    here.cloud.hidden_looks = 200
    here.world.timings.ready_s.clear()
    cells = here.launch()
    here.on_tick.append(
        lambda world: world.world.stores.runs.request_cancel("run", at=world.clock.now())
    )
    for cell_id in cells:
        here.engine.run(cell_id)
    (lease,) = here.database.stores.leases.of_run("run")["run-0"]
    assert (lease.state, lease.refusal, lease.cost_usd) == (LeaseState.GONE, "never made", 0)
    (machine,) = here.cloud.live()
    here.cloud.hidden_looks = 0
    while standings(janitor) != [Ownership.ORPHAN]:
        pass
    janitor.sweep()
    assert sweep_after(here, janitor, ORPHAN_GRACE) == [machine.id]
    assert here.database.stores.leases.get(lease.id).state is LeaseState.RELEASING
    here.cloud.inspect(machine.id)
    janitor.sweep()
    settled = here.database.stores.leases.get(lease.id)
    assert settled.state is LeaseState.GONE
    assert lease.launched_at is not None
    hours = Decimal((here.clock.now() - lease.launched_at).total_seconds()) / 3600
    assert settled.cost_usd == pytest.approx(hours * Decimal("0.5"), abs=Decimal("0.01"))


@dataclass
class Ruled:
    """A provider of which only the rule for its machines is left."""

    once_listed: Callable[[], None] = lambda: None
    """Called when its list is made, before the janitor has it."""
    ended: list[str] = field(default_factory=list)

    def inventory(self) -> tuple[Machine, ...]:
        self.once_listed()
        return (RULE,)

    def terminate(self, machine_id: str) -> None:
        self.ended.append(machine_id)


@pytest.fixture
def ruled() -> Ruled:
    return Ruled()


@pytest.fixture
def sweeper(janitor: Janitor, here: FakeWorld, ruled: Ruled) -> Janitor:
    known(here)
    found = replace(janitor, provider=lambda _: ruled)
    found.sweep()
    here.clock.step(ORPHAN_GRACE.total_seconds())
    return found


def test_a_rule_may_serve_a_machine_that_could_not_be_listed(sweeper, here, ruled):
    rule = replace(RULE, id="group", facts={"region": "north"})

    def partial_list() -> None:
        raise PartialInventoryError((RULE, rule), {"east": "why"})

    ruled.once_listed = partial_list
    assert [sight.ownership for sight in sweeper.take_inventory(["fake"]).resources] == [
        Ownership.SHARED,
        Ownership.IDLE,
    ]
    here.clock.step(ORPHAN_GRACE.total_seconds())
    sweeper.sweep()
    assert ruled.ended == ["group"]
    ruled.once_listed = lambda: None
    sweeper.sweep()
    assert ruled.ended == ["group", "rule"]


def reserve(stores: Stores, lease_id: str, provider: str) -> None:
    """What a cell writes down before it makes anything."""
    (cell,) = create(stores, lease_id, platforms=1)
    row = replace(lease(lease_id, attempt(stores, cell)), provider=provider)
    stores.leases.reserve(row, run_id=lease_id, exclusive=False)


def test_rules_that_served_machines_of_which_none_is_left_are_ended(sweeper, here, ruled):
    reserve(here.database.stores, "elsewhere", "another cloud")
    assert [sight.ownership for sight in sweeper.sweep()] == [Ownership.IDLE]
    assert ruled.ended == ["rule"]


def test_rules_are_left_to_a_cell_that_launched_after_they_were_listed(
    sweeper, here, ruled, caplog
):
    ruled.once_listed = lambda: reserve(here.database.stores, "new", "fake")
    with caplog.at_level(logging.INFO, logger="orchestrator.application.janitor"):
        assert sweeper.sweep() == []
    assert ruled.ended == []
    assert "firewall rule is left: lease new of fake is open" in caplog.text
    ruled.once_listed = lambda: None
    here.database.stores.leases.gone("new", at=here.clock.now(), cost_usd=Decimal(0))
    assert [sight.machine.id for sight in sweeper.sweep()] == ["rule"]


def test_a_controller_that_leaves_ends_what_two_looks_found_idle(janitor, here, ruled):
    """Nobody may look later: a rule of each run would stay in the account."""
    known(here)
    leaving = replace(janitor, provider=lambda _: ruled)
    assert leaving.sweep(is_leaving=True) == []
    here.clock.step(PARTING_LOOK.total_seconds())
    assert leaving.sweep() == []
    reserve(here.database.stores, "new", "fake")
    assert leaving.sweep(is_leaving=True) == []
    here.database.stores.leases.gone("new", at=here.clock.now(), cost_usd=Decimal(0))
    assert [sight.machine.id for sight in leaving.sweep(is_leaving=True)] == ["rule"]


def test_a_controller_that_leaves_lets_the_machines_of_others_and_their_rules_be(janitor, here):
    known(here)
    orphan = rent(here, "nobodys")
    janitor.sweep()
    here.clock.step(PARTING_LOOK.total_seconds())
    assert janitor.sweep(is_leaving=True) == []
    assert orphan in {machine.id for machine in here.cloud.live()}


# regions that cannot be read


class Denied:
    """A provider of which one region cannot be read."""

    def __init__(self, inner, region: str) -> None:
        self._inner, self._region = inner, region

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def inventory(self):
        raise PartialInventoryError(tuple(self._inner.inventory()), {self._region: "why"})


def test_a_denied_region_that_no_lease_was_ever_in_does_not_stop_the_sweep(here, janitor, caplog):
    known(here)
    orphan = rent(here, "nobodys")
    janitor = replace(janitor, provider=lambda name: Denied(here.world.provider(name), "east"))
    caplog.set_level(logging.WARNING)
    assert janitor.take_inventory(["fake"]).unread == {}
    janitor.sweep()
    assert sweep_after(here, janitor, ORPHAN_GRACE) == [orphan]
    assert sum("east is not swept" in one.message for one in caplog.records) == 1, "said once"


def test_a_region_that_a_lease_was_in_is_told_and_the_others_are_swept(here, janitor):
    known(here)
    orphan = rent(here, "nobodys")
    janitor = replace(janitor, provider=lambda name: Denied(here.world.provider(name), "north"))
    told = {"fake": "nothing is known of what is in north: why"}
    assert janitor.take_inventory(["fake"]).unread == told
    assert sweep_after(here, janitor, ORPHAN_GRACE) == [orphan]
    assert janitor.looks.all()["fake"].unread == told["fake"]


def test_what_could_not_be_read_once_is_no_first_sighting_the_next_time(here, janitor):
    known(here)
    orphan = rent(here, "nobodys")
    janitor.sweep()
    here.clock.step(ORPHAN_GRACE.total_seconds())

    class Silent(Denied):
        def inventory(self):
            raise PartialInventoryError((), {"east": "why"})

    silent = replace(janitor, provider=lambda name: Silent(here.world.provider(name), "east"))
    assert silent.sweep() == []
    assert [sight.machine.id for sight in janitor.sweep()] == [orphan]
