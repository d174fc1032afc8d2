"""Rows of the live display: cells, jobs with progress bars, running tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from rich.text import Text

from orchestrator.cli.safe_text import NATURAL, fit, fit_end, one_line, pad
from orchestrator.cli.view.glyphs import sign_of, tally, word
from orchestrator.domain.outcome import Counts
from orchestrator.domain.run_record import CellRecord, JobRecord, RunResponse
from orchestrator.domain.units import duration, elapsed, plural
from orchestrator.domain.vocabulary import TEST_OUTCOMES

_ENOUGH_TESTS = 3
_ENOUGH_S = 3.0
_LEAST_LEFT_S = 1.0


def since(start: datetime | None, now: datetime) -> float:
    """Return seconds since a time; 0 if it is unknown or in the future."""
    return max((now - start).total_seconds(), 0.0) if start else 0.0


def job_seconds(job: JobRecord, now: datetime) -> float | None:
    """Return how long a job has run, or None if it never started."""
    if job.duration_s is not None:
        return job.duration_s
    return since(job.started_at, now) if job.is_running else None


def reported(counts: Counts) -> int:
    """Return the number of tests with an outcome."""
    return counts.collected - counts.missing


def job_left_s(job: JobRecord, now: datetime) -> float | None:
    """Estimate a running suite's remaining seconds by its pace; None if unknown.

    The time is unknown if the job does not run or has just begun, if too few tests have reported,
    if the estimate is nearly 0, and while the job reports nothing.
    """
    counts = job.counts
    if not job.is_running or job.idle_since is not None or reported(counts) < _ENOUGH_TESTS:
        return None
    seconds = since(job.started_at, now)
    if seconds < _ENOUGH_S:
        return None
    left_s = seconds / reported(counts) * counts.missing
    return left_s if left_s >= _LEAST_LEFT_S else None


def run_left_s(run: RunResponse, now: datetime) -> float | None:
    """Estimate the run's remaining seconds; None unless only running suites are left."""
    left = [_cell_left_s(cell, now) for cell in run.cells if not cell.is_done]
    known = [seconds for seconds in left if seconds is not None]
    return max(known) if known and len(known) == len(left) else None


def _cell_left_s(cell: CellRecord, now: datetime) -> float | None:
    open_jobs = [job for job in cell.jobs if job.outcome is None and job.duration_s is None]
    if cell.state != "running" or len(open_jobs) != 1:
        return None
    return job_left_s(open_jobs[0], now)


_NAME_MIN, _NAME_MAX = 8, 28
_STATE_WIDTH = 13
_BAR_MIN, _BAR_MAX = 8, 32
_NOTICES = 2


