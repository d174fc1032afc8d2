"""What people said to a gate: waivers and approvals, and what a refused form had in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from orchestrator.application.ports.gates import StoredVerdict, StoredWaiver
from orchestrator.dashboard import urls
from orchestrator.dashboard.answer import Asked
from orchestrator.dashboard.table import Badge, Column, Moment, Row, Table, Text
from orchestrator.domain.gate.rules.result import is_bad
from orchestrator.domain.gate.snapshot import Approval
from orchestrator.domain.gate.verdict import RuleResult

SHOWN = 50
OFFERED = 100
_WAIVERS = (
    Column("waiver", "Waiver"),
    Column("state", "State"),
    Column("rule", "Rule"),
    Column("reason", "Why"),
    Column("author", "Asked for by"),
    Column("approver", "Approved by"),
    Column("given", "Given"),
    Column("until", "Until"),
)
_APPROVALS = (
    Column("by", "Approved by"),
    Column("at", "When"),
    Column("evidence", "Evidence"),
)


@dataclass(frozen=True, slots=True)
class Refused:
    """A form that was not accepted."""

    about: str
    """``waiver``, ``approval`` or ``verdict``."""
    problems: Sequence[tuple[str, str]]
    """(field, what is wrong with it)."""
    written: Mapping[str, str] = field(default_factory=dict)
    """What stood in it."""

    def of(self, name: str) -> str:
        """What is wrong with a field; empty where nothing is."""
        return "; ".join(words for one, words in self.problems if one == name)


def waiver_table(asked: Asked, gate: str) -> Table:
    """Those in force first, each kind newest first."""
    waivers = asked.context.stores.gates.waivers(gate=gate)[::-1]
    active = [one for one in waivers if asked.now < one.waiver.expires]
    over = [one for one in waivers if asked.now >= one.waiver.expires]
    return Table(
        id="waivers",
        caption=f"Waivers: {len(active)} active, {len(over)} expired",
        columns=_WAIVERS,
        rows=[_waiver(asked, one) for one in chain(active, over)][:SHOWN],
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


def _waiver(asked: Asked, one: StoredWaiver) -> Row:
    waiver = one.waiver
    is_over = asked.now >= waiver.expires
    only = f"only for the evidence of {one.verdict or 'one verdict'}" if waiver.evidence else ""
    return Row(
        (
            Text(waiver.id, note=only),
            Badge("expired" if is_over else "active"),
            Text(waiver.rule, is_code=True),
            Text(waiver.reason),
            Text(waiver.author),
            Text(waiver.approver),
            Moment(waiver.at),
            Moment(waiver.expires),
        ),
        id=waiver.id,
    )


def _approval(one: Approval, newest: StoredVerdict | None) -> Row:
    is_newest = newest is not None and newest.verdict.evidence_digest == one.evidence
    told = f"of {newest.id}" if newest and is_newest else "of other evidence"
    href = urls.verdict_url(newest.id) if newest and is_newest else ""
    evidence = Text(told, href, note=one.evidence[:12])
    return Row((Text(one.by), Moment(one.at), evidence))
