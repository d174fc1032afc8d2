"""What benchmarks and browser tests look at is what the product would have written itself."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import pytest
from pydantic import SecretStr
from sqlalchemy import select, text

from benchmarks.dashboard.addresses import MAKERS, routes_of
from benchmarks.dashboard.fill import Filled, fill
from benchmarks.dashboard.sizes import SIZES
from orchestrator.application.context import Context
from orchestrator.application.job_outcomes import judge_jobs
from orchestrator.bootstrap.controller_wiring import Parts, build
from orchestrator.config import Settings
from orchestrator.dashboard.app import create_dashboard
from orchestrator.domain.cell import run_outcome
from orchestrator.domain.money import machine_cost
from orchestrator.domain.outcome import Counts, Outcome, worst
from orchestrator.store.benchmark_rollup import tally
from orchestrator.store.tables import (
    CellRollupRow,
    CellRow,
    JobRollupRow,
    RunRow,
    TestRetryRow,
)

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
COLUMNS = tuple(Counts().as_dict())


@pytest.fixture
def filled(how: str, tmp_path: Path, database_url: str) -> Iterator[tuple[Parts, Filled]]:
    settings = Settings(home=tmp_path, database_url=SecretStr(database_url))
    parts = build(settings, runs_cells=False)
    yield parts, fill(parts, SIZES["small"], now=NOW, hostile=how == "hostile")
    parts.database.close()


def test_the_benchmark_asks_for_every_page() -> None:
    dashboard = create_dashboard(cast(Context, None))
    assert set(routes_of(dashboard)) == set(MAKERS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "database_url"),
    [
        ("plain", "sqlite"),
        pytest.param("hostile", "postgres", marks=pytest.mark.needs_postgres),
    ],
    indirect=["database_url"],
)
def test_a_small_world_is_coherent(filled: tuple[Parts, Filled]) -> None:
    parts, made = filled
    counts_agree(parts)
    costs_and_outcomes_agree(parts)
    everything_can_be_read(parts, made)
    if not parts.database.sessions.is_postgres:
        with parts.database.sessions.read() as session:
            assert session.execute(text("PRAGMA foreign_key_check")).all() == []


def counts_agree(parts: Parts) -> None:
    """Roll-ups are of the rows."""
    with parts.database.sessions.read() as session:
        rolled = {
            (row.cell, row.job): {name: getattr(row, name) for name in COLUMNS}
            for row in session.scalars(select(JobRollupRow))
        }
        cells = {row.cell: row for row in session.scalars(select(CellRollupRow))}
        for cell, row in cells.items():
            counted = {job: Counts.from_tally(tests) for job, tests in tally(session, cell).items()}
            told = {job: counts for (one, job), counts in rolled.items() if one == cell}
            assert told == {job: counts.as_dict() for job, counts in counted.items()}
            total = sum(counted.values(), Counts())
            assert {name: getattr(row, name) for name in COLUMNS} == total.as_dict()
        assert session.scalars(select(TestRetryRow)).first() is not None


def costs_and_outcomes_agree(parts: Parts) -> None:
    """The product, judging and billing the rows itself, comes to the same."""
    stores = parts.database.stores
    with parts.database.sessions.read() as session:
        runs = session.scalars(select(RunRow.id).where(RunRow.matrix_name == "nightly")).all()
        costs = dict(
            session.execute(
                select(CellRow.id, CellRollupRow.cost_usd).join(
                    CellRollupRow, CellRollupRow.cell == CellRow.pk
                )
            ).all()
        )
    seen = set()
    for run_id in runs:
        run, spec, told = stores.runs.get(run_id), stores.runs.spec(run_id), []
        assert run is not None
        leases = stores.leases.of_run(run_id)
        for cell in stores.cells.of_run(run_id):
            plan = stores.cells.plan(cell.id)
            assert cell.outcome is not None
            told.append((cell.outcome, plan.platform.optional))
            seen.add(cell.outcome)
            assert sum(machine_cost(one, NOW) for one in leases[cell.id]) == costs[cell.id]
            jobs = [job.outcome for job in judge_jobs(stores, cell, spec)]
            cause = stores.cells.attempts(cell.id)[-1].cause
            assert cell.outcome is worst([*jobs, cause.outcome] if cause else jobs)
        assert run.outcome is run_outcome(told)
    assert seen >= {Outcome.PASSED, Outcome.FAILED, Outcome.ERRORED, Outcome.NOT_AVAILABLE}


def everything_can_be_read(parts: Parts, made: Filled) -> None:
    """Whatever stands in a document is a value of the domain."""
    stores = parts.database.stores
    newest = made.runs[-1]
    states = [item.data.get("state") for item in stores.run_events.after(newest, 0)]
    assert states.count("done") == 5
    assert "finished" in states
    assert stores.leases.attested(newest)[1]
    assert stores.leases.decisions(newest)
    for cell in stores.cells.of_run(newest):
        assert stores.cells.transitions(cell.id)
        stores.results.tests(cell.id)
        stores.evidence.log(cell.id, after=0, limit=2**30)
    assert len(stores.gates.verdicts(limit=100)) == len(made.left.verdicts) + 1
    assert {one.name for one in stores.schedules.list()} == set(made.left.schedules)
    assert len(stores.known_issues.list()) == len(made.left.issues)
