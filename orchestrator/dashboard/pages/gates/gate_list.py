"""The list of gates with their open items, the page of signing keys, and channels' tests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Response

from orchestrator.application.channels import call_channel, find_channel
from orchestrator.application.gate_status import (
    GateSchedule,
    GateStatus,
    PendingItem,
    VerdictLineage,
    WaitReason,
    gate_statuses,
)
from orchestrator.dashboard import urls
from orchestrator.dashboard.labels import age, shortened
from orchestrator.dashboard.responses import Page, PageMissingError, PageRequest, PageRequestDep
from orchestrator.dashboard.session import Viewer, needs
from orchestrator.dashboard.table import (
    Act,
    Badge,
    CellList,
    Column,
    Fact,
    FoldedFacts,
    Moment,
    Number,
    Row,
    Table,
    TableCell,
    Text,
)
from orchestrator.domain.caller_identity import Scope
from orchestrator.domain.channel import Channel, ChannelHealth, DeliveryReceipt
from orchestrator.domain.gate.verdict import PublicKey, reasons_of

router = APIRouter()
RUN_SHOWN = 12
"""Characters of a run's id in a sentence."""
_LONGEST = 160


def wait_texts(status: GateStatus) -> list[Text]:
    """Return what a lineage waits for, each with a link."""
    return [_text(status, wait) for wait in status.waits]


def _text(status: GateStatus, wait: PendingItem) -> Text:
    gate = urls.gate_url(status.stored.gate)
    match wait.lack:
        case WaitReason.VERDICT:
            note = f"seatrial gate check {status.stored.gate}"
            return Text("its first verdict", gate, note=note)
        case WaitReason.JUDGEMENT:
            return Text(f"a verdict on run {wait.run[:RUN_SHOWN]}", urls.run_url(wait.run))
        case WaitReason.RUN:
            return Text(f"run {wait.run[:RUN_SHOWN]}, which goes on", urls.run_url(wait.run))
        case WaitReason.FRESH_EVIDENCE:
            believed = status.policy.spec.evidence.max_age
            return Text(f"evidence that is not older than {believed}")
        case WaitReason.POLICY:
            return Text("a verdict by its present policy", f"{gate}#policy")
        case WaitReason.APPROVAL:
            return _sentence(wait, f"{gate}#approvals")
        case WaitReason.EVIDENCE:
            return _sentence(wait)


def _sentence(wait: PendingItem, href: str = "") -> Text:
    return Text(shortened(wait.sentence, _LONGEST), href, is_sentence=True)


GATES_SHOWN = 100
WAITS_SHOWN = 3
_LINE = Column("line", "Line")
"""Column of the lineage, which is shown only if a gate has another lineage than its own."""
_COLUMNS = (
    Column("gate", "Gate"),
    _LINE,
    Column("decision", "Decision"),
    Column("since", "Since"),
    Column("verdict", "Newest verdict"),
    Column("decided", "Decided"),
    Column("waits_for", "Open items"),
    Column("next_schedule", "Next scheduled"),
)


@router.get(urls.GATES)
def show_gates(request: PageRequestDep, tested: str = "") -> Response:
    """Show every gate with its lineages."""
    statuses = gate_statuses(request.context)
    has_lines = any(_line_of(line) for one in statuses for line in one.lines)
    rows = [row for one in statuses for row in _rows(request, one, has_lines=has_lines)]
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
    keys, channels = key_table(request), channel_table(request)
    return request.answer(
        Page(
            template="gates.html.j2",
            title="Gates",
            tables=(gates, keys, channels),
            facts={
                "gates": gates,
                "more_gates": max(len(rows) - GATES_SHOWN, 0),
                "signing": keys,
                "channels": channels,
                "tested": last_test(request, tested),
            },
            section=urls.GATES,
        )
    )


def _rows(request: PageRequest, status: GateStatus, *, has_lines: bool) -> Iterator[Row]:
    """Yield a row for each lineage of the gate, newest first; the first shows what is pending."""
    lines: Sequence[VerdictLineage | None] = status.lines or (None,)
    for number, line in enumerate(lines):
        head, *rest = _cells(request, status, line, is_first=number == 0)
        named = (Text(_line_of(line)),) if has_lines else ()
        yield Row((head, *named, *rest), tone=_tone(line))


def _line_of(line: VerdictLineage | None) -> str:
    """Return the lineage's name; empty if it is the gate's name."""
    newest = line.head.newest if line else None
    return newest.lineage if newest and newest.lineage != newest.gate else ""


def _cells(
    request: PageRequest, status: GateStatus, line: VerdictLineage | None, *, is_first: bool
) -> tuple[TableCell, ...]:
    stored = status.stored
    name = line.head.newest.lineage if line else stored.gate
    gate = urls.with_query(urls.gate_url(stored.gate), lineage="" if is_first else name)
    return (
        Text(stored.gate, gate, note=stored.product),
        *_decided(request, line),
        CellList(list(_waits(status)) if is_first else ()),
        _due(status, name),
    )


def _decided(
    request: PageRequest, line: VerdictLineage | None
) -> tuple[TableCell, TableCell, TableCell, TableCell]:
    if line is None:
        return Badge("unknown", note="no verdict yet"), Moment(None), Text(""), Moment(None)
    newest = line.head.newest
    href = urls.verdict_url(newest.id)
    decision = Badge(newest.decision, href)
    stale = Badge("stale", note="its evidence is too old to pass again")
    return (
        CellList((decision, stale)) if line.is_stale else decision,
        Moment(line.head.since),
        Text(newest.id, href, note=reasons_of(newest.decision, newest.summary)),
        Moment(newest.at, request.now),
    )


