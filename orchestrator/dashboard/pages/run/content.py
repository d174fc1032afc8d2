"""What stands on the page of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from orchestrator.application.describe_run import told_run
from orchestrator.application.rerun_run import Only, is_of_kind
from orchestrator.dashboard import urls
from orchestrator.dashboard.charts import Picture, bar
from orchestrator.dashboard.pages.run import cells, failures, jobs
from orchestrator.dashboard.pages.run.timeline import PHASES
from orchestrator.dashboard.responses import Asked, Format, Page
from orchestrator.dashboard.table import Table, Tally
from orchestrator.domain.cell import CellState, LeaseState, Run, RunState
from orchestrator.domain.outcome import Counts
from orchestrator.domain.run_record import RunRecord
from orchestrator.domain.units import elapsed, usd
from orchestrator.store.runs import RunsAsked

EXPORTS = ("junit", "ctrf", "csv", "json", "intoto")
_NOT_OF_A_RUN = ("platform", "compare")
"""Reports that are of a cell, or of two runs."""
_EVENTS = "cell evidence run report end"
"""Kinds of feed items after which the page has changed; a log that grows changes nothing."""
_KINDS: tuple[tuple[Only, str], ...] = (
    ("failed", "what failed or timed out"),
    ("errored", "what errored"),
    ("missing", "what has missing tests"),
    ("not-run", "what was not run"),
)
LOUD = {"error": "bad", "warning": "warn"}
"""Levels of notices that a person should see, and their tones."""
_NOTICES = 20
_HOUR_S = 3600


@dataclass(frozen=True, slots=True)
class Money:
    """What a run costs, against what it may."""

    spent_usd: Decimal
    limit_usd: Decimal | None
    usd_per_s: Decimal
    """Of the machines that are held now."""

    @property
    def words(self) -> str:
        """``$1.20``."""
        return usd(self.spent_usd)

    @property
    def limit(self) -> str:
        """What stands beside it."""
        if self.limit_usd is None:
            return "no limit: nothing is rented"
        return f"of at most {usd(self.limit_usd)}"

    @property
    def picture(self) -> Picture | None:
        """How much of the limit is gone."""
        if not self.limit_usd:
            return None
        share = min(float(self.spent_usd / self.limit_usd), 1.0)
        return bar([("busy" if share < 0.8 else "warn", share), ("rest", 1 - share)], width=200)


@dataclass(frozen=True, slots=True)
class Said:
    """Something that a person should know about a cell."""

    cell: str
    tone: str
    text: str
    command: str = ""


def run_page(asked: Asked, run: Run, seen: int, *, refused: str = "", chosen: str = "") -> Page:
    """The page, with what was refused if something was.

    Args:
        asked: The request.
        run: The run.
        seen: The number of its newest event, read before all else: nothing is missed after it.
        refused: Why.
        chosen: What was to run again.
    """
    stores = asked.context.stores
    cells, spec = stores.cells.of_run(run.id), stores.runs.spec(run.id)
    record = told_run(stores, run, cells, spec, at=asked.now, whole=False)
    money = Money(record.cost_usd, spec.matrix.limits.max_usd, _usd_per_s(record))
    tables = _tables(record, asked.now, whole=asked.wanted is not Format.HTML)
    facts = {
        "run": record.run,
        "is_over": record.run.state is RunState.FINISHED,
        "tally": Tally(_counts(record)),
        "done": sum(cell.state is CellState.DONE for cell in record.cells),
        "cell_count": len(record.cells),
        "seconds": _seconds(record.run, asked.now),
        "took": elapsed(_seconds(record.run, asked.now)),
        "money": money,
        "tables": {table.id: table for table in tables},
        "said": [*_kept(record), *_simulated(record), *_notices(record)],
        "events": urls.with_query(urls.events_url(run.id), after=str(seen)),
        "event_kinds": _EVENTS,
        "before": _before(asked, run),
        "reports": _reports(asked, run.id),
        "exports": [(name, urls.export_url(run.id, name)) for name in EXPORTS],
        "phase_names": [state.value for state in PHASES],
        "again": _again(record),
        "key": asked.context.new_id(),
        "refused": refused,
        "chosen": chosen,
        "now": asked.now,
    }
    title = f"{run.subject_name} {run.subject_version}"
    return Page(
        template="run.html.j2",
        title=title,
        tables=tables,
        facts=facts,
        data=_data(record, money),
        section=urls.RUNS,
    )


def _tables(record: RunRecord, now: datetime, *, whole: bool) -> Sequence[Table]:
    most = None if whole else failures.SHOWN
    return (
        cells.cell_table(record, now),
        cells.phase_table(record, now),
        cells.attempt_table(record, now),
        jobs.job_table(record, now, most=None if whole else jobs.SHOWN),
        failures.cluster_table(record, most),
        failures.diagnosis_table(record, most),
        failures.known_table(record),
        failures.quarantine_table(record, most),
        cells.machine_table(record),
        cells.decision_table(record),
    )


def _counts(record: RunRecord) -> Counts:
    return sum((cells.shown_counts(cell) for cell in record.cells), Counts())


def _seconds(run: Run, now: datetime) -> float:
    return max(0.0, ((run.finished_at or now) - run.created_at).total_seconds())


def _usd_per_s(record: RunRecord) -> Decimal:
    held = (
        lease.price_usd_per_hour or Decimal(0)
        for cell in record.cells
        for lease in cell.leases
        if lease.state in (LeaseState.HELD, LeaseState.RELEASING) and lease.machine_id
    )
    return sum(held, Decimal(0)) / _HOUR_S


def _kept(record: RunRecord) -> Iterator[Said]:
    for cell in record.cells:
        until = record.kept_until(cell)
        if until is not None:
            text = f"Its machine is kept until {until:%H:%M:%S} UTC; cancel the run to let it go."
            yield Said(cell.id, "warn", text, f"seatrial ssh {record.run.id} {cell.id}")


def _simulated(record: RunRecord) -> Iterator[Said]:
    names = [cell.id for cell in record.cells if cell.simulated]
    if names:
        text = "Simulated: no gate accepts this evidence."
        yield Said(", ".join(names), "warn", text)


def _notices(record: RunRecord) -> Iterator[Said]:
    """What agents want a person to know; the newest of each cell."""
    found = [(cell, one) for cell in record.cells for one in cell.notices if one.level in LOUD]
    for cell, notice in found[-_NOTICES:]:
        job = f"{notice.job}: " if notice.job else ""
        yield Said(cell.id, LOUD[notice.level], job + notice.message)


def _before(asked: Asked, run: Run) -> Run | None:
    """The run that a person would compare this one with: of the same matrix and subject."""
    same = RunsAsked(state=RunState.FINISHED, subject=run.subject_name, matrix=run.matrix_name)
    found, _ = asked.context.stores.runs.page(limit=1, before=run.id, asked=same)
    return found[0] if found else None


def _reports(asked: Asked, run: str) -> Sequence[tuple[str, str]]:
    kinds = [kind for kind in asked.context.report_kinds if kind not in _NOT_OF_A_RUN]
    return [(kind, urls.report_url(run, kind)) for kind in kinds]


def _again(record: RunRecord) -> Sequence[tuple[str, str, int]]:
    """What can run again: (word, what it is, how many jobs)."""
    every = [(cell, job) for cell in record.cells for job in cell.jobs if cell.ingested is None]
    if not every:
        return ()
    counted = [
        (word, title, sum(is_of_kind(cell, job, word) for cell, job in every))
        for word, title in _KINDS
    ]
    return [("", "everything", len(every)), *counted]


def _data(record: RunRecord, money: Money) -> Mapping[str, object]:
    run = record.run
    return {
        "run": run.id,
        "state": run.state,
        "outcome": run.outcome,
        "subject": {"name": run.subject_name, "version": run.subject_version},
        "matrix": run.matrix_name,
        "created_at": run.created_at.isoformat(),
        "finished_at": run.finished_at.isoformat() if run.finished_at else None,
        "counts": Tally(record.counts).plain(),
        "cost_usd": format(record.cost_usd, "f"),
        "max_usd": None if money.limit_usd is None else format(money.limit_usd, "f"),
    }
