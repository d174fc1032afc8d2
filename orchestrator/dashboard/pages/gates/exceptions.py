"""What excuses a verdict's rules: known issues, exceptions, waivers, quarantines, flakiness."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from orchestrator.application.gate_policies import policy_of
from orchestrator.dashboard import urls
from orchestrator.dashboard.responses import Asked
from orchestrator.dashboard.table import Column, Row, Table, Text
from orchestrator.domain.gate.quantities import some
from orchestrator.domain.gate.verdict import RuleResult
from orchestrator.store.verdict_lines import StoredVerdict

SHOWN = 50
_COLUMNS = (
    Column("id", "Exception"),
    Column("kind", "Kind"),
    Column("rules", "Changed"),
    Column("reason", "Why"),
    Column("people", "Who"),
    Column("until", "Until"),
)
Words = tuple[str, str, str, str]
"""Kind, reason, who, until."""


def exception_table(asked: Asked, stored: StoredVerdict) -> Iterator[Table]:
    """One table, where anything changed what a rule came to."""
    changed: dict[str, list[str]] = {}
    for rule in stored.verdict.rules:
        if rule.kind not in ("known_issue", "flaky"):
            for name in rule.by:
                changed.setdefault(name, []).append(rule.id)
    if not changed:
        return
    known = _known(asked, stored)
    rows = [_row(name, rules, known) for name, rules in sorted(changed.items())]
    caption = "Exceptions that changed what a rule came to"
    yield Table(
        id="exceptions", caption=caption, columns=_COLUMNS, rows=rows[:SHOWN], total=len(rows)
    )


def _row(name: str, rules: list[str], known: Mapping[str, Words]) -> Row:
    kind, reason, who, until = known.get(name, ("", "", "", ""))
    href = urls.KNOWN_ISSUES if kind == "known issue" else ""
    rest = (Text(kind), Text(some(rules)), Text(reason), Text(who), Text(until))
    return Row((Text(name, href, is_code=True), *rest))


def _known(asked: Asked, stored: StoredVerdict) -> dict[str, Words]:
    """What is known of each: by the verdict itself, its policy, and the gate's waivers."""
    gates = asked.context.stores.gates
    found = {"flaky": ("flaky allowance", "It passed when it was run again.", "", "")}
    found |= dict(_told(rule) for rule in stored.verdict.rules if _tells(rule))
    version = gates.policy_version(stored.verdict.policy_digest)
    for one in policy_of(version).spec.exceptions if version else ():
        who = f"{one.author}, approved by {', '.join(one.approved_by)}"
        found[one.id] = ("exception", one.reason, who, one.expires.isoformat())
    for given in gates.waivers(gate=stored.gate):
        waiver = given.waiver
        who = f"{waiver.author}, approved by {waiver.approver or 'nobody'}"
        found[waiver.id] = ("waiver", waiver.reason, who, f"{waiver.expires:%Y-%m-%d %H:%M} UTC")
    return found


def _tells(rule: RuleResult) -> bool:
    return rule.kind == "known_issue" or rule.id.startswith("quarantine/")


def _told(rule: RuleResult) -> tuple[str, Words]:
    """Of a known issue, or of a quarantine: the rule of its own that only informs."""
    inputs = rule.inputs
    kind = "known issue" if rule.kind == "known_issue" else "quarantine"
    owner, until = str(inputs.get("owner", "")), str(inputs.get("expires", ""))
    return rule.by[0] if rule.by else rule.id, (kind, rule.sentence, owner, until)
