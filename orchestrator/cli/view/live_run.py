"""The whole picture of a run that is going on, and the lines that stay when it is over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from rich.text import Text

from orchestrator.cli.responses import Run
from orchestrator.cli.safe_text import fit, one_line
from orchestrator.cli.view.fit_to_height import cell_lines, whole
from orchestrator.cli.view.glyphs import sign_of, tally, word
from orchestrator.cli.view.remaining_time import run_left_s, since
from orchestrator.cli.view.rows import Frame, ends
from orchestrator.domain.units import elapsed, plural, usd

LOG_LINES = 6
_LOG_MIN = 3
_HEADER = 3
_FOOTER = 1
_SMALL = 16
"""Rows below which the log is left out."""


@dataclass(frozen=True, slots=True)
class LogTail:
    """The last lines of one cell's log."""

    cell: str = ""
    lines: Sequence[str] = ()
    """Made safe; the last one is the newest."""


def picture(
    run: Run,
    tail: LogTail,
    *,
    now: datetime,
    width: int,
    height: int,
    note: str = "",
    heard: Mapping[str, str] | None = None,
) -> Text:
    """Draw a run into exactly `height` lines of at most `width` cells.

    Args:
        run: As the controller shows it.
        tail: What is at the bottom.
        now: Aware.
        width: Columns of the terminal.
        height: Rows of the terminal.
        note: Stands in the last line: how to leave, or what is wrong with the connection.
        heard: What the controller told last of each cell.
    """
    frame = replace(Frame.of(run.cells, now, width, run_id=run.id), heard=heard or {})
    head = [*header(run, frame), Text()]
    room = height - len(head) - _FOOTER
    reserved = 0 if height < _SMALL or not tail.lines else _LOG_MIN + 1
    cells = cell_lines(run, frame, max(room - reserved, 1))
    log = _log(tail, frame, room - len(cells) - 1) if reserved else []
    filler = [Text()] * (room - len(cells) - len(log))
    lines = [*head, *cells, *filler, *log, Text(fit(one_line(note), width), style="dim italic")]
    return _joined(lines[:height])


def summary(run: Run, *, now: datetime, width: int) -> Text:
    """What stays on the terminal, and what `show` prints: every cell and every job."""
    frame = Frame.of(run.cells, now, width, run_id=run.id)
    return _joined([*header(run, frame), Text(), *whole(run, frame)])


def header(run: Run, frame: Frame) -> list[Text]:
    """Two lines: what is being validated, and how far it is."""
    sign = sign_of(run.outcome, active=True)
    name = Text().append(f"{sign.glyph} ", sign.style)
    name.append(one_line(run.matrix) or "run", style="bold")
    name.append(f"  {one_line(str(run.subject))}")
    first = ends(name, Text(f"run {one_line(run.id)}", style="dim"), frame.width)
    return [first, ends(_progress(run), _times(run, frame.now), frame.width)]


def _progress(run: Run) -> Text:
    done = sum(cell.is_done for cell in run.cells)
    if run.is_finished:
        sign = sign_of(run.outcome, active=False)
        line = Text().append(f"  {word(run.outcome or run.state)}", sign.style)
    elif run.cancel_requested_at is not None:
        line = Text().append("  cancelling", "yellow")
    else:
        line = Text(f"  {done} of {plural(len(run.cells), 'cell')} done")
    counts = tally(run.totals, over=run.is_finished)
    return line.append("   ").append_text(counts) if counts.plain else line


def _times(run: Run, now: datetime) -> Text:
    if run.created_at is None:
        return Text()
    parts = [elapsed(since(run.created_at, run.finished_at or now))]
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
