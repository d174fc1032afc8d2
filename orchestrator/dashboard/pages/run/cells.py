"""Cells of a run: their phases over time, jobs, attempts and placement decisions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from orchestrator.dashboard import urls
from orchestrator.dashboard.charts import Picture, Shape
from orchestrator.dashboard.table import (
    Badge,
    CellList,
    Column,
    Moment,
    Number,
    PictureCell,
    Row,
    Span,
    Table,
    TableCell,
    TestCounts,
    Text,
    Usd,
)
from orchestrator.domain.cell import Attempt, CellState, PlacementResult, Run
from orchestrator.domain.charges import STATED, cost_of, is_priced
from orchestrator.domain.outcome import Counts, Outcome
from orchestrator.domain.run_record import CellRecord, JobRecord, LeaseRecord, RunRecord
from orchestrator.domain.units import duration, plural
from orchestrator.domain.vocabulary import refusal_text, term

PHASES = tuple(state for state in CellState if state is not CellState.DONE)
_WIDTH, _HEIGHT = 400, 14
_THINNEST = 1.5


@dataclass(frozen=True, slots=True)
class Phase:
    """One stay in a state."""

    state: CellState
    begin: datetime
    end: datetime
    attempt: int
    is_over: bool = True

    @property
    def seconds(self) -> float:
        """Return the duration in seconds."""
        return max(0.0, (self.end - self.begin).total_seconds())


def phases(cell: CellRecord, run: Run, now: datetime) -> tuple[Phase, ...]:
    """Return the cell's states with their durations, in order; the last one may be unfinished."""
    found: list[Phase] = []
    state, since, attempt = CellState.QUEUED, run.created_at, 1
    for step in cell.transitions:
        found.append(Phase(state, since, step.at, max(attempt, step.attempt)))
        state, since, attempt = CellState(step.to_state), step.at, step.attempt
    if state is not CellState.DONE:
        found.append(Phase(state, since, max(now, since), attempt, is_over=False))
    return tuple(found)


def spent(stays: Sequence[Phase]) -> dict[CellState, float]:
    """Return seconds by state, summed over all attempts."""
    total: dict[CellState, float] = {}
    for stay in stays:
        total[stay.state] = total.get(stay.state, 0.0) + stay.seconds
    return total


def drawn(stays: Sequence[Phase], begin: datetime, end: datetime) -> Picture:
    """Return the states as boxes between two times."""
    whole = max((end - begin).total_seconds(), 0.001)
    shapes = []
    for stay in stays:
        left = _WIDTH * max(0.0, (stay.begin - begin).total_seconds()) / whole
        width = max(_THINNEST, _WIDTH * stay.seconds / whole)
        left = min(left, _WIDTH - width)
        shapes.append(_box(stay, left, width))
    return Picture(_WIDTH, _HEIGHT, tuple(shapes), "timeline")


def phases_text(stays: Sequence[Phase]) -> str:
    """Return the states in words: ``queued 0.2s, placing 1.1s, running 12s so far``."""
    parts = []
    for stay in stays:
        said = f"{stay.state} {duration(stay.seconds)}"
        parts.append(said if stay.is_over else f"{said} so far")
    return ", ".join(parts)


def _box(stay: Phase, left: float, width: float) -> Shape:
    # A queue is drawn thin; a phase with a machine has the full height.
    is_thin = stay.state is CellState.QUEUED
    top, height = (_HEIGHT / 2 - 1.5, 3.0) if is_thin else (0.0, float(_HEIGHT))
    places = (("x", left), ("y", top), ("width", width), ("height", height))
    tone = f"phase-{stay.state}" + ("" if stay.is_over else " going")
    return Shape("rect", tone, tuple((name, f"{value:.2f}") for name, value in places))


_TONES = {Outcome.FAILED: "bad", Outcome.TIMED_OUT: "bad", Outcome.ERRORED: "bad"}
_CELLS = (
    Column("cell", "Cell"),
    Column("outcome", "Outcome"),
    Column("tests", "Tests"),
    Column("phases_s", "Phases"),
    Column("duration_s", "Duration", is_number=True),
    Column("cost_usd", "Cost", is_number=True),
    Column("attempts", "Attempts", is_number=True),
    Column("log", "Log"),
)
_MACHINES = (
    Column("cell", "Cell"),
    Column("attempt", "Attempt", is_number=True),
    Column("machine", "Machine"),
    Column("place", "Place"),
    Column("state", "State"),
    Column("usd_per_hour", "Per hour", is_number=True),
    Column("held_s", "Held", is_number=True),
    Column("cost_usd", "Cost", is_number=True),
    Column("provider_said", "Provider response"),
)
_DECISIONS = (
    Column("at", "At"),
    Column("cell", "Cell"),
    Column("attempt", "Attempt", is_number=True),
    Column("place", "Place"),
    Column("decision", "Decision"),
    Column("why", "Why"),
)
_ATTEMPTS = (
    Column("cell", "Cell"),
    Column("attempt", "Attempt", is_number=True),
    Column("outcome", "Outcome"),
    Column("why", "Why"),
    Column("opened_at", "Started"),
    Column("duration_s", "Duration", is_number=True),
)


