"""Runs that are not as others are: one again, one from elsewhere, one on earlier evidence."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from xml.sax.saxutils import quoteattr

from sqlalchemy import select

from benchmarks.dashboard.fill import Filled
from benchmarks.dashboard.people import Hand
from benchmarks.dashboard.plans import MACHINES, MANIFEST, SUBJECT, nightly
from benchmarks.dashboard.words import harmful
from orchestrator.adapters.clock import new_id
from orchestrator.application.ingest_artifacts import IngestOrder, ingest_artifacts
from orchestrator.bootstrap.controller_wiring import Parts
from orchestrator.domain.cell import Cause, CellState, Run, RunSpec
from orchestrator.domain.matrix import expand
from orchestrator.domain.outcome import Outcome
from orchestrator.store.tables import CellReuseRow, CellRow
from tests.databases import Agent

_JUNIT = """\
<?xml version="1.0" encoding="utf-8"?>
<testsuites><testsuite name="elsewhere" tests="3" failures="1" skipped="1" time="4.2">
  <testcase classname="tests.test_port" name="test_opens" time="1.5"/>
  <testcase classname="tests.test_port" name={name} time="2.0">
    <failure message={message}>port.py:7: ValueError</failure>
  </testcase>
  <testcase classname="tests.test_port" name="test_closes" time="0.7">
    <skipped message={reason}/>
  </testcase>
</testsuite></testsuites>
"""


@dataclass(frozen=True)
class Odd:
    """They, by their ids."""

    rerun: str
    """One job of an earlier night again, which passed."""
    ingested: str
    """Somebody handed a JUnit file in."""
    reusing: str
    """A run whose only cell stands on earlier evidence."""
    cancelled: str
    orphan: str
    """A machine that nobody owns."""


def add_oddities(parts: Parts, filled: Filled, now: datetime, *, hostile: bool) -> Odd:
    """All of them, each later than the newest night."""
    odd = _Oddities(parts, filled, now, hostile)
    orphan = f"us-east-1/i-0dead{harmful(2) if hostile else 'beef'}"
    parts.database.stores.orphans.see("aws", [orphan], at=now - timedelta(days=3))
    return Odd(odd.rerun(), odd.ingested(), odd.reusing(), odd.cancelled(), orphan)


@dataclass
class _Oddities:
    parts: Parts
    filled: Filled
    now: datetime
    hostile: bool

    def rerun(self) -> str:
        """Of one job of a night before."""
        old = self.filled.runs[-2]
        run_id, cell_id = self._launch("2.1.0.dev1", 3, rerun_of=old)
        self._pass(run_id, cell_id, 3)
        return run_id

    def ingested(self) -> str:
        """From a CI that is not ours."""
        text = harmful(0) if self.hostile else "refused"
        body = _JUNIT.format(
            name=quoteattr(f"test_{text}"), message=quoteattr(text), reason=quoteattr(text)
        )
        path = self.parts.context.scratch / "junit.xml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(body, encoding="utf-8")
        context = replace(self.parts.context, clock=Hand(self.now - timedelta(hours=2)))
        order = IngestOrder(
            body=path, name="junit.xml", platform="their-ci", subject=f"{SUBJECT}@2.1.0.dev1"
        )
        return ingest_artifacts(context, order).run_id

    def reusing(self) -> str:
        """Nothing that the evidence depends on has changed."""
        run_id, cell_id = self._launch("2.1.0.dev1", 3)
        stores, at = self.parts.database.stores, self.now - timedelta(minutes=50)
        source = next(
            cell
            for cell in stores.cells.of_run(self.filled.runs[-1])
            if cell.name == "aws-graviton"
        )
        with self.parts.database.sessions.write() as session:
            numbers = dict(session.execute(select(CellRow.id, CellRow.pk)).all())
            for job in stores.cells.plan(cell_id).jobs:
                session.add(
                    CellReuseRow(
                        cell=numbers[cell_id],
                        job=job,
                        source=numbers[source.id],
                        produced_at=source.entered_at,
                        reason="nothing that it depends on has changed",
                        decided_at=at,
                    )
                )
        stores.cells.conclude(cell_id, Cause(Outcome.PASSED, ""), at=at)
        assert stores.runs.finish(run_id, Outcome.PASSED, at=at)
        return run_id

    def cancelled(self) -> str:
        """Somebody thought better of it."""
        run_id, cell_id = self._launch("2.1.0.dev1", 3)
        stores, at = self.parts.database.stores, self.now - timedelta(minutes=40)
        stores.runs.request_cancel(run_id, at=at)
        stores.cells.conclude(cell_id, Cause(Outcome.CANCELLED, "cancelled"), at=at)
        assert stores.runs.finish(run_id, Outcome.CANCELLED, at=at)
        return run_id

    def _launch(self, version: str, machine: int, rerun_of: str | None = None) -> tuple[str, str]:
        """A run of one platform: its id, and its cell's."""
        matrix = nightly(version, MACHINES[machine : machine + 1])
        matrix = replace(matrix, limits=replace(matrix.limits, max_usd=Decimal(2)))
        at = self.now - timedelta(hours=1)
        run = Run(new_id(), "nightly", SUBJECT, version, self.filled.payload, at, rerun_of=rerun_of)
        [plan] = expand(matrix, MANIFEST)
        only = {plan.id: plan.jobs[:1]} if rerun_of else None
        plan = replace(plan, jobs=plan.jobs[:1]) if rerun_of else plan
        cells = [(f"{run.id}-0", plan)]
        spec = RunSpec(matrix, MANIFEST, only=only)
        self.parts.database.stores.runs.create(run, spec, cells, key=None)
        return run.id, cells[0][0]

    def _pass(self, run_id: str, cell_id: str, tests: int) -> None:
        stores, at = self.parts.database.stores, self.now - timedelta(minutes=55)
        assert stores.cells.admit(cell_id, f"{cell_id}-1", max_parallel=1, at=at)
        for state in (CellState.BOOTING, CellState.PREPARING, CellState.RUNNING):
            stores.cells.enter(cell_id, state, at=at)
        agent = Agent(stores, f"{cell_id}-1")
        names = [nodeid for _, nodeid in self.filled.flaky[:tests]]
        agent.send(
            agent.line("phase", "unit", name="started"),
            agent.manifest(*names),
            *(agent.test(name) for name in names),
            agent.line("phase", "unit", name="finished", exit_code=0, duration_s=2.0),
        )
        for state in (CellState.COLLECTING, CellState.RELEASING):
            stores.cells.enter(cell_id, state, at=at + timedelta(minutes=3))
        stores.cells.conclude(cell_id, Cause(Outcome.PASSED, ""), at=at + timedelta(minutes=3))
        assert stores.runs.finish(run_id, Outcome.PASSED, at=at + timedelta(minutes=3))
