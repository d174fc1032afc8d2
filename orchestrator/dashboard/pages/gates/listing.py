"""Every gate: what it says now, since when, and what it waits for; keys and channels below."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fastapi import APIRouter, Response

from orchestrator.application.gate_status import Due, GateStanding, Line, gate_standings
from orchestrator.dashboard import urls
from orchestrator.dashboard.pages.gates.keys_channels import channel_table, key_table, last_try
from orchestrator.dashboard.pages.gates.rules import summary_of
from orchestrator.dashboard.pages.gates.waiting import wait_texts
from orchestrator.dashboard.responses import Asked, AskedDep, Page
from orchestrator.dashboard.table import Badge, Cell, Column, Moment, Row, Several, Table, Text

router = APIRouter()
GATES_SHOWN = 100
WAITS_SHOWN = 3
_LINE = Column("line", "Line")
"""Only where a gate has another line than its own."""
_COLUMNS = (
    Column("gate", "Gate"),
    _LINE,
    Column("decision", "Decision"),
    Column("since", "Since"),
    Column("verdict", "Newest verdict"),
    Column("age", "Age"),
    Column("waits_for", "Waits for"),
    Column("next_schedule", "Next scheduled"),
    Column("badge", "Badge"),
)


@router.get(urls.GATES)
def show_gates(asked: AskedDep, tried: str = "") -> Response:
    """All of them."""
    standings = gate_standings(asked.context)
    has_lines = any(_line_of(line) for one in standings for line in one.lines)
    rows = [row for one in standings for row in _rows(asked, one, has_lines=has_lines)]
    gates = Table(
        id="gates",
        caption="Gates",
        columns=[one for one in _COLUMNS if has_lines or one is not _LINE],
        rows=rows[:GATES_SHOWN],
        empty="No gate has a policy yet. The first check of a policy file stores it:",
        command="seatrial gate check gates/local.yaml",
        is_caption_hidden=True,
        total=len(rows),
    )
    keys, channels = key_table(asked), channel_table(asked)
    return asked.answer(
        Page(
            template="gates.html.j2",
            title="Gates",
            tables=(gates, keys, channels),
            facts={
                "gates": gates,
                "more_gates": max(len(rows) - GATES_SHOWN, 0),
                "signing": keys,
                "channels": channels,
                "tried": last_try(asked, tried),
            },
            section=urls.GATES,
        )
    )


def _rows(asked: Asked, standing: GateStanding, *, has_lines: bool) -> Iterator[Row]:
    """One for each line of the gate, the newest first; what it waits for stands at the first."""
    lines: Sequence[Line | None] = standing.lines or (None,)
    for number, line in enumerate(lines):
        head, *rest = _cells(asked, standing, line, is_first=number == 0)
        named = (Text(_line_of(line)),) if has_lines else ()
        yield Row((head, *named, *rest), tone=_tone(line))


def _line_of(line: Line | None) -> str:
    """Its name, where it is not the gate's own."""
    newest = line.standing.newest if line else None
    return newest.lineage if newest and newest.lineage != newest.gate else ""


def _cells(
    asked: Asked, standing: GateStanding, line: Line | None, *, is_first: bool
) -> tuple[Cell, ...]:
    stored = standing.stored
    badge = urls.badge_url(stored.gate)
    name = line.standing.newest.lineage if line else stored.gate
    gate = urls.with_query(urls.gate_url(stored.gate), lineage="" if is_first else name)
    return (
        Text(stored.gate, gate, note=stored.product),
        *_decided(asked, line),
        Several(list(_waits(standing)) if is_first else ()),
        _due(asked, standing, name),
        Text(badge, badge, is_code=True) if is_first else Text(""),
    )


def _decided(asked: Asked, line: Line | None) -> tuple[Cell, Cell, Cell, Cell]:
    if line is None:
        return Badge("unknown", note="no verdict yet"), Moment(None), Text(""), Moment(None)
    newest = line.standing.newest
    href = urls.verdict_url(newest.id)
    decision = Badge(newest.decision, href)
    stale = Badge("stale", note="its evidence is too old to pass again")
    return (
        Several((decision, stale)) if line.is_stale else decision,
        Moment(line.standing.since),
        Text(newest.id, href, note=summary_of(newest.decision, newest.summary)),
        Moment(newest.at, asked.now),
    )


def _tone(line: Line | None) -> str:
    if line is None:
        return "warn"
    tones = {"FAIL": "bad", "INCONCLUSIVE": "warn"}
    return tones.get(line.standing.newest.decision, "warn" if line.is_stale else "")


def _waits(standing: GateStanding) -> Iterator[Text]:
    texts = wait_texts(standing)
    yield from texts[:WAITS_SHOWN]
    if not texts:
        yield Text("nothing")
    if len(texts) > WAITS_SHOWN:
        many = len(texts) - WAITS_SHOWN
        yield Text(f"and {many} more", urls.gate_url(standing.stored.gate))


def _due(asked: Asked, standing: GateStanding, line: str) -> Cell:
    """The next schedule of that line; of the gate's own line, of any that ends in the gate."""
    mine = [one for one in standing.schedules if one.schedule.lineage == line]
    found: Due | None = next(iter(mine or standing.schedules), None)
    if found is None:
        return Text("nothing is scheduled", urls.SCHEDULES)
    href = urls.schedule_url(found.schedule.name)
    if found.next_at is None:
        return Text(found.schedule.name, href, note="paused")
    return Several((Moment(found.next_at), Text(found.schedule.name, href)))
