"""The durable engine on its real records: what it loses hold of is begun anew."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from orchestrator.adapters import dbos_engine
from orchestrator.adapters.dbos_engine import DbosEngine
from orchestrator.application.ports.engine import NOT_YET, NotServedError

STRANDED_S = 0.5
FULL = "CREATE TRIGGER full BEFORE INSERT ON {0} BEGIN SELECT RAISE(ABORT, 'disk is full'); END"
RECORDS = "operation_outputs"


class Bench:
    """Engines, one after the other, over one file of records."""

    def __init__(self, folder) -> None:
        self.path = folder / "engine.db"
        self.calls: Counter[str] = Counter()
        self.go = threading.Event()
        self.broken = False
        self.is_served = True
        self.engine: DbosEngine | None = None

    def launch(self) -> DbosEngine:
        url = f"sqlite:///{self.path}"
        self.engine = DbosEngine(self.flow, url=url, executor_id="local", stranded_s=STRANDED_S)
        self.engine.launch()
        return self.engine

    async def flow(self, do, cell: str) -> None:
        if not self.is_served:
            self.calls["refused"] += 1
            raise NotServedError(cell)
        await do.once("first", self.count, "first")
        await do.until("wait", lambda: "go" if self.go.is_set() else NOT_YET, every_s=0.02)
        self.calls["beyond"] += 1
        if self.broken:
            raise RuntimeError("a bug")
        await do.once("last", self.count, "last")

    def count(self, name: str) -> str:
        self.calls[name] += 1
        return name

    def sql(self, statement: str) -> list:
        with sqlite3.connect(self.path, timeout=60) as connection:
            rows = connection.execute(statement).fetchall()
        connection.close()
        return rows

    def status(self) -> list[str]:
        return [row[0] for row in self.sql("SELECT status FROM workflow_status")]

    def pump(self, until: Callable[[], object]) -> None:
        """Do as a controller does, until it is so."""
        end = time.monotonic() + 120
        while not until():
            assert time.monotonic() < end, (self.calls, self.status())
            self.engine.start("cell")
            time.sleep(0.05)


@pytest.fixture
def bench(tmp_path):
    bench = Bench(tmp_path)
    bench.launch()
    yield bench
    bench.go.set()
    bench.engine.destroy()


def test_a_flow_is_begun_once_however_often_it_is_started(bench):
    bench.pump(lambda: bench.calls["first"])
    for _ in range(5):
        bench.engine.start("cell")
    time.sleep(2 * STRANDED_S)
    bench.go.set()
    bench.pump(lambda: bench.status() == ["SUCCESS"])
    assert bench.calls == Counter(first=1, beyond=1, last=1)


def test_a_step_that_cannot_be_recorded_ends_the_execution_and_nothing_else(bench):
    """As on a full disk: the flow must not go on, nor handle it as an error of its own."""
    bench.pump(lambda: bench.calls["first"])
    bench.sql(FULL.format(RECORDS))
    bench.go.set()
    time.sleep(0.3)
    assert bench.calls["beyond"] == 0
    assert bench.status() == ["PENDING"]
    bench.sql("DROP TRIGGER full")
    bench.pump(lambda: bench.status() == ["SUCCESS"])
    assert bench.calls["last"] == 1


def test_a_flow_that_died_of_an_error_is_begun_anew_after_a_while(bench):
    bench.broken = True
    bench.go.set()
    bench.pump(lambda: bench.status() == ["ERROR"])
    bench.broken = False
    bench.pump(lambda: bench.status() == ["SUCCESS"])
    assert bench.calls["last"] == 1


def test_a_flow_of_a_project_that_is_not_served_waits_for_a_process_that_serves_it(bench):
    """Nothing is recorded of the execution, and the home's next process resumes it."""
    bench.is_served = False
    bench.pump(lambda: bench.calls["refused"])
    eventually_idle(bench)
    assert bench.status() == ["PENDING"]
    bench.engine.destroy()
    bench.is_served = True
    bench.go.set()
    bench.launch()
    end = time.monotonic() + 120
    while bench.status() != ["SUCCESS"]:
        assert time.monotonic() < end, (bench.calls, bench.status())
        time.sleep(0.05)
    assert bench.calls == Counter(refused=bench.calls["refused"], first=1, beyond=1, last=1)


