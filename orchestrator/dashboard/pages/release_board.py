"""The release board, and the badge of a gate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from fastapi import APIRouter, Request, Response

from orchestrator.application.benchmarks import RateTrend, rate_trends
from orchestrator.application.gate_policies import find_policy
from orchestrator.application.gate_status import GateStatus, gate_statuses
from orchestrator.application.release_board import Board, BoardFilter, release_board
from orchestrator.dashboard import urls
from orchestrator.dashboard.labels import visible
from orchestrator.dashboard.pages.release_board_tables import (
    GateSentence,
    board_table,
    gate_sentence,
    live_table,
    lowest,
    rates_table,
)
from orchestrator.dashboard.responses import (
    Page,
    PageMissingError,
    PageRequest,
    PageRequestDep,
    of_products,
    pages_of,
    products,
)
from orchestrator.dashboard.table import Moment, Table
from orchestrator.domain.gate.policy import duration
from orchestrator.domain.gate.verdict import VerdictLine
from orchestrator.domain.vocabulary import Term, term

_LONGEST = 32
_LETTER = 6.6
"""Width of a letter in SVG units; the text is stretched to its length in any font."""
_PADDING = 7.0
_COLOURS = {
    "good": ("#1a6b3a", "#ffffff"),
    "bad": ("#b3261e", "#ffffff"),
    "warn": ("#ffd166", "#352200"),
}
_NO_VERDICT = Term("?", "no verdict", "warn")


def badge_words(gate: str, newest: VerdictLine | None) -> Mapping[str, object]:
    """Return the texts of the badge."""
    shown = term(newest.decision) if newest is not None else _NO_VERDICT
    version = newest.subject.get("version", "") if newest is not None else ""
    name = _short(gate)
    told = _short(f"{shown.glyph} {shown.word} {version}".rstrip())
    fill, ink = _COLOURS[shown.tone]
    left = len(name) * _LETTER
    right = len(told) * _LETTER
    return {
        "name": name,
        "told": told,
        "fill": fill,
        "ink": ink,
        "left": f"{left:.1f}",
        "right": f"{right:.1f}",
        "edge": f"{left + 2 * _PADDING:.1f}",
        "width": f"{left + right + 4 * _PADDING:.1f}",
        "begin": f"{_PADDING:.1f}",
        "second": f"{left + 3 * _PADDING:.1f}",
    }


def _short(text: str) -> str:
    text = visible(text).replace("\n", " ")
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


PAGE_SIZE = 15
RANGES = (14, 30, 90)
Trends = Mapping[tuple[str, str], RateTrend]
"""Pass rates over time, by platform and suite."""
_AHEAD = timedelta(days=366)
_UPCOMING = 3

router = APIRouter()


@dataclass(frozen=True, slots=True)
class Upcoming:
    """A schedule with the time of its next firing."""

    name: str
    at: Moment


@router.get(urls.BOARD)
def show_board(request: PageRequestDep, matrix: str = "", before: str = "") -> Response:
    """Show a page of versions by platforms, and the pass rates over time."""
    known = products(request)
    product = of_products(request, known)
    statuses = [one for one in gate_statuses(request.context) if one.stored.product == product]
    wanted = BoardFilter(
        product=product,
        matrix=matrix,
        limit=PAGE_SIZE,
        before=before or None,
        max_age=_trusted(statuses),
    )
    board = _board(request, wanted)
    days = _days(request)
    trends = _trends(request, product, matrix, days)
    sentences = [gate_sentence(request, one) for one in statuses]
    facts = {
        "product": product,
        "products": known,
        "matrix": matrix,
        "matrices": board.matrices,
        "before": before,
        "gates": sentences,
        "upcoming": _upcoming(request, product),
        "days": days,
        "ranges": RANGES,
        "low": lowest(trends.values()),
        "has_lines": any(len(trend.days) > 1 for trend in trends.values()),
        "old": _old(request, board, wanted),
    }
    page = Page(
        template="board.html.j2",
        title="Releases",
        tables=_tables(request, board, trends),
        facts=facts,
        data=_data(product, sentences),
        section=urls.BOARD,
    )
    return request.answer(page)


def _tables(request: PageRequest, board: Board, trends: Trends) -> tuple[Table, ...]:
    return (
        board_table(request, board),
        rates_table(trends, board.names),
        live_table(request, board.live),
    )


def _board(request: PageRequest, wanted: BoardFilter) -> Board:
    board = release_board(request.context.stores, wanted, at=request.now)
    if wanted.matrix and wanted.matrix not in board.matrices:
        there = ", ".join(board.matrices[:20]) or "none yet"
        message = f"no run of a matrix {wanted.matrix!r} is stored; there is: {there}"
        raise PageMissingError(message)
    return board


@router.get("/badges/{gate}.svg")
def show_badge(request: PageRequestDep, http_request: Request, gate: str) -> Response:
    """Respond with an SVG badge of the gate's newest decision."""
    stored = find_policy(request.context, gate)
    found = request.context.stores.gates.lineage_heads(gate=stored.gate)
    newest = max((one.newest for one in found), key=lambda one: one.created_at, default=None)
    drawn = pages_of(http_request).show("badge.svg.j2", badge_words(stored.gate, newest))
    return Response(drawn, media_type="image/svg+xml")


def _trusted(statuses: Sequence[GateStatus]) -> timedelta | None:
    """Return the shortest maximum age of evidence of the product's gates."""
    ages = (duration(one.policy.spec.evidence.max_age) for one in statuses)
    return min(ages, default=None)


def _days(request: PageRequest) -> int:
    named = request.query.get("days", "")
    return int(named) if named in map(str, RANGES) else RANGES[1]


def _trends(request: PageRequest, product: str, matrix: str, days: int) -> Trends:
    first = (request.now - timedelta(days=days - 1)).replace(hour=0, minute=0, second=0)
    since = first.replace(microsecond=0)
    rates = request.context.stores.releases.rates(product, matrix=matrix, since=since)
    return rate_trends(rates)


def _upcoming(request: PageRequest, product: str) -> list[Upcoming]:
    """Return the product's next schedules, the earliest first."""
    ahead = request.context.stores.schedules.due(request.now + _AHEAD)
    due = [one for one in ahead if one.schedule.product == product]
    first = sorted(due, key=lambda one: one.next_due_at)[:_UPCOMING]
    return [Upcoming(one.schedule.name, Moment(one.next_due_at)) for one in first]


def _old(request: PageRequest, board: Board, wanted: BoardFilter) -> str:
    """Return a warning if the newest evidence is older than the gates accept; else empty."""
    newest: datetime | None = max((row.at for row in board.rows if row.at), default=None)
    if newest is None or wanted.max_age is None or wanted.before:
        return ""
    if request.now - newest <= wanted.max_age:
        return ""
    hours = int(wanted.max_age.total_seconds() // 3600)
    return f"The newest evidence is older than the {hours} h that the gates believe."


def _data(product: str, sentences: Sequence[GateSentence]) -> dict[str, object]:
    gates = [
        {
            "gate": one.gate,
            "decision": one.word or None,
            "verdict": one.verdict or None,
            "sentence": one.text,
        }
        for one in sentences
    ]
    return {"product": product or None, "gates": gates}
