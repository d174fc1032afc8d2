"""Choose how much is told of each cell, so that all of them fit."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from rich.text import Text

from orchestrator.cli.responses import Cell, Job, Run
from orchestrator.cli.view.glyphs import is_quiet, sign_of, tally
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
    simulated_row,
)
from orchestrator.domain.units import plural

Lines = list[Text]


def cell_lines(run: Run, frame: Frame, height: int) -> Lines:
    """Return at most `height` lines: the fullest telling that fits, cut only as a last resort."""
    lines: Lines = []
    for telling in _TELLINGS:
        lines = telling(run, frame)
        if len(lines) <= height:
            return lines
    hidden = len(lines) - max(height - 1, 0)
    return [*lines[: max(height - 1, 0)], Text(f"… and {plural(hidden, 'more line')}")][:height]


def _spaced(run: Run, frame: Frame) -> Lines:
    """Every cell with all its jobs, and air between them."""
    lines: Lines = []
    for cell in run.cells:
        lines += (
            [Text(), *_cell(cell, frame, cell.jobs)] if lines else _cell(cell, frame, cell.jobs)
        )
    return lines


def whole(run: Run, frame: Frame) -> Lines:
    """Every cell with all its jobs."""
    return [line for cell in run.cells for line in _cell(cell, frame, cell.jobs)]


def _open_jobs(run: Run, frame: Frame) -> Lines:
    """Cells that passed tell nothing of their jobs."""
    return [
        line
        for cell in run.cells
        for line in _cell(cell, frame, () if _is_settled(cell) else cell.jobs)
    ]


def _current_jobs(run: Run, frame: Frame) -> Lines:
    """Of a running cell the running job, of a finished one the jobs that went wrong."""
    return [line for cell in run.cells for line in _cell(cell, frame, _telling_jobs(cell))]


def _grouped(run: Run, frame: Frame) -> Lines:
    """What passed and what waits becomes one line each; the rest as before."""
    active, groups = _groups(run, frame)
    return [line for c in active for line in _cell(c, frame, _telling_jobs(c))] + groups


def _one_line_each(run: Run, frame: Frame) -> Lines:
    """A line for each cell that is under way, then for each that went wrong."""
    active, groups = _groups(run, frame)
    ordered = sorted(active, key=lambda cell: cell.is_done)
    return groups + [cell_row(cell, frame) for cell in ordered]


_TELLINGS: tuple[Callable[[Run, Frame], Lines], ...] = (
    _spaced,
    whole,
    _open_jobs,
    _current_jobs,
    _grouped,
    _one_line_each,
)


def _cell(cell: Cell, frame: Frame, jobs: Iterable[Job]) -> Lines:
    lines: list[Text | None] = [cell_row(cell, frame), simulated_row(cell, frame)]
    if cell.outcome != "passed" or cell.reason == "reused":
        lines.append(reason_row(cell, frame))
    lines.append(heard_row(cell, frame))
    lines += [*notice_rows(cell, frame), *kept_rows(cell, frame)]
    for job in jobs:
        lines += [job_row(job, frame), reuse_row(job, frame), current_row(job, frame)]
    return [line for line in lines if line is not None]


def _telling_jobs(cell: Cell) -> list[Job]:
    if cell.is_done:
        return [job for job in cell.jobs if not is_quiet(job.outcome)]
    return [job for job in cell.jobs if job.is_running]


def _is_settled(cell: Cell) -> bool:
    return cell.is_done and is_quiet(cell.outcome)


def _groups(run: Run, frame: Frame) -> tuple[list[Cell], Lines]:
    """The cells worth a line of their own, and a line for the others of each kind."""
    settled = [cell for cell in run.cells if _is_settled(cell)]
    queued = [cell for cell in run.cells if cell.state == "queued" and not cell.attempt]
    apart = {cell.id for cell in (*settled, *queued)}
    lines = []
    if settled:
        sign = sign_of("passed")
        said = f"{sign.glyph} {plural(len(settled), 'cell')} done  "
        text = Text().append(said, sign.style)
        total = sum((cell.counts for cell in settled[1:]), settled[0].counts)
        lines.append(ends(text.append_text(tally(total)), Text(), frame.width))
    if queued:
        sign = sign_of("queued")
        text = Text(f"{sign.glyph} {plural(len(queued), 'cell')} queued", style=sign.style)
        lines.append(ends(text, Text(), frame.width))
    return [cell for cell in run.cells if cell.id not in apart], lines