def _tone(line: VerdictLineage | None) -> str:
    if line is None:
        return "warn"
    tones = {"FAIL": "bad", "INCONCLUSIVE": "warn"}
    return tones.get(line.head.newest.decision, "warn" if line.is_stale else "")


def _waits(status: GateStatus) -> Iterator[Text]:
    texts = wait_texts(status)
    yield from texts[:WAITS_SHOWN]
    if not texts:
        yield Text("nothing")
    if len(texts) > WAITS_SHOWN:
        many = len(texts) - WAITS_SHOWN
        yield Text(f"and {many} more", urls.gate_url(status.stored.gate))


def _due(status: GateStatus, line: str) -> TableCell:
    """Return the lineage's next schedule; for the gate's own lineage, any schedule of the gate."""
    mine = [one for one in status.schedules if one.schedule.lineage == line]
    found: GateSchedule | None = next(iter(mine or status.schedules), None)
    if found is None:
        return Text("nothing is scheduled", urls.SCHEDULES)
    href = urls.schedule_url(found.schedule.name)
    if found.next_at is None:
        return Text(found.schedule.name, href, note="paused")
    return CellList((Moment(found.next_at), Text(found.schedule.name, href)))


SHOWN = 50
_SOON = timedelta(days=30)
_KEYS = (
    Column("key", "Key"),
    Column("state", "State"),
    Column("made", "Created"),
    Column("ends", "Ends"),
    Column("retired", "Retired"),
)


def key_table(request: PageRequest) -> Table:
    """Return the table of signing keys, the newest first."""
    keys = request.context.stores.gates.signing_keys()
    return Table(
        id="signing",
        caption="Keys that verdicts are signed with",
        columns=_KEYS,
        rows=[_key(request, one) for one in reversed(keys)][:SHOWN],
        empty="No verdict was signed yet: a key is made when the first one is.",
        total=len(keys),
        is_caption_hidden=True,
    )


def _key(request: PageRequest, key: PublicKey) -> Row:
    ends = key.ends_at
    is_over = ends is not None and request.now >= ends
    state = "retired" if key.retired_at else "expired" if is_over else "active"
    is_soon = ends is not None and not is_over and ends - request.now < _SOON
    note = f"ends in {age(request.now, ends)}" if ends is not None and is_soon else ""
    return Row(
        (
            FoldedFacts(key.id[:16], (Fact("id", key.id), Fact("public", key.public))),
            Badge(state, note=note),
            Moment(key.created_at),
            Moment(key.not_after),
            Moment(key.retired_at),
        ),
        tone="warn" if is_soon else "",
    )


_CHANNELS = (
    Column("channel", "Channel"),
    Column("state", "State"),
    Column("target", "Sends to"),
    Column("lines", "Events"),
    Column("last_ok", "Last success"),
    Column("waiting", "Waiting", is_number=True),
)
_TEST = Column("test", "Test", is_title_hidden=True)


def channel_table(request: PageRequest) -> Table:
    """Return the table of channels, oldest first; admins have a test button for each."""
    channels = request.context.stores.outbox.channels()
    return Table(
        id="channels",
        caption="Channels",
        columns=(*_CHANNELS, _TEST) if request.viewer.may(Scope.ADMIN) else _CHANNELS,
        rows=[_channel(request, *one) for one in channels],
        empty="No channel exists yet: no verdict is announced.",
        command="seatrial channel add NAME URL",
        is_caption_hidden=True,
    )


def last_test(request: PageRequest, channel_id: str) -> tuple[Channel, DeliveryReceipt] | None:
    """Return a channel and the receipt of its last test; None if it was never tested."""
    channel = find_channel(request.context, channel_id) if channel_id else None
    if channel is None:
        return None
    tests = request.context.stores.outbox.log(channel.id, limit=1, only_tests=True)
    return next(((channel, attempts[-1].receipt) for _, attempts in tests), None)


@router.post(urls.CHANNEL_TEST)
def send_test(
    request: PageRequestDep, channel: str, _viewer: Annotated[Viewer, needs(Scope.ADMIN)]
) -> Response:
    """Send a test message now; if it succeeds, a disabled channel is enabled again."""
    found = find_channel(request.context, channel)
    if found is None:
        raise PageMissingError(f"there is no channel {channel!r}; it may have been removed")
    call_channel(request.context, found)
    return request.go(urls.with_query(urls.GATES, tested=found.id) + "#channels-title")


def _channel(request: PageRequest, channel: Channel, health: ChannelHealth) -> Row:
    since = health.disabled_at or health.failing_since
    why = health.disabled_reason or (f"for {age(since, request.now)}" if since else "")
    return Row(
        (
            Text(channel.name, note=channel.kind.value),
            Badge(health.state, note=why),
            Text(channel.shown_target),
            Text(", ".join(channel.lineages) or "everything"),
            Moment(health.last_success_at, request.now),
            Number(health.waiting),
            *_button(request, channel),
        ),
        tone={"failing": "bad", "disabled": "warn"}.get(health.state, ""),
    )


def _button(request: PageRequest, channel: Channel) -> Sequence[Act]:
    if not request.viewer.may(Scope.ADMIN):
        return ()
    href, csrf = urls.channel_test_url(channel.id), request.viewer.csrf()
    return (Act("Send a test", href, csrf, about=f"to {channel.name}"),)
