"""The jobs of a run: what did not pass first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from orchestrator.dashboard import urls
from orchestrator.dashboard.table import Badge, Column, Row, Several, Span, Table, Tally, Text
from orchestrator.domain.cell import CellState, Run
from orchestrator.domain.outcome import Counts, Outcome
from orchestrator.domain.run_record import CellRecord, JobRecord, RunRecord
from orchestrator.domain.units import plural

SHOWN = 60
"""Rows on the page; its `.json`, `.csv` and `.md` have all of them."""
_COLUMNS = (
    Column("job", "Job"),
    Column("cell", "Cell"),
    Column("outcome", "Outcome"),
    Column("results", "Results"),
    Column("why", "Why"),
    Column("duration_s", "Took", is_number=True),
)
_CELL_COLUMNS = tuple(column for column in _COLUMNS if column.id != "cell")
_WORST = (Outcome.FAILED, Outcome.TIMED_OUT, Outcome.ERRORED, Outcome.NOT_RUN, Outcome.CANCELLED)
_TONES = {Outcome.FAILED: "bad", Outcome.TIMED_OUT: "bad", Outcome.ERRORED: "bad"}


def job_table(record: RunRecord, now: datetime, *, most: int | None = None) -> Table:
    """Every job of every cell; what did not pass first, then what is going on.

    Args:
        record: The run.
        now: The present.
        most: Rows that there is room for.
    """
    idle = [cell for cell in record.cells if most is not None and _is_idle(cell)]
    jobs = [(cell, job) for cell in record.cells if cell not in idle for job in cell.jobs]
    jobs.sort(key=lambda one: _rank(one[1]))
    rows = [_row(record.run, cell, job, now) for cell, job in jobs[:most]]
    return Table(
        id="jobs",
        caption="Jobs, those that did not pass first",
        columns=_COLUMNS,
        rows=[*(_idle_row(record.run.id, cell) for cell in idle), *rows],
        total=len(jobs) + len(idle),
        empty="The run has no job.",
        is_caption_hidden=True,
    )


def _is_idle(cell: CellRecord) -> bool:
    """Nothing was run there, for one and the same reason."""
    outcomes = {(job.outcome, job.reason) for job in cell.jobs}
    return len(cell.jobs) > 1 and len(outcomes) == 1 and cell.jobs[0].outcome is Outcome.NOT_RUN


def _idle_row(run: str, cell: CellRecord) -> Row:
    href = urls.cell_url(run, cell.id)
    names = ", ".join(job.id for job in cell.jobs)
    return Row(
        (
            Text(f"all {len(cell.jobs)} jobs", href, note=names),
            Text(cell.id, href),
            Badge(Outcome.NOT_RUN),
            Text(""),
            Text(cell.jobs[0].reason.replace("_", " "), note=cell.detail),
            Span(None),
        )
    )


def cell_jobs(run: Run, cell: CellRecord, now: datetime) -> Table:
    """The jobs of one cell, in the order of the payload."""
    rows = []
    for job in cell.jobs:
        cells = _row(run, cell, job, now).cells
        rows.append(Row((cells[0], *cells[2:]), tone=_tone(job)))
    return Table(
        id="jobs",
        caption="Jobs",
        columns=_CELL_COLUMNS,
        rows=rows,
        empty="The matrix sends no job here.",
        is_caption_hidden=True,
    )


def _rank(job: JobRecord) -> int:
    if job.outcome in _WORST:
        return _WORST.index(job.outcome)
    if job.degraded:
        return len(_WORST)
    if job.outcome is None:
        return len(_WORST) + (1 if job.started_at else 2)
    return len(_WORST) + 3


def _row(run: Run, cell: CellRecord, job: JobRecord, now: datetime) -> Row:
    href = urls.with_query(urls.cell_url(run.id, cell.id), job=job.id)
    return Row(
        (
            Text(job.id, href, note=job.title if job.title != job.id else ""),
            Text(cell.id, urls.cell_url(run.id, cell.id)),
            Several(_outcomes(job)),
            _results(cell, job, href),
            _why(job),
            Span(_seconds(job, run, now)),
        ),
        tone=_tone(job),
    )


def _tone(job: JobRecord) -> str:
    if job.outcome is None:
        return ""
    return _TONES.get(job.outcome, "warn" if job.degraded else "")


def _outcomes(job: JobRecord) -> Sequence[Badge]:
    word = job.outcome or ("running" if job.started_at else "queued")
    more = [Badge("degraded")] if job.degraded else []
    return [Badge(word), *more]


def _results(cell: CellRecord, job: JobRecord, href: str) -> Tally | Text:
    if job.counts.collected:
        return Tally(_counts(cell, job), href)
    passed = sum(check.outcome == "passed" for check in job.checks)
    if job.checks:
        return Text(f"{passed} of {plural(len(job.checks), 'check')} passed", href)
    return Text("")


def _counts(cell: CellRecord, job: JobRecord) -> Counts:
    is_over = job.outcome is not None or cell.state is CellState.DONE
    return job.counts if is_over else replace(job.counts, missing=0)


def _why(job: JobRecord) -> Text:
    """The reason and its details; of what runs, which test it is at."""
    if job.outcome is None:
        return Text(_progress(job), note=job.current)
    if job.reused_from:
        note = f"evidence of {job.at:%Y-%m-%d %H:%M} UTC" if job.at else ""
        said = f"reused from {job.reused_from}"
        return Text(said, urls.run_url(job.reused_from), note=note)
    reason = "" if job.outcome is Outcome.PASSED else job.reason.replace("_", " ")
    said = ": ".join(part for part in (reason, job.detail) if part)
    told = [f"degraded: {job.degraded}" if job.degraded else ""]
    told += [f"not reused: {job.reuse}" if job.reuse else ""]
    return Text(said, note="; ".join(part for part in told if part))


def _progress(job: JobRecord) -> str:
    if not job.counts.collected:
        return ""
    reported = job.counts.collected - job.counts.missing
    return f"{reported:,} of {plural(job.counts.collected, 'test')}"


def _seconds(job: JobRecord, run: Run, now: datetime) -> float | None:
    if job.reused_from:
        return None
    if job.duration_s is not None or job.outcome is not None or job.started_at is None:
        return job.duration_s
    # A machine says when it began, by its own clock.
    return max(0.0, (now - max(job.started_at, run.created_at)).total_seconds())