def cell_table(record: RunRecord, now: datetime) -> Table:
    """Return a row for each cell with a timeline; all timelines have one scale."""
    end = max([record.run.finished_at or now, record.run.created_at])
    rows = [_cell_row(record, cell, end, now) for cell in record.cells]
    return Table(
        id="cells",
        caption="Cells",
        columns=_CELLS,
        rows=rows,
        empty="The run has no cell: nothing of its matrix is left to do.",
        is_caption_hidden=True,
    )


def _cell_row(record: RunRecord, cell: CellRecord, end: datetime, now: datetime) -> Row:
    stays = phases(cell, record.run, now)
    picture = drawn(stays, record.run.created_at, end)
    seconds = [stay.seconds for stay in stays]
    href = urls.cell_url(record.run.id, cell.id)
    return Row(
        (
            Text(cell.id, href, note=_about(cell)),
            Badge(cell.outcome or cell.state, note=why_of(cell)),
            tally_of(cell, href),
            PictureCell(picture, seconds, phases_text(stays)),
            Span(cell.jobs_s),
            Usd.of(cell.cost),
            Number(len(cell.attempts)),
            Text("log", urls.log_url(record.run.id, cell.id)),
        ),
        id=f"cell-{cell.id}",
        tone=_TONES.get(cell.outcome, "") if cell.outcome else "",
    )


def shown_counts(cell: CellRecord) -> Counts:
    """Return the counts; while the cell runs, missing tests are not counted as missing."""
    return cell.counts if cell.state is CellState.DONE else replace(cell.counts, missing=0)


def tally_of(cell: CellRecord, href: str = "") -> TestCounts:
    """Return the counts of a cell with its pass rate."""
    return TestCounts(shown_counts(cell), href, is_partial=cell.outcome is Outcome.ERRORED)


def _about(cell: CellRecord) -> str:
    parts = [
        cell.platform.provider,
        "optional" if cell.platform.optional else "",
        "SIMULATED: no gate accepts this" if cell.simulated else "",
        "ingested" if cell.ingested is not None else "",
        "INCONSISTENT" if cell.ingested is not None and cell.ingested.inconsistent else "",
    ]
    return ", ".join(part for part in parts if part)


def why_of(cell: CellRecord) -> str:
    """Return the reason of the cell's outcome; for a passed cell, only if no test passed."""
    return cell.why or (cell.counts.nothing_passed if cell.state is CellState.DONE else "")


def phase_table(record: RunRecord, now: datetime) -> Table:
    """Return the durations of the timeline as a table."""
    rows = []
    for cell in record.cells:
        seconds = spent(phases(cell, record.run, now))
        figures: list[TableCell] = [Span(seconds.get(state)) for state in PHASES]
        rows.append(Row((Text(cell.id), *figures)))
    columns = [Column(f"{state}_s", state.capitalize(), is_number=True) for state in PHASES]
    return Table(
        id="phases",
        caption="How long each phase took, all attempts together",
        columns=(Column("cell", "Cell"), *columns),
        rows=rows,
    )


def attempt_table(record: RunRecord, now: datetime) -> Table:
    """Return attempts of cells that had several, or that failed outside their jobs."""
    some = [
        (cell, attempt)
        for cell in record.cells
        if len(cell.attempts) > 1 or any(one.cause for one in cell.attempts)
        for attempt in cell.attempts
    ]
    return Table(
        id="attempts",
        caption="Attempts",
        columns=_ATTEMPTS,
        rows=[_attempt_row(cell, attempt, now) for cell, attempt in some],
        empty="Every cell took one attempt.",
        is_caption_hidden=True,
    )


def _attempt_row(cell: CellRecord, attempt: Attempt, now: datetime) -> Row:
    cause = attempt.cause
    word = cause.reason.replace("_", " ") if cause else ""
    why = ": ".join(part for part in (word, cause.detail if cause else "") if part)
    return Row(
        (
            Text(cell.id),
            Number(attempt.number),
            Badge(attempt.outcome or cell.state),
            Text(why),
            Moment(attempt.opened_at),
            Span(((attempt.closed_at or now) - attempt.opened_at).total_seconds()),
        ),
        tone=_TONES.get(attempt.outcome, "") if attempt.outcome else "",
    )


def machine_table(record: RunRecord) -> Table:
    """Return every machine that a cell had or was refused."""
    leases = [(cell, lease) for cell in record.cells for lease in cell.leases]
    return Table(
        id="machines",
        caption="Machines",
        columns=_MACHINES,
        rows=[_machine_row(cell, lease) for cell, lease in leases],
        empty="No machine was asked for.",
        is_caption_hidden=True,
    )


