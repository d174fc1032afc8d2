"""Live display of a run: the full picture, and the summary that remains."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from rich.text import Text

from orchestrator.cli.safe_text import fit, one_line
from orchestrator.cli.view.glyphs import is_quiet, outcome_words, sign_of, tally
from orchestrator.cli.view.rows import (
    Frame,
    cell_row,
    current_row,
    ends,
    heard_row,
    job_row,
    kept_rows,
    notice_rows,
    reason_row,
    reuse_row,
    run_left_s,
    simulated_row,
    since,
    undeclared_row,
)
from orchestrator.domain.run_record import (
    CellRecord,
    JobRecord,
    RunResponse,
    are_ingested,
    ingested_s,
)
from orchestrator.domain.units import duration, elapsed, plural, usd

Lines = list[Text]


def cell_lines(run: RunResponse, frame: Frame, height: int) -> Lines:
    """Return at most `height` lines with the most detail that fits."""
    lines: Lines = []
    for telling in _TELLINGS:
        lines = telling(run, frame)
        if len(lines) <= height:
            return lines
    hidden = len(lines) - max(height - 1, 0)
    return [*lines[: max(height - 1, 0)], Text(f"… and {plural(hidden, 'more line')}")][:height]


def _spaced(run: RunResponse, frame: Frame) -> Lines:
    """Return every cell with all jobs, separated by blank lines."""
    lines: Lines = []
    for cell in run.cells:
        lines += (
            [Text(), *_cell(cell, frame, cell.jobs)] if lines else _cell(cell, frame, cell.jobs)
        )
    return lines


def whole(run: RunResponse, frame: Frame) -> Lines:
    """Return every cell with all jobs."""
    return [line for cell in run.cells for line in _cell(cell, frame, cell.jobs)]


def _open_jobs(run: RunResponse, frame: Frame) -> Lines:
    """Return cells, without jobs of passed ones."""
    return [
        line
        for cell in run.cells
        for line in _cell(cell, frame, () if _is_settled(cell) else cell.jobs)
    ]


def _current_jobs(run: RunResponse, frame: Frame) -> Lines:
    """Return cells with the running job, or the failed jobs of finished ones."""
    return [line for cell in run.cells for line in _cell(cell, frame, _telling_jobs(cell))]


def _grouped(run: RunResponse, frame: Frame) -> Lines:
    """Return passed and waiting cells as one line each; others with jobs."""
    active, groups = _groups(run, frame)
    return [line for c in active for line in _cell(c, frame, _telling_jobs(c))] + groups


def _one_line_each(run: RunResponse, frame: Frame) -> Lines:
    """Return a line per running cell, then per failed cell."""
    active, groups = _groups(run, frame)
    ordered = sorted(active, key=lambda cell: cell.is_done)
    return groups + [cell_row(cell, frame) for cell in ordered]


_TELLINGS: tuple[Callable[[RunResponse, Frame], Lines], ...] = (
    _spaced,
    whole,
    _open_jobs,
    _current_jobs,
    _grouped,
    _one_line_each,
)


def _cell(cell: CellRecord, frame: Frame, jobs: Iterable[JobRecord]) -> Lines:
    lines: list[Text | None] = [cell_row(cell, frame), simulated_row(cell, frame)]
    if cell.outcome != "passed" or cell.reason == "reused":
        lines.append(reason_row(cell, frame))
    lines += [heard_row(cell, frame), undeclared_row(cell, frame)]
    lines += [*notice_rows(cell, frame), *kept_rows(cell, frame)]
    for job in jobs:
        lines += [job_row(job, frame), reuse_row(job, frame), current_row(job, frame)]
    return [line for line in lines if line is not None]


def _telling_jobs(cell: CellRecord) -> list[JobRecord]:
    if cell.is_done:
        return [job for job in cell.jobs if not is_quiet(job.outcome)]
    return [job for job in cell.jobs if job.is_running]


def _is_settled(cell: CellRecord) -> bool:
    return cell.is_done and is_quiet(cell.outcome)


def _groups(run: RunResponse, frame: Frame) -> tuple[list[CellRecord], Lines]:
    """Return lines for the most important cells, and one for the others of each kind."""
    settled = [cell for cell in run.cells if _is_settled(cell)]
    queued = [cell for cell in run.cells if cell.state == "queued" and not cell.attempt]
    apart = {cell.id for cell in (*settled, *queued)}
    lines = []
    if settled:
        sign = sign_of("passed")
        said = f"{sign.glyph} {plural(len(settled), 'cell')} done  "
        text = Text().append(said, sign.style)
        total = sum((cell.counts for cell in settled[1:]), settled[0].counts)
        lines.append(
            ends(
                text.append_text(
                    tally(total, retried=sum(cell.passed_on_retry for cell in settled))
                ),
                Text(),
                frame.width,
            )
        )
    if queued:
        sign = sign_of("queued")
        text = Text(f"{sign.glyph} {plural(len(queued), 'cell')} queued", style=sign.style)
        lines.append(ends(text, Text(), frame.width))
    return [cell for cell in run.cells if cell.id not in apart], lines


LOG_LINES = 6
_LOG_MIN = 3
_FOOTER = 1
_SMALL = 16
"""Minimum rows for showing the log."""


@dataclass(frozen=True, slots=True)
class LogTail:
    """The last lines of a cell's log."""

    cell: str = ""
    lines: Sequence[str] = ()
    """Safe lines, newest last."""