@dataclass(frozen=True, slots=True)
class Frame:
    """Shared layout of a picture's lines."""

    now: datetime
    width: int
    name_width: int
    """Width of cell and job ids."""
    run_id: str = "RUN"
    heard: Mapping[str, str] = field(default_factory=dict)
    """The controller's last notice of each cell."""

    @classmethod
    def from_cells(
        cls, cells: tuple[CellRecord, ...], now: datetime, width: int, *, run_id: str = "RUN"
    ) -> Frame:
        """Return a layout for the longest id, within limits."""
        # A job is indented by two cells more than its cell.
        names = [len(c.id) for c in cells] + [len(j.id) + 2 for c in cells for j in c.jobs]
        widest = max(names, default=_NAME_MIN)
        name_width = min(max(widest, _NAME_MIN), _NAME_MAX, max(width // 3, _NAME_MIN))
        return cls(now, width, name_width, run_id)


def cell_row(cell: CellRecord, frame: Frame) -> Text:
    """Return a cell's line: ``● gcp-l4    running    31 ✓  1 ✗         1m 12s``."""
    sign = sign_of(cell.outcome, active=cell.state != "queued")
    left = Text().append(f"{sign.glyph} ", sign.style)
    left.append(pad(one_line(cell.id), frame.name_width), style="bold")
    left.append("  ")
    left.append(pad(word(cell.outcome or cell.state), _STATE_WIDTH), style=sign.style)
    left.append_text(tally(cell.counts, retried=cell.passed_on_retry, over=cell.is_done))
    if cell.attempt > 1:
        left.append(f"  attempt {cell.attempt}", style="yellow")
    return ends(left, Text(_cell_time(cell, frame.now), style="dim"), frame.width)


def reason_row(cell: CellRecord, frame: Frame) -> Text | None:
    """Return the cell's reason in one line; None without a reason."""
    said = one_line(cell.why)
    return Text(fit(f"  {said}", frame.width), style="dim") if said else None


def simulated_row(cell: CellRecord, frame: Frame) -> Text | None:
    """Return the line about simulated machines; None if the cell is not simulated."""
    said = "  SIMULATED: no gate accepts this"
    return Text(fit(said, frame.width), style="bold red") if cell.simulated else None


def undeclared_row(cell: CellRecord, frame: Frame) -> Text | None:
    """Return the line about packages that the payload does not name; None without such packages."""
    said = cell.undeclared_note
    return Text(fit(f"  {said}", frame.width), style="dim") if said else None


def notice_rows(cell: CellRecord, frame: Frame) -> list[Text]:
    """Return the agent's latest warnings about the whole cell."""
    loud = [one for one in cell.notices if one.level in ("warning", "error") and not one.job]
    said = (f"  {one.level}: {one_line(one.message)}" for one in loud[-_NOTICES:])
    return [Text(fit(line, frame.width), style="yellow") for line in said]


def heard_row(cell: CellRecord, frame: Frame) -> Text | None:
    """Return the controller's last notice of a running cell."""
    said = frame.heard.get(cell.id)
    if not said or cell.is_done or cell.detail:
        return None
    return Text(fit(f"  {one_line(said)}", frame.width), style="dim")


def kept_rows(cell: CellRecord, frame: Frame) -> list[Text]:
    """Return the line about a held machine, and its two commands."""
    if cell.kept_until is None:
        return []
    run, name = one_line(frame.run_id), one_line(cell.id)
    said = (
        f"  its machine is kept until {cell.kept_until:%H:%M:%S} UTC",
        f"    enter: seatrial ssh {run} {name}",
        f"    let go: seatrial cancel {run}",
    )
    return [Text(fit(line, frame.width), style="yellow") for line in said]


def job_row(job: JobRecord, frame: Frame) -> Text:
    """Return a job's line: ``  ● moe   ━━━━━━━──────  31/48   30 ✓  1 ✗    41s  ~22s left``."""
    sign = sign_of(job.outcome, active=job.is_running)
    left = Text().append(f"  {sign.glyph} ", sign.style)
    plain = job.outcome is None and not job.is_running
    left.append(pad(one_line(job.id), frame.name_width - 2), style="dim" if plain else "")
    left.append("  ")
    right = _job_time(job, frame.now)
    room = frame.width - left.cell_len - right.cell_len - 2
    left.append_text(_job_body(job, room))
    return ends(left, right, frame.width)


def reuse_row(job: JobRecord, frame: Frame) -> Text | None:
    """Return why a job was reused, or why it was not."""
    if not job.reuse:
        return None
    told = job.reuse if job.reused_from else f"not reused: {job.reuse}"
    return Text(fit(f"    {one_line(told)}", frame.width), style="dim")


def current_row(job: JobRecord, frame: Frame) -> Text | None:
    """Return the running test, and the time since its last event."""
    silence = job.silence(frame.now)
    if not (job.is_running and (job.current or silence)):
        return None
    room = frame.width - 6 - (len(silence) + 2 if silence else 0)
    name = fit_end(one_line(job.current), max(room, 0)) if job.current else ""
    line = Text("    → " + name, style="dim")
    return line.append("  " * bool(name) + silence, style="yellow") if silence else line


def ends(left: Text, right: Text, width: int) -> Text:
    """Align two texts at both ends of a line; the left one is cut."""
    room = width - right.cell_len - 1 if right.plain else width
    line = left.copy()
    line.truncate(max(room, 0), overflow="ellipsis")
    if right.plain:
        gap = width - line.cell_len - right.cell_len if width < NATURAL else 2
        line.append(" " * gap)
        line.append_text(right)
    line.truncate(width, overflow="crop")
    return line


def bar(counts: Counts, width: int) -> Text:
    """Return a progress bar by outcome; the remaining part is thin."""
    figures = counts.as_dict()
    told = [
        (figures[name], sign_of(name))
        for name in TEST_OUTCOMES
        if name != "missing" and figures[name]
    ]
    # Even one failure among thousands gets a cell of the bar.
    parts = [max(width * figure // counts.collected, 1) for figure, _ in told]
    room = width - bool(counts.missing)
    while sum(parts) > room:
        parts[parts.index(max(parts))] -= 1
    if parts and not counts.missing:
        parts[parts.index(max(parts))] += room - sum(parts)
    line = Text()
    for part, (_, sign) in zip(parts, told, strict=True):
        line.append("━" * part, style=sign.style)
    return line.append("─" * (width - line.cell_len), style="dim")


def _job_body(job: JobRecord, room: int) -> Text:
    if job.outcome is not None:
        return _job_result(job)
    if not job.is_running:
        return Text("waiting", style="dim") if job.started_at is None else Text("finishing")
    if job.counts is not None and job.counts.collected:
        return _job_progress(job.counts, room)
    return _styled(job) if job.checks else Text("running", style="cyan")


def _job_progress(counts: Counts, room: int) -> Text:
    figures = Text(f"  {reported(counts)}/{counts.collected}  ")
    figures.append_text(tally(counts, over=False))
    width = min(max(room - figures.cell_len, _BAR_MIN), _BAR_MAX)
    return bar(counts, width).append_text(figures)


def _job_result(job: JobRecord) -> Text:
    sign = sign_of(job.outcome, active=False)
    line = Text()
    if job.outcome != "passed" or not (job.counts and job.counts.collected):
        line.append(word(job.outcome or ""), style=sign.style)
    if job.counts is not None and job.counts.collected:
        line = Text("  ").join(
            part for part in (line, tally(job.counts, retried=job.passed_on_retry)) if part.plain
        )
    elif job.checks or job.metrics:
        line = Text("  ").join((line, _styled(job)))
    if job.why and job.outcome != "passed":
        line.append(f"  {one_line(job.why)}", style="dim")
    if job.degraded:
        line.append(f"  degraded: {one_line(job.degraded)}", style="yellow")
    if job.reused_from:
        line.append("  reused", style="cyan")
    return line


def _styled(job: JobRecord) -> Text:
    """Return the checks by outcome and the number of metrics, for a job that is no suite."""
    line = Text()
    for outcome in ("passed", "failed", "skipped"):
        count = sum(check.outcome == outcome for check in job.checks)
        if count:
            sign = sign_of(outcome, active=False)
            line.append("  " if line.plain else "")
            line.append(f"{plural(count, 'check')} {sign.glyph}", style=sign.style)
    if job.metrics:
        line.append("  " if line.plain else "")
        line.append(plural(len(job.metrics), "metric"))
    return line


def _job_time(job: JobRecord, now: datetime) -> Text:
    seconds = job_seconds(job, now)
    if seconds is None or job.reused_from:
        return Text()
    if not job.is_running:
        return Text(duration(seconds), style="dim")
    left_s = job_left_s(job, now)
    if left_s is not None:
        return Text(f"{elapsed(seconds)}  ~{elapsed(left_s)} left", style="dim")
    limit = f" of at most {duration(job.timeout_s).removesuffix(' 00s')}" if job.timeout_s else ""
    return Text(f"{elapsed(seconds)}{limit}", style="dim")


def _cell_time(cell: CellRecord, now: datetime) -> str:
    """Return the duration of a finished cell's jobs; else the time in its state."""
    if not cell.is_done:
        return elapsed(since(cell.entered_at, now)) if cell.entered_at else ""
    return duration(cell.jobs_s) if cell.jobs_s is not None else ""
