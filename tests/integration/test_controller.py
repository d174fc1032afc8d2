"""What a controller does beside serving: it starts cells, and takes over from dead ones."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from orchestrator import controller as controllers
from orchestrator.adapters.clock import SystemClock
from orchestrator.controller import GRACE_S, SURE_AFTER, Controller
from orchestrator.store.database import open_database
from orchestrator.store.errors import StoreError
from tests.databases import make_database
from tests.integration.fake_world import FakeWorld

EVERYBODY = -60.0
"""A grace after which everybody is dead."""


class Engine:
    """Writes down what it is asked for."""

    def __init__(self, *executors: str, records: set[str] | None = None) -> None:
        self.said_to_run = records if records is not None else set(executors)
        self.started: list[str] = []
        self.taken: list[str] = []
        self.broken = False

    def launch(self) -> None:
        """Nothing was left."""

    def start(self, cell_id: str) -> None:
        self.started.append(cell_id)
        if self.broken:
            raise RuntimeError("a bug")

    def executors(self) -> set[str]:
        return self.said_to_run

    def take_over(self, executor_id: str) -> list[str]:
        if self.broken:
            raise RuntimeError("a bug")
        if executor_id in self.said_to_run:
            self.taken.append(executor_id)
        self.said_to_run.discard(executor_id)
        return []


@pytest.fixture
def database(tmp_path):
    database = open_database(make_database(tmp_path))
    yield database
    database.close()


def controller(stores, engine: Engine) -> Controller:
    return Controller(
        identity="me",
        stores=stores,
        clock=SystemClock(),
        listeners=[],
        cells=engine,
        until_idle=True,
        ready=lambda: None,
        sweep=lambda: None,
        shared=True,
    )


def test_cells_of_an_executor_that_was_never_heard_of_are_adopted_once(database):
    """As when whoever buried it died before it could take over."""
    records = {"stranger", "me"}
    engines = [Engine(records=records), Engine(records=records)]
    controllers = [controller(database.stores, engine) for engine in engines]
    for look in range(SURE_AFTER + 2):
        for one in controllers:
            database.stores.controllers.beat("me")
            one.adopt()
        if look < SURE_AFTER - 1:
            assert engines[0].taken == engines[1].taken == []
    assert engines[0].taken + engines[1].taken == ["stranger"]
    assert database.stores.controllers.dead(grace_s=GRACE_S) == []


def test_a_controller_that_speaks_again_in_time_keeps_its_cells(database):
    """As when the database was away: nobody could be heard, and nobody had died."""
    engine = Engine("other")
    mine = controller(database.stores, engine)
    for _ in range(SURE_AFTER - 1):
        mine.adopt()
    database.stores.controllers.beat("other")
    for _ in range(SURE_AFTER):
        mine.adopt()
    assert engine.taken == []


def test_looks_that_failed_do_not_add_up(database):
    engine = Engine("other")
    mine = controller(database.stores, engine)
    away = replace(database.stores, controllers=Away())
    for _ in range(SURE_AFTER):
        mine.stores = database.stores
        mine.adopt()
        mine.stores = away
        with pytest.raises(StoreError):
            mine.adopt()
    assert engine.taken == []


def test_a_take_over_that_failed_is_open_to_the_next_one(database):
    engine = Engine("other")
    engine.broken = True
    mine = controller(database.stores, engine)
    for _ in range(SURE_AFTER - 1):
        mine.adopt()
    with pytest.raises(RuntimeError):
        mine.adopt()
    assert database.stores.controllers.dead(grace_s=GRACE_S) == []
    assert database.stores.controllers.dead(grace_s=EVERYBODY) == ["other"]


def test_one_cell_that_cannot_be_started_does_not_keep_the_others(tmp_path):
    here = FakeWorld(tmp_path)
    cells = [*here.launch("one"), *here.launch("two")]
    engine = Engine()
    engine.broken = True
    controller(here.database.stores, engine).pump()
    assert engine.started == cells
    here.close()


def test_a_run_that_nobody_finished_is_told_to_the_engine(tmp_path):
    """Its last cell is done, and the flow that should have said so has ended."""
    here = FakeWorld(tmp_path)
    [cell] = here.launch()
    here.engine.crash_before = 9
    with pytest.raises(BaseException, match="before step 9"):
        here.engine.run(cell)
    assert here.database.stores.cells.unfinished() == ()
    engine = Engine()
    mine = controller(here.database.stores, engine)
    mine.pump()
    assert engine.started == [cell]
    here.engine.run(cell)
    mine.pump()
    assert engine.started == [cell]
    here.close()


def test_a_database_that_is_away_is_no_reason_to_leave(database):
    stores = replace(database.stores, runs=Away())
    assert controller(stores, Engine())._is_live()
    assert not controller(database.stores, Engine())._is_live()


@pytest.mark.parametrize(("until_idle", "last"), [(True, "leave"), (False, "sweep")])
def test_a_controller_that_ends_idle_looks_twice_before_it_leaves(
    database, monkeypatch, until_idle, last
):
    monkeypatch.setattr(controllers, "LAST_LOOK_S", 0.05)
    monkeypatch.setattr(controllers, "IDLE_S", 0.2)
    did = []
    mine = controller(database.stores, Engine())
    mine.until_idle = until_idle
    mine.sweep = lambda: did.append("sweep")
    mine.leave = lambda: did.append("leave")
    mine.deliver = lambda: None if until_idle else mine._stop.set()
    mine.run()
    assert did[-1] == last
    assert did.count("sweep") == (2 if until_idle else 1), "at its start, and before it leaves"


def test_a_background_controller_whose_home_is_wanted_ends_as_soon_as_its_runs_are_finished(
    tmp_path, monkeypatch
):
    """By the signal that `serve` sends."""
    monkeypatch.setattr(controllers, "PUMP_S", 0.05)
    here = FakeWorld(tmp_path)
    [cell] = here.launch()
    did = []
    mine = controller(here.database.stores, Engine())

    def look():
        did.append("look")
        os.kill(os.getpid(), controllers.HURRY)
        if len(did) == 5:
            here.engine.run(cell)

    mine.deliver, mine.leave = look, lambda: did.append("left")
    monkeypatch.setattr(controllers, "DELIVER_S", 0.3)
    mine.run()
    assert did.count("look") >= 5, "not before its run was finished"
    assert did[-1] == "left"
    assert here.database.stores.runs.unfinished() == ()
    here.close()


class Away:
    """A store that cannot be reached."""

    def __getattr__(self, name: str):
        def fail(*args: object, **more: object) -> None:
            raise StoreError("the database is away")

        return fail