def picture(
    run: RunResponse,
    tail: LogTail,
    *,
    now: datetime,
    width: int,
    height: int,
    note: str = "",
    heard: Mapping[str, str] | None = None,
) -> Text:
    """Render a run into exactly `height` lines of at most `width` cells.

    Args:
        run: The run's record.
        tail: The log lines at the bottom.
        now: The present time, timezone-aware.
        width: Columns of the terminal.
        height: Rows of the terminal.
        note: The last line: how to leave the display, or a connection problem.
        heard: The controller's last message of each cell.
    """
    frame = replace(Frame.from_cells(run.cells, now, width, run_id=run.id), heard=heard or {})
    head = [*header(run, frame), Text()]
    room = height - len(head) - _FOOTER
    reserved = 0 if height < _SMALL or not tail.lines else _LOG_MIN + 1
    cells = cell_lines(run, frame, max(room - reserved, 1))
    log = _log(tail, frame, room - len(cells) - 1) if reserved else []
    filler = [Text()] * (room - len(cells) - len(log))
    lines = [*head, *cells, *filler, *log, Text(fit(one_line(note), width), style="dim italic")]
    return _joined(lines[:height])


def summary(run: RunResponse, *, now: datetime, width: int) -> Text:
    """Return the summary of every cell and job, as in `show`."""
    frame = Frame.from_cells(run.cells, now, width, run_id=run.id)
    return _joined([*header(run, frame), Text(), *whole(run, frame)])


def header(run: RunResponse, frame: Frame) -> list[Text]:
    """Return the header: the subject, its commit, and the progress."""
    sign = sign_of(run.outcome, active=True)
    name = Text().append(f"{sign.glyph} ", sign.style)
    name.append(one_line(run.matrix) or "run", style="bold")
    name.append(f"  {one_line(str(run.subject))}")
    first = ends(name, Text(f"run {one_line(run.id)}", style="dim"), frame.width)
    second = ends(_progress(run), _times(run, frame.now), frame.width)
    if not run.commit:
        return [first, second]
    commit = Text(fit(f"  {one_line(str(run.commit))}", frame.width), style="dim")
    return [first, commit, second]


def _progress(run: RunResponse) -> Text:
    done = sum(cell.is_done for cell in run.cells)
    if run.is_finished:
        sign = sign_of(run.outcome, active=False)
        line = Text().append(f"  {outcome_words(run)}", sign.style)
    elif run.cancel_requested_at is not None:
        line = Text().append("  cancelling", "yellow")
    else:
        line = Text(f"  {done} of {plural(len(run.cells), 'cell')} done")
    retried = sum(cell.passed_on_retry for cell in run.cells)
    counts = tally(run.counts, retried=retried, over=run.is_finished)
    return line.append("   ").append_text(counts) if counts.plain else line


def _times(run: RunResponse, now: datetime) -> Text:
    if run.created_at is None:
        return Text()
    took_s = since(run.created_at, run.finished_at or now)
    parts = [duration(took_s) if run.is_finished else elapsed(took_s)]
    if are_ingested(run.cells):
        told_s = ingested_s(run.cells)
        parts = [] if told_s is None else [duration(told_s)]
    left_s = None if run.is_finished else run_left_s(run, now)
    if left_s is not None:
        parts.append(f"~{elapsed(left_s)} left")
    if run.cost_usd:
        parts.append(usd(run.cost_usd))
    return Text("  ".join(parts))


def _log(tail: LogTail, frame: Frame, room: int) -> list[Text]:
    lines = list(tail.lines)[-min(LOG_LINES, room - 1) :] if room > 1 else []
    if not lines:
        return []
    title = f"── log of {fit(one_line(tail.cell), frame.width // 2)} "
    rule = Text(title + "─" * (frame.width - len(title)), style="dim")
    return [rule, *(Text(fit(line, frame.width), style="dim") for line in lines)]


def _joined(lines: Sequence[Text]) -> Text:
    text = Text("\n").join(lines)
    text.no_wrap, text.overflow = True, "crop"
    return text
