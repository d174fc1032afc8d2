"""The tables of the board."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date

from orchestrator.application.ports.release_board import LiveRun
from orchestrator.application.rate_trends import RateTrend
from orchestrator.application.release_board import Absence, Board, BoardRow, Square
from orchestrator.dashboard import urls
from orchestrator.dashboard.labels import age, cut, visible
from orchestrator.dashboard.pages.board.cells import Evidence, Rate
from orchestrator.dashboard.responses import Asked
from orchestrator.dashboard.table import Badge, Cell, Column, Moment, Row, Several, Table, Text
from orchestrator.domain.outcome import Outcome
from orchestrator.domain.vocabulary import term

_FIRST_COMMAND = "seatrial run matrices/local.yaml"
_ALL = "all suites"
_NOTHING = Text("–")
_STEP = 5.0
_TESTS = "tests"
"""Why most fail: the counts say so."""


def board_table(asked: Asked, board: Board) -> Table:
    """Versions by platforms."""
    return Table(
        id="board",
        caption="Versions by platforms, the newest first",
        columns=[
            Column("version", "Version"),
            Column("gates", "Gates"),
            *(Column(f"cell.{name}", visible(cut(name, 60))) for name in board.names),
        ],
        rows=[
            Row((_version(asked, row), _verdicts(asked, row), *_squares(asked, board, row)))
            for row in board.rows
        ],
        empty="Nothing has been launched yet: the first run of a matrix makes the first line.",
        command=_FIRST_COMMAND,
        next=asked.here(before=board.next) if board.next else "",
        is_caption_hidden=True,
    )


def _version(asked: Asked, row: BoardRow) -> Text:
    when = f"{age(row.at, asked.now)} ago" if row.at is not None else "no evidence yet"
    if row.live is not None:
        when += "; a run goes on"
    href = urls.run_url(row.live.run if row.live is not None else row.newest_run)
    return Text(row.of.version, href, note=f"{row.of.subject} · {when}")


def _verdicts(asked: Asked, row: BoardRow) -> Cell:
    if not row.verdicts:
        return Text("–", note="no verdict")
    return Several(
        [
            Badge(one.decision, urls.verdict_url(one.id), note=cut(one.gate, 40))
            for one in row.verdicts
        ]
    )


def _squares(asked: Asked, board: Board, row: BoardRow) -> Iterator[Cell]:
    for square in row.squares:
        yield _square(asked, board, row, square)


def _square(asked: Asked, board: Board, row: BoardRow, square: Square) -> Cell:
    cell = square.cell
    if cell is None and row.live is not None:
        return Evidence(word="queued", href=urls.run_url(row.live.run), note="a run goes on")
    if cell is None:
        is_late = square.absence is Absence.NOT_YET
        return _NOTHING if is_late else Evidence(word="missing", note="no run has it")
    notes = (
        "" if cell.reason == _TESTS else cell.reason.replace("_", " "),
        cell.matrix if square.others and cell.matrix != _main_matrix(row) else "",
        "" if cell.counts.collected or cell.outcome is not Outcome.PASSED else "no tests",
        "simulated" if cell.simulated else "",
    )
    return Evidence(
        word=cell.outcome or "done",
        href=urls.cell_url(cell.run, cell.name),
        counts=cell.counts,
        at=cell.at,
        now=asked.now,
        note=", ".join(note for note in notes if note),
        staleness=square.staleness,
    )


def _main_matrix(row: BoardRow) -> str:
    """The one that most of its evidence is from."""
    counted = Counter(one.cell.matrix for one in row.squares if one.cell is not None)
    return counted.most_common(1)[0][0]


def live_table(asked: Asked, live: Sequence[LiveRun]) -> Table:
    """What runs right now."""
    return Table(
        id="live",
        caption="Running now",
        columns=(
            Column("run", "Run"),
            Column("version", "Version"),
            Column("matrix", "Matrix"),
            Column("cells", "Cells"),
            Column("launched_at", "Launched"),
        ),
        rows=[
            Row(
                (
                    Text(one.run, urls.run_url(one.run), is_code=True),
                    Text(one.of.version, note=one.of.subject),
                    Text(one.matrix),
                    Text(", ".join(f"{n} {term(state).word}" for state, n in one.cells.items())),
                    Moment(one.launched_at, asked.now),
                )
            )
            for one in live
        ],
        empty="Nothing is running.",
        is_caption_hidden=True,
    )


def rates_table(trends: Mapping[tuple[str, str], RateTrend], names: Sequence[str]) -> Table:
    """Pass rates by platform and suite: the newest day, and the way there."""
    jobs = sorted({job for _, job in trends})
    if len(jobs) == 2:  # one suite alone is all suites
        jobs = [job for job in jobs if job]
    cells = [name for name in names if any((name, job) in trends for job in jobs)]
    cells += sorted({cell for cell, _ in trends} - set(cells))
    low = lowest(trends.values())
    newest = max((trend.latest.day for trend in trends.values()), default=date.min)
    return Table(
        id="rates",
        caption=f"Pass rate by platform and suite; lines run from {low:.0f}% to 100%",
        columns=[
            Column("platform", "Platform"),
            *(Column(f"suite.{job}" if job else "all", _title(job)) for job in jobs),
        ],
        rows=[
            Row((Text(cell), *(_rate(trends.get((cell, job)), low, newest) for job in jobs)))
            for cell in cells
        ],
        empty="No suite was run in these days: choose more of them.",
        is_caption_hidden=True,
    )


def _title(job: str) -> str:
    return visible(cut(job, 60)) if job else _ALL


def _rate(trend: RateTrend | None, low: float, newest: date) -> Cell:
    if trend is None:
        return _NOTHING
    behind = (newest - trend.latest.day).days
    return Rate(trend, low, f"{behind} d" if behind else "")


def lowest(trends: Iterable[RateTrend]) -> float:
    """One lower edge for all pictures, so that they can be compared: a multiple of five."""
    rates = (day.counts.pass_rate for trend in trends for day in trend.days)
    least = min((float(rate) * 100 for rate in rates if rate is not None), default=100.0)
    return min(least // _STEP * _STEP, 100.0 - _STEP)
