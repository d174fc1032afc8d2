"""What people said to a gate: waivers and approvals, and what a refused form had in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from orchestrator.application.ports.gates import StoredVerdict, StoredWaiver
from orchestrator.application.ports.stores import Scope
from orchestrator.dashboard import urls
from orchestrator.dashboard.responses import Asked, Format
from orchestrator.dashboard.table import Act, Badge, Cell, Column, Moment, Row, Table, Text
from orchestrator.domain.gate.rules.rule_results import is_bad
from orchestrator.domain.gate.snapshot import Approval
from orchestrator.domain.gate.verdict import RuleResult
from orchestrator.domain.person import person_key

SHOWN = 50
OFFERED = 100
_WAIVERS = (
    Column("waiver", "Waiver"),
    Column("state", "State"),
    Column("rule", "Rule"),
    Column("reason", "Why"),
    Column("author", "Requested by"),
    Column("approver", "Approved by"),
    Column("given", "Given"),
    Column("until", "Until"),
)
_APPROVE = Column("approve", "Approve", is_title_hidden=True)
_STATES = ("unapproved", "active", "expired")
_APPROVALS = (
    Column("by", "Approved by"),
    Column("at", "When"),
    Column("evidence", "Evidence"),
)


@dataclass(frozen=True, slots=True)
class Refused:
    """A form that was not accepted."""

    about: str
    """``waiver``, ``waivers`` (one that stands there), ``approval`` or ``verdict``."""
    problems: Sequence[tuple[str, str]]
    """(field, what is wrong with it)."""
    written: Mapping[str, str] = field(default_factory=dict)
    """What stood in it."""

    def of(self, name: str) -> str:
        """What is wrong with a field; empty where nothing is."""
        return "; ".join(words for one, words in self.problems if one == name)


def waiver_table(asked: Asked, gate: str) -> Table:
    """Those that wait for approval first, then those in force, each kind newest first."""
    waivers = asked.context.stores.gates.waivers(gate=gate)[::-1]
    by_state = {state: [w for w in waivers if _state(asked, w) == state] for state in _STATES}
    acts = asked.wanted is Format.HTML and asked.viewer.may(Scope.GATE)
    told = ", ".join(f"{len(found)} {state}" for state, found in by_state.items())
    return Table(
        id="waivers",
        caption=f"Waivers: {told}",
        columns=(*_WAIVERS, _APPROVE) if acts else _WAIVERS,
        rows=[_waiver(asked, w, acts=acts) for w in chain(*by_state.values())][:SHOWN],
        empty="Nobody has waived anything.",
        total=len(waivers),
        is_caption_hidden=True,
    )


def approval_table(asked: Asked, gate: str, newest: StoredVerdict | None) -> Table:
    """The newest first."""
    approvals = asked.context.stores.gates.approvals(gate)[::-1]
    return Table(
        id="approvals",
        caption="Approvals, newest first",
        columns=_APPROVALS,
        rows=[_approval(one, newest) for one in approvals[:SHOWN]],
        empty="Nobody has approved anything.",
        total=len(approvals),
        is_caption_hidden=True,
    )


def waivable(rules: Sequence[RuleResult]) -> list[str]:
    """Rules that stand in the way and that a waiver can reach."""
    found = [rule.id for rule in rules if rule.blocking and rule.waivable and is_bad(rule)]
    return found[:OFFERED]


def _state(asked: Asked, one: StoredWaiver) -> str:
    if asked.now >= one.waiver.expires:
        return "expired"
    return "unapproved" if one.waiver.approved_at is None else "active"


def _waiver(asked: Asked, one: StoredWaiver, *, acts: bool) -> Row:
    waiver, state = one.waiver, _state(asked, one)
    only = f"only for the evidence of {one.verdict or 'one verdict'}" if waiver.evidence else ""
    cells: list[Cell] = [
        Text(waiver.id, note=only),
        Badge(state),
        Text(waiver.rule, is_code=True),
        Text(waiver.reason),
        Text(waiver.author),
        Text(waiver.approver),
        Moment(waiver.at),
        Moment(waiver.expires),
    ]
    if acts:
        is_own = person_key(waiver.author) == person_key(asked.viewer.name)
        href = urls.approve_waiver_url(waiver.gate, waiver.id)
        act = Act("Approve", href, asked.viewer.csrf(), waiver.id)
        cells.append(act if state == "unapproved" and not is_own else Text(""))
    return Row(cells, id=waiver.id)


def _approval(one: Approval, newest: StoredVerdict | None) -> Row:
    is_newest = newest is not None and newest.verdict.evidence_digest == one.evidence
    told = f"of {newest.id}" if newest and is_newest else "of other evidence"
    href = urls.verdict_url(newest.id) if newest and is_newest else ""
    evidence = Text(told, href, note=one.evidence[:12])
    return Row((Text(one.by), Moment(one.at), evidence))
