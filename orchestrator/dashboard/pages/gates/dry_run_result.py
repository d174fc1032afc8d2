"""What a dry run came to, beside what the stored verdicts say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orchestrator.application.dry_run_policy import Tried
from orchestrator.application.ports.gates import StoredVerdict
from orchestrator.dashboard import urls
from orchestrator.dashboard.pages.gates.changes import Change, changes, in_words
from orchestrator.dashboard.pages.gates.rules import SHOWN, rule_table, severity
from orchestrator.dashboard.responses import Asked
from orchestrator.dashboard.table import Badge, Column, Moment, Row, Table, Text
from orchestrator.domain.gate.gate_documents import verdict_document
from orchestrator.domain.gate.verdict import Verdict

_CHANGES = (
    Column("rule", "Rule"),
    Column("stored", "Stored verdict"),
    Column("tried", "Dry run"),
)
_PAST = (
    Column("verdict", "Verdict"),
    Column("subject", "Subject"),
    Column("decided", "Decided"),
    Column("said", "Stored decision"),
    Column("would_say", "Dry run"),
    Column("changed", "What differs"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Of one dry run."""

    verdict: Verdict
    stored: StoredVerdict | None
    """The gate's newest verdict of the same runs, if there is one."""
    runs: Sequence[str]
    tables: Sequence[Table]
    hidden: int
    """Rules that a page has no room for."""

    @property
    def told(self) -> Mapping[str, object]:
        """For `.json`."""
        stored = self.stored.id if self.stored else None
        return {"verdict": verdict_document(self.verdict), "stored": stored}


def beside(asked: Asked, gate: str, runs: Sequence[str], verdict: Verdict) -> Outcome:
    """The dry run, and the newest verdict of the gate on the very same runs."""
    looked_at = tuple(sorted(runs)) or _runs_of(verdict)
    last = looked_at[-1] if looked_at else None
    known = asked.context.stores.gates.verdicts(gate=gate, run=last, limit=10) if last else []
    stored = next((one for one in known if tuple(sorted(one.runs)) == looked_at), None)
    rules = sorted(verdict.rules, key=severity)
    found = changes(stored.verdict.rules, rules) if stored else []
    return Outcome(
        verdict=verdict,
        stored=stored,
        runs=looked_at,
        tables=(
            *([_change_table(found)] if stored else []),
            rule_table(rules[:SHOWN], caption="Rules of the dry run, the worst first"),
        ),
        hidden=max(len(rules) - SHOWN, 0),
    )


def past_table(asked: Asked, tried: Sequence[Tried]) -> Table:
    """One row for each verdict, newest first."""
    return Table(
        id="past",
        caption="Decisions on past evidence",
        columns=_PAST,
        rows=[_past(asked, one) for one in tried],
        empty="The gate has not decided anything yet.",
        is_caption_hidden=True,
    )


def _runs_of(verdict: Verdict) -> tuple[str, ...]:
    """The runs that were taken where nobody named any: the rule of the evidence has them."""
    found = next((one.inputs.get("runs") for one in verdict.rules if one.kind == "evidence"), None)
    return tuple(sorted(map(str, found))) if isinstance(found, list | tuple) else ()


def _change_table(found: Sequence[Change]) -> Table:
    return Table(
        id="changes",
        caption="Rules with another outcome",
        columns=_CHANGES,
        rows=[_change(one) for one in found[:SHOWN]],
        empty="Every blocking rule comes to the same.",
        total=len(found),
    )


def _change(one: Change) -> Row:
    before = Badge(one.before) if one.before else Text(one.before_words)
    now = Badge(one.now) if one.now else Text(one.now_words)
    return Row((Text(one.rule, is_code=True), before, now), tone="bad" if one.is_worse else "")


def _past(asked: Asked, one: Tried) -> Row:
    stored, verdict = one.stored, one.verdict
    then = stored.verdict
    href = urls.verdict_url(stored.id)
    subject = then.subject
    differs = verdict is not None and verdict.decision is not then.decision
    told = in_words(changes(then.rules, verdict.rules)) if verdict else "its evidence is gone"
    return Row(
        (
            Text(stored.id, href),
            Text(subject.get("name", ""), note=subject.get("version", "")),
            Moment(then.at, asked.now),
            Badge(then.decision, href),
            Badge(verdict.decision if verdict else "", note="another decision" * differs),
            Text(told),
        ),
        tone="warn" if differs else "",
    )
