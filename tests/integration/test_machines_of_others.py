"""A lease that names a machine of somebody else: a backup that was changed may have one."""

from __future__ import annotations

import json
import logging

import pytest

from orchestrator.application.cell.flow_context import require_machine_of
from orchestrator.application.janitor import Janitor
from orchestrator.domain.cell import Cause, CellState
from orchestrator.domain.machine import ForeignMachineError, Machine, MachineState
from orchestrator.domain.outcome import Outcome
from orchestrator.store.audit_recorder import Call
from orchestrator.store.tables import TableBase
from runners import registry
from tests.databases import lease
from tests.integration.fake_world import FakeWorld
from tests.integration.test_backup import died_in_the_middle
from tests.integration.test_janitor import rent

PATIENCE_TICKS = 30


@pytest.fixture
def restored(tmp_path, request):
    """A restored controller, the cell of its run, and a machine of others that its lease names."""
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    here = FakeWorld(tmp_path / "here")
    cell_id, copies = died_in_the_middle(here)
    [row] = [json.loads(line) for line in copies["lease"]]
    columns = list(TableBase.metadata.tables["lease"].columns.keys())
    row[columns.index("machine_id")] = stranger = rent(here, "stranger", **request.param)
    if request.param:  # then its project is all that tells
        row[columns.index("id")] = "stranger"
    copies["lease"] = [json.dumps(row) + "\n"]
    there = FakeWorld(tmp_path / "there", clock=here.clock, cloud=here.cloud)
    call = Call(operation=lambda: "restore", at=here.clock.now(), project="test")
    there.database.stores.backup.restore(((k, iter(v)) for k, v in copies.items()), call)
    yield there, cell_id, stranger
    there.close()


others = pytest.mark.parametrize(
    "restored",
    [{"seatrial-project": "another"}, {}],
    indirect=True,
    ids=["of another project", "of another lease"],
)


@others
def test_a_cell_does_not_end_a_machine_of_others(restored, caplog) -> None:
    there, cell_id, stranger = restored
    ticks = []

    def look(world: FakeWorld) -> None:
        ticks.append(world.clock.now())
        if len(ticks) == PATIENCE_TICKS:
            [lease] = world.database.stores.leases.open()
            assert lease.machine_id == stranger
            states = {one.id: one.state for one in world.cloud.live()}
            assert states[stranger] in (MachineState.BOOTING, MachineState.READY)
            world.cloud.terminate(stranger)  # by its owner

    there.on_tick.append(look)
    with caplog.at_level(logging.WARNING):
        there.engine.run(cell_id)
    assert len(ticks) >= PATIENCE_TICKS
    assert f"{stranger} is not ended: it" in caplog.text
    assert there.database.stores.leases.open() == [], "it is gone"


@others
def test_the_janitor_does_not_end_a_machine_of_others(restored, caplog) -> None:
    there, cell_id, stranger = restored
    stores = there.database.stores
    for state in (CellState.COLLECTING, CellState.RELEASING):
        stores.cells.enter(cell_id, state, at=there.clock.now())
    stores.cells.conclude(cell_id, Cause(Outcome.CANCELLED, "cancelled"), at=there.clock.now())
    janitor = Janitor(
        stores=stores,
        provider=there.world.provider,
        traits={"fake": registry.traits("fake")},
        project="test",
        controller="controller",
        now=there.clock.now,
        settings={},
    )
    with caplog.at_level(logging.WARNING):
        janitor.sweep()
    states = {one.id: one.state for one in there.cloud.live()}
    assert states[stranger] is not MachineState.STOPPING
    assert f"{stranger} is not ended: it" in caplog.text
    assert [one.machine_id for one in stores.leases.open()] == [stranger]


@pytest.mark.parametrize("state", MachineState)
@pytest.mark.parametrize("token", ["", "l-1", "l-2"])
def test_a_machine_without_tags_is_of_a_lease_only_until_it_is_granted(state, token) -> None:
    machine = Machine("m-1", token, state)
    may_be_it = token == "l-1" or state is MachineState.TERMINATED
    if may_be_it or (not token and state is MachineState.REQUESTED):
        require_machine_of(lease("l-1", "a-1"), machine, "test")
        return
    with pytest.raises(ForeignMachineError, match=r"m-1 is not ended: it has .*end it at the"):
        require_machine_of(lease("l-1", "a-1"), machine, "test")
