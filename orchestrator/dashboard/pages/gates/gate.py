"""One gate: its decision, what it hangs on, its verdicts, what people said, and its policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fastapi import APIRouter, Response

from orchestrator.application.gate_policies import policy_of
from orchestrator.application.gate_status import GateStanding, Line, gate_standing
from orchestrator.dashboard import urls
from orchestrator.dashboard.pages.gates.changes import changes, in_words
from orchestrator.dashboard.pages.gates.rules import rule_table, severity, summary_of
from orchestrator.dashboard.pages.gates.signoffs import (
    Refused,
    approval_table,
    waivable,
    waiver_table,
)
from orchestrator.dashboard.pages.gates.versions import policy_facts
from orchestrator.dashboard.pages.gates.waiting import wait_texts
from orchestrator.dashboard.responses import Asked, AskedDep, Page
from orchestrator.dashboard.table import Badge, Column, Moment, Row, Table, Text
from orchestrator.domain.gate.excuse_terms import longest_exception
from orchestrator.domain.gate.verdict import RuleOutcome, RuleResult
from orchestrator.store.verdict_lines import StoredVerdict, VerdictLine

router = APIRouter()
RULES_SHOWN = 30
PAGE_SIZE = 20
WAITS_SHOWN = 10
_VERDICTS = (
    Column("verdict", "Verdict"),
    Column("decision", "Decision"),
    Column("subject", "Subject"),
    Column("changed", "Since the one before"),
    Column("runs", "Runs"),
    Column("policy", "Policy"),
    Column("decided", "Decided"),
)
_WRITTEN = ("rule", "reason", "days", "verdict")


@router.get(urls.GATES + "/{gate}")
def show_gate(asked: AskedDep, gate: str) -> Response:
    """All of it."""
    return gate_page(asked, gate)


def gate_page(asked: Asked, gate: str, refused: Refused | None = None) -> Response:
    """The page; where an action on it was refused, with what is wrong and what was written.

    Raises GateMissingError, PageMissingError.
    """
    standing = gate_standing(asked.context, gate)
    line = _line(asked, standing)
    newest = _newest(asked, standing, line)
    rules = sorted(newest.verdict.rules, key=severity) if newest else []
    open_ = [rule for rule in rules if rule.outcome is not RuleOutcome.OK]
    kept = [rule for rule in rules if rule.outcome is RuleOutcome.OK]
    policy = policy_facts(asked, standing.stored)
    parts = {
        **_rule_tables(open_, kept),
        "verdicts": _history(asked, standing, line),
        "waivers": waiver_table(asked, gate),
        "approvals": approval_table(asked, gate, newest),
        "versions": policy.versions,
    }
    return asked.answer(
        Page(
            template="gate.html.j2",
            title=gate,
            tables=tuple(parts.values()),
            facts={
                "gate": standing.stored,
                "parts": parts,
                "policy": policy,
                **_decision(asked, standing, line, newest),
                "rules_total": len(rules),
                "rules_ok": len(kept),
                "rules_hidden": len(rules) - len(open_[:RULES_SHOWN]) - len(kept[:RULES_SHOWN]),
                "summary": _summary(newest),
                **_form(asked, standing, newest, rules, refused),
            },
            data={"gate": gate, "policy": _told_policy(standing)},
            section=urls.GATES,
        ),
        status=422 if refused else 200,
    )


def _line(asked: Asked, standing: GateStanding) -> Line | None:
    wanted = asked.query.get("lineage", "")
    names = {one.standing.newest.lineage: one for one in standing.lines}
    return names.get(wanted) or next(iter(standing.lines), None)


def _newest(asked: Asked, standing: GateStanding, line: Line | None) -> StoredVerdict | None:
    return asked.context.stores.gates.verdict(line.standing.newest.id) if line else None


def _decision(
    asked: Asked, standing: GateStanding, line: Line | None, newest: StoredVerdict | None
) -> Mapping[str, object]:
    waits = wait_texts(standing)
    badge = urls.badge_url(standing.stored.gate)
    public = asked.context.gate.public_url
    return {
        "owner": standing.policy.metadata.owner,
        "line": line,
        "lines": [one.standing.newest.lineage for one in standing.lines],
        "newest": newest,
        "since": Moment(line.standing.since if line else None),
        "age": Moment(newest.verdict.at if newest else None, asked.now),
        "waits": waits[:WAITS_SHOWN],
        "waits_more": max(len(waits) - WAITS_SHOWN, 0),
        "schedules": [(one.schedule.name, Moment(one.next_at)) for one in standing.schedules[:10]],
        "badge": badge,
        "badge_markdown": f"![{standing.stored.gate}]({public}{badge})",
        "command": f"seatrial gate check {standing.stored.gate}",
        "key": asked.context.new_id(),
    }


def _rule_tables(open_: Sequence[RuleResult], kept: Sequence[RuleResult]) -> dict[str, Table]:
    bad = rule_table(
        open_[:RULES_SHOWN],
        caption="Rules that are not ok, the worst first",
        empty="Every rule is ok.",
    )
    good = rule_table(kept[:RULES_SHOWN], caption="Rules that are ok", id="rules-ok")
    return {bad.id: bad, good.id: good}


def _summary(newest: StoredVerdict | None) -> str:
    return summary_of(newest.verdict.decision, newest.verdict.summary) if newest else ""


def _form(
    asked: Asked,
    standing: GateStanding,
    newest: StoredVerdict | None,
    rules: Sequence[RuleResult],
    refused: Refused | None,
) -> Mapping[str, object]:
    """What stands in the waiver's form: what was written, or the rule that was pointed at."""
    written = refused.written if refused and refused.about == "waiver" else {}
    shown = newest.id if newest else ""
    given = {"rule": asked.query.get("rule", ""), "days": "7", "verdict": shown, **written}
    return {
        "refused": refused,
        "refused_about": refused.about if refused else "",
        "written": {name: given.get(name, "") for name in _WRITTEN},
        "only_this": bool(written.get("only_this")),
        "waivable": waivable(rules),
        "longest": longest_exception(policy_of(standing.stored)).days,
        "is_waiving": bool(asked.query.get("rule")) or (refused and refused.about == "waiver"),
    }


