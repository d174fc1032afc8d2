"""The page of a verdict: the decision, its rules, root causes, and how to verify it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated

from fastapi import APIRouter, Query, Response

from orchestrator.application.evaluate_gate import VerdictMissingError, find_verdict, replay
from orchestrator.dashboard import urls
from orchestrator.dashboard.pages.gates.gate import approval_table
from orchestrator.dashboard.pages.gates.verdict_tables import (
    SHOWN,
    changes,
    evidence_tables,
    exception_table,
    rule_table,
    severity,
)
from orchestrator.dashboard.responses import Page, PageRequest, PageRequestDep
from orchestrator.dashboard.table import Moment
from orchestrator.domain.blobs import BlobMissingError
from orchestrator.domain.gate.gate_documents import verdict_document
from orchestrator.domain.gate.snapshot import Approval
from orchestrator.domain.gate.verdict import (
    PublicKey,
    RuleOutcome,
    RuleResult,
    StoredVerdict,
    VerdictLine,
    reasons_of,
)

router = APIRouter()
ALL = "all"
CHANGES_SHOWN = 12
WARNINGS_SHOWN = 20
Offset = Annotated[int, Query(ge=0, le=1_000_000)]


@router.get("/verdicts/{verdict}")
def show_verdict(
    request: PageRequestDep, verdict: str, start: Offset = 0, only: str = "", again: str = ""
) -> Response:
    """Show a verdict; with `again`, also its reevaluation from the frozen evidence."""
    stored = find_verdict(request.context, verdict)
    rules = sorted(stored.verdict.rules, key=severity)
    wanted = _wanted(rules, only)
    tables = [
        rule_table(wanted[start : start + SHOWN], caption="Rules, the worst first"),
        *evidence_tables(rules),
        *exception_table(request, stored),
        approval_table(request, _approvals(request, stored), stored),
    ]
    return request.answer(
        Page(
            template="verdict.html.j2",
            title=f"{stored.id} of {stored.gate}",
            tables=tables,
            facts={
                "it": stored,
                "verdict": stored.verdict,
                "at": Moment(stored.verdict.at),
                "summary": reasons_of(stored.verdict.decision, stored.verdict.summary),
                "age": Moment(stored.verdict.at, request.now),
                "parts": {table.id: table for table in tables},
                "warnings": stored.verdict.warnings[:WARNINGS_SHOWN],
                "replayed": _replayed(request, stored) if again else "",
                **_beside(request, stored, rules),
                **_pages(request, start, len(wanted)),
                **_outcomes(rules, only),
                **_proof(request, stored),
            },
            data={"id": stored.id, "verdict": verdict_document(stored.verdict)},
            section=urls.GATES,
        )
    )


def _approvals(request: PageRequest, stored: StoredVerdict) -> Sequence[Approval]:
    gates = request.context.stores.gates
    return gates.approvals(stored.gate, evidence=stored.verdict.evidence_digest)


def _wanted(rules: Sequence[RuleResult], only: str) -> list[RuleResult]:
    """Return the rules of an outcome, or of `all`; by default those that are not ok, if any."""
    if only and only != ALL:
        return [rule for rule in rules if rule.outcome == only]
    open_ = [rule for rule in rules if rule.outcome is not RuleOutcome.OK]
    return open_ if open_ and not only else list(rules)


def _beside(
    request: PageRequest, stored: StoredVerdict, rules: Sequence[RuleResult]
) -> Mapping[str, object]:
    """Return the neighbours of a verdict in its lineage, and the changes since the earlier one."""
    before, after = _neighbours(request, stored)
    changed = changes(before.rules, rules) if before else []
    return {
        "before": before,
        "after": after,
        "changed": changed[:CHANGES_SHOWN],
        "changed_more": max(len(changed) - CHANGES_SHOWN, 0),
        "compare": _compare(stored, before, rules),
    }


def _neighbours(
    request: PageRequest, stored: StoredVerdict
) -> tuple[VerdictLine | None, VerdictLine | None]:
    lines, line = request.context.stores.gates, stored.lineage
    before = lines.verdict_lines(stored.gate, lineage=line, limit=1, before=stored.id)
    after = lines.verdict_lines(stored.gate, lineage=line, limit=1, after=stored.id)
    return next(iter(before), None), next(iter(after), None)


def _compare(stored: StoredVerdict, before: VerdictLine | None, rules: Sequence[RuleResult]) -> str:
    """Return the URL of a comparison with the last green run, or with the previous verdict's."""
    newest = max(stored.runs, default="")
    green = next((str(one.inputs.get("last_green", "")) for one in rules if _is_new(one)), "")
    old = green or (max(before.runs, default="") if before else "")
    return urls.compare_url(old, newest) if old and newest and old != newest else ""


def _is_new(rule: RuleResult) -> bool:
    return rule.kind == "new_failures"


def _pages(request: PageRequest, start: int, total: int) -> Mapping[str, object]:
    end = min(start + SHOWN, total)
    return {
        "rules_total": total,
        "rules_shown": f"{start + 1:,} to {end:,} of {total:,}" if start < total else "",
        "rules_next": request.here(start=str(end)) if end < total else "",
        "rules_before": request.here(start=str(max(start - SHOWN, 0) or "")) if start else "",
    }


def _outcomes(rules: Sequence[RuleResult], only: str) -> Mapping[str, object]:
    """Return the number of rules by outcome, as filters."""
    counted = Counter(rule.outcome for rule in rules)
    worst = (*reversed(RuleOutcome),)
    return {
        "only": only,
        "outcomes": [(one.value, counted[one]) for one in worst if counted[one]],
        "rules_all": len(rules),
        "rules_open": len(rules) - counted[RuleOutcome.OK],
    }


def _proof(request: PageRequest, stored: StoredVerdict) -> Mapping[str, object]:
    keys = request.context.stores.gates.signing_keys()
    key = next((one for one in keys if one.id == stored.key_id), None)
    return {
        "key": key,
        "key_state": _key_state(key, stored),
        "bundle": urls.verdict_file_url(stored.id, "statement"),
        "frozen": urls.verdict_file_url(stored.id, "evidence"),
        "command": f"seatrial gate verify {stored.id}.intoto.jsonl --key keyring.json",
        "digests": (
            ("Policy", stored.verdict.policy_digest),
            ("Evidence", stored.verdict.evidence_digest),
            ("Evidence with waivers and approvals", stored.snapshot_digest),
            ("Verdict", stored.document_digest),
            ("Signed bundle", stored.envelope_digest),
        ),
    }


def _key_state(key: PublicKey | None, stored: StoredVerdict) -> str:
    """Return the state of the signing key in a sentence."""
    if key is None:
        return "This controller does not know the key, so the signature cannot be verified here."
    if key.ends_at is None or stored.created_at < key.ends_at:
        return ""
    return f"The key had ended on {key.ends_at:%Y-%m-%d} when this was signed: it does not verify."


def _replayed(request: PageRequest, stored: StoredVerdict) -> str:
    """Return the result of the replay: ``same``, ``gone``, or the other decision."""
    try:
        found = replay(request.context, stored.id)
    except (BlobMissingError, VerdictMissingError):
        return "gone"
    return "same" if found.is_identical else found.again.decision.value
