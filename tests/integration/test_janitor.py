"""The janitor over a cloud in memory: it ends what nobody owns, and nothing else."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest

from orchestrator.application.sweep_leaks import (
    EXPIRED_GRACE,
    ORPHAN_GRACE,
    SECOND_LOOK,
    Janitor,
    Standing,
)
from orchestrator.domain.cell import LeaseState
from orchestrator.domain.machine import LaunchRequest, Place
from runners import registry
from runners.fake import Fault
from tests.integration.fake_world import FakeWorld


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
    request = LaunchRequest(token, Place("north"), {}, said | tags)
    return here.cloud.launch(request).id


def standings(janitor: Janitor) -> list[Standing]:
    return [sight.standing for sight in janitor.survey(["fake"]).sights]


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
    assert standings(janitor) == [Standing.ORPHAN]


def test_machines_of_a_running_cell_are_nobodys_business(here, janitor):
    seen: list[Standing] = []
    here.on_tick.append(lambda world: seen.extend(standings(janitor)))
    known(here)
    assert seen
    assert set(seen) == {Standing.LEASED}


def test_another_controllers_machine_is_left_alone_until_it_has_expired(here, janitor):
    known(here)
    other = rent(here, "others", **{"seatrial-controller": "another"})
    assert standings(janitor) == [Standing.FOREIGN]
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
    here.cloud.fail("north", Fault.LOST_ANSWER)
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
    while standings(janitor) != [Standing.ORPHAN]:
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