def held_s(lease: LeaseRecord) -> float | None:
    """Return the seconds for which a machine was held; None if they are not stated."""
    return None if lease.state == STATED and not lease.seconds else lease.seconds


def _machine_row(cell: CellRecord, lease: LeaseRecord) -> Row:
    kind = ", ".join(part for part in (lease.instance_type, lease.market) if part)
    where = lease.zone or lease.region
    return Row(
        (
            Text(cell.id),
            Number(lease.attempt),
            Text(lease.machine_id or "none", note=kind, is_code=bool(lease.machine_id)),
            Text(lease.place, note=where if where != lease.place else ""),
            Badge(lease.state),
            Usd(lease.price_usd_per_hour if is_priced(lease) else None),
            Span(held_s(lease)),
            Usd.of(cost_of(lease, lease.cost_usd)),
            Text(refusal_text(lease.refusal)),
        ),
        tone="warn" if lease.refusal else "",
    )


def decision_table(record: RunRecord) -> Table:
    """Return the table of placement decisions with their reasons."""
    lines = [(cell, line) for cell in record.cells for line in cell.decisions]
    rows = [
        Row(
            (
                Moment(line.at),
                Text(cell.id),
                Number(line.attempt),
                Text(line.place),
                Text(term(line.term).word),
                Text(": ".join(part for part in (line.reason, line.detail) if part)),
            ),
            tone="warn" if line.result is PlacementResult.REFUSED else "",
        )
        for cell, line in lines
    ]
    return Table(
        id="decisions",
        caption="Placement decisions",
        columns=_DECISIONS,
        rows=rows,
        empty="No place had to be chosen.",
    )


SHOWN = 60
"""Maximum rows on the page; its `.json`, `.csv` and `.md` have all rows."""
_COLUMNS = (
    Column("job", "Job"),
    Column("cell", "Cell"),
    Column("outcome", "Outcome"),
    Column("results", "Results"),
    Column("why", "Why"),
    Column("duration_s", "Duration", is_number=True),
)
_CELL_COLUMNS = tuple(column for column in _COLUMNS if column.id != "cell")
_WORST = (Outcome.FAILED, Outcome.TIMED_OUT, Outcome.ERRORED, Outcome.NOT_RUN, Outcome.CANCELLED)


def job_table(record: RunRecord, now: datetime, *, most: int | None = None) -> Table:
    """Return the table of all jobs: those that did not pass, then the running ones.

    Args:
        record: The run.
        now: The present time.
        most: Maximum number of rows.
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
    """Return whether no job of the cell ran, for one common reason."""
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
    """Return the jobs of one cell, in the payload's order."""
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
            CellList(_outcomes(job)),
            _results(cell, job, href),
            _job_reason(job, now),
            Span(_seconds(job, run, now)),
        ),
        tone=_tone(job),
    )


def _tone(job: JobRecord) -> str:
    if job.outcome is None:
        return ""
    return _TONES.get(job.outcome, "warn" if job.degraded or job.counts.nothing_passed else "")


def _outcomes(job: JobRecord) -> Sequence[Badge]:
    word = job.outcome or ("running" if job.started_at else "queued")
    more = [Badge("degraded")] if job.degraded else []
    return [Badge(word), *more]


def _results(cell: CellRecord, job: JobRecord, href: str) -> TestCounts | Text:
    if job.counts.collected:
        is_partial = job.outcome is Outcome.ERRORED
        return TestCounts(_counts(cell, job), href, is_partial=is_partial)
    passed = sum(check.outcome == "passed" for check in job.checks)
    if job.checks:
        return Text(f"{passed} of {plural(len(job.checks), 'check')} passed", href)
    return Text("")


def _counts(cell: CellRecord, job: JobRecord) -> Counts:
    is_over = job.outcome is not None or cell.state is CellState.DONE
    return job.counts if is_over else replace(job.counts, missing=0)


def _job_reason(job: JobRecord, now: datetime) -> Text:
    """Return reason and details; for a running job, its test and the time without output."""
    if job.outcome is None:
        said = "; ".join(part for part in (_progress(job), job.silence(now)) if part)
        return Text(said, note=job.current)
    if job.reused_from:
        note = f"evidence of {job.at:%Y-%m-%d %H:%M} UTC" if job.at else ""
        said = f"reused from {job.reused_from}"
        return Text(said, urls.run_url(job.reused_from), note=note)
    said = job.detail if job.outcome is Outcome.PASSED else job.why
    told = [f"degraded: {job.degraded}" if job.degraded else "", job.counts.nothing_passed]
    told += [f"{job.passed_on_retry:,} flaky: passed on retry" if job.passed_on_retry else ""]
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
    # The machine's start time is by its own clock.
    return max(0.0, (now - max(job.started_at, run.created_at)).total_seconds())