def eventually_idle(bench):
    """Wait until no flow runs in the process."""
    end = time.monotonic() + 120
    while bench.engine._flows.runs("cell"):
        assert time.monotonic() < end
        time.sleep(0.02)


def test_an_error_of_a_body_is_the_flows_to_handle(tmp_path):
    seen = []

    def fail() -> str:
        raise ValueError("refused")

    async def flow(do, cell: str) -> None:
        try:
            await do.once("fail", fail)
        except ValueError as error:
            seen.append(str(error))

    engine = DbosEngine(flow, url=f"sqlite:///{tmp_path / 'engine.db'}", executor_id="local")
    engine.launch()
    try:
        engine.start("cell")
        end = time.monotonic() + 120
        while not seen and time.monotonic() < end:
            time.sleep(0.02)
    finally:
        engine.destroy()
    assert seen == ["refused"]


def test_records_do_not_grow_with_the_time_that_a_look_takes(bench):
    bench.pump(lambda: bench.calls["first"])

    def rows() -> int:
        tables = bench.sql("SELECT name FROM sqlite_master WHERE type = 'table'")
        return sum(bench.sql(f'SELECT count(*) FROM "{name}"')[0][0] for (name,) in tables)

    before = rows()
    time.sleep(1.0)
    assert rows() == before


def test_executors_are_those_of_flows_at_work(bench):
    assert bench.engine.executors() == set()
    bench.pump(lambda: bench.calls["first"])
    assert bench.engine.executors() == {"local"}


def forgotten(engine, *over: str, days: float, dry: bool = False) -> int:
    before = datetime.now(UTC) + timedelta(days=days)
    return sum(engine.forget(before, lambda cells: {*cells} & {*over}, dry=dry))


def test_records_of_a_flow_are_kept_until_its_cell_is_over(bench):
    bench.pump(lambda: bench.calls["first"])
    assert forgotten(bench.engine, "cell", days=1) == 0, "it is at work"
    bench.go.set()
    bench.pump(lambda: bench.status() == ["SUCCESS"])
    assert forgotten(bench.engine, "cell", days=-1) == 0, "it has just ended"
    assert forgotten(bench.engine, days=1) == 0, "its cell is not over"
    assert forgotten(bench.engine, "cell", days=1, dry=True) == 1
    assert bench.sql(f"SELECT count(*) FROM {RECORDS}") != [(0,)]
    assert forgotten(bench.engine, "cell", days=1) == 1
    assert bench.status() == []
    assert bench.sql(f"SELECT count(*) FROM {RECORDS}") == [(0,)]
    assert forgotten(bench.engine, "cell", days=1) == 0


def test_the_file_of_records_gives_its_pages_back(tmp_path):
    path = tmp_path / "engine.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("CREATE TABLE noise (x)")
        connection.execute("INSERT INTO noise VALUES (randomblob(5000000))")
        connection.execute("DELETE FROM noise")
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
        full = path.stat().st_size
        dbos_engine._shrink(path)
        assert Path(f"{path}-wal").stat().st_size == 0
    assert path.stat().st_size < full / 10


def test_flows_that_are_not_over_do_not_hide_others(bench, monkeypatch):
    monkeypatch.setattr(dbos_engine, "_AT_ONCE", 1)
    bench.go.set()
    for cell in ("cell", "other", "third"):
        bench.engine.start(cell)
    bench.pump(lambda: bench.status() == ["SUCCESS"] * 3)
    assert forgotten(bench.engine, "other", "third", days=1) == 2
    assert bench.sql("SELECT workflow_uuid FROM workflow_status") == [("cell",)]