def _history(asked: Asked, standing: GateStanding, line: Line | None) -> Table:
    before = asked.query.get("before", "")
    lineage = line.standing.newest.lineage if line else None
    found = asked.context.stores.gates.verdict_lines(
        standing.stored.gate, lineage=lineage, limit=PAGE_SIZE + 1, before=before
    )
    shown = found[:PAGE_SIZE]
    rows = [
        _verdict(asked, one, found[number + 1] if number + 1 < len(found) else None)
        for number, one in enumerate(shown)
    ]
    has_more = len(found) > PAGE_SIZE
    return Table(
        id="verdicts",
        caption="Verdicts, newest first",
        columns=_VERDICTS,
        rows=rows,
        empty="The gate has not decided anything yet.",
        command=f"seatrial gate check {standing.stored.gate}",
        next=f"{asked.here(before=shown[-1].id)}#verdicts" if has_more else "",
        is_caption_hidden=True,
    )


def _verdict(asked: Asked, one: VerdictLine, before: VerdictLine | None) -> Row:
    href = urls.verdict_url(one.id)
    subject = one.subject
    version = f"{urls.with_query(urls.gate_url(one.gate), version=one.policy_digest)}#policy"
    is_new = before is not None and before.policy_digest != one.policy_digest
    last = max(one.runs, default="")
    more = f"and {len(one.runs) - 1} more" if len(one.runs) > 1 else ""
    return Row(
        (
            Text(one.id, href),
            Badge(one.decision, href),
            Text(subject.get("name", ""), note=subject.get("version", "")),
            Text(in_words(changes(before.rules, one.rules)) if before else "the first one"),
            Text(last, urls.run_url(last) if last else "", is_code=True, note=more),
            Text(one.policy_digest[:12], version, is_code=True, note="changed" if is_new else ""),
            Moment(one.at, asked.now),
        )
    )


def _told_policy(standing: GateStanding) -> Mapping[str, object]:
    stored = standing.stored
    return {
        "digest": stored.digest,
        "product": stored.product,
        "since": stored.since,
        "by": stored.by,
        "text": stored.text,
    }
