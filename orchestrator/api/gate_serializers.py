"""From what is stored of gates to what the API tells."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Any

from orchestrator.api.gate_responses import (
    ApprovalShape,
    DecidedShape,
    KeyShape,
    PolicyShape,
    ReplayShape,
    ReviewShape,
    RuleShape,
    VerdictBriefShape,
    VerdictShape,
    WaiverShape,
)
from orchestrator.application.replay_verdict import Replay
from orchestrator.domain.gate.payload_review import PayloadReview
from orchestrator.domain.gate.signing_key import PublicKey
from orchestrator.domain.gate.snapshot import Approval
from orchestrator.domain.gate.verdict import RuleResult, Verdict
from orchestrator.store.gates import StoredPolicy, StoredWaiver
from orchestrator.store.verdict_lines import StoredVerdict


def tell_policy(stored: StoredPolicy) -> PolicyShape:
    """A version of a policy."""
    return PolicyShape(
        gate=stored.gate,
        product=stored.product,
        digest=stored.digest,
        text=stored.text,
        first_seen=stored.first_seen,
        since=stored.since,
        by=stored.by,
    )


def tell_decided(verdict: Verdict) -> DecidedShape:
    """What a gate decides, stored or not."""
    return DecidedShape(**_decided(verdict))


def tell_verdict(stored: StoredVerdict) -> VerdictShape:
    """A stored verdict."""
    return VerdictShape(
        **_decided(stored.verdict),
        id=stored.id,
        runs=list(stored.runs),
        lineage=stored.lineage,
        created_at=stored.created_at,
        snapshot_digest=stored.snapshot_digest,
        document_digest=stored.document_digest,
        envelope_digest=stored.envelope_digest,
        key_id=stored.key_id,
    )


def tell_verdict_briefly(stored: StoredVerdict) -> VerdictBriefShape:
    """The same in a list."""
    return VerdictBriefShape(
        id=stored.id,
        gate=stored.gate,
        decision=stored.verdict.decision,
        summary=stored.verdict.summary,
        at=stored.verdict.at,
        subject=dict(stored.verdict.subject),
        runs=list(stored.runs),
        lineage=stored.lineage,
        policy_digest=stored.verdict.policy_digest,
    )


def tell_replay(found: Replay) -> ReplayShape:
    """What came of evaluating again."""
    return ReplayShape(
        id=found.stored.id,
        identical=found.is_identical,
        document_digest=found.stored.document_digest,
        replayed_digest=found.digest,
        decision=found.again.decision,
    )


def tell_waiver(stored: StoredWaiver, *, at: datetime) -> WaiverShape:
    """A waiver, as it stands at a time."""
    waiver = stored.waiver
    return WaiverShape(
        id=waiver.id,
        gate=waiver.gate,
        rule=waiver.rule,
        reason=waiver.reason,
        author=waiver.author,
        author_token=waiver.author_token,
        approver=waiver.approver,
        approver_token=waiver.approver_token,
        at=waiver.at,
        approved_at=waiver.approved_at,
        expires=waiver.expires,
        evidence=waiver.evidence,
        verdict=stored.verdict,
        seen=stored.seen,
        is_expired=at >= waiver.expires,
    )


def tell_review(review: PayloadReview, *, at: datetime) -> ReviewShape:
    """A review of a payload, as it stands at a time."""
    return ReviewShape(**asdict(review), is_expired=at >= review.expires)


def tell_approval(gate: str, approval: Approval) -> ApprovalShape:
    """An approval."""
    return ApprovalShape(
        gate=gate,
        by=approval.by,
        token=approval.token,
        at=approval.at,
        evidence=approval.evidence,
    )


def tell_key(key: PublicKey, *, at: datetime) -> KeyShape:
    """A key, as it stands at a time."""
    return KeyShape(
        id=key.id,
        public=key.public,
        created_at=key.created_at,
        not_after=key.not_after,
        retired_at=key.retired_at,
        is_over=key.ends_at is not None and at >= key.ends_at,
    )


def _decided(verdict: Verdict) -> dict[str, Any]:
    return {
        "gate": verdict.gate,
        "product": verdict.product,
        "decision": verdict.decision,
        "summary": verdict.summary,
        "at": verdict.at,
        "subject": dict(verdict.subject),
        "rules": [_rule(rule) for rule in verdict.rules],
        "warnings": list(verdict.warnings),
        "policy_digest": verdict.policy_digest,
        "evidence_digest": verdict.evidence_digest,
        "tool": verdict.tool,
        "rules_version": verdict.rules_version,
    }


def _rule(rule: RuleResult) -> RuleShape:
    return RuleShape(
        id=rule.id,
        kind=rule.kind,
        blocking=rule.blocking,
        outcome=rule.outcome,
        sentence=rule.sentence,
        inputs=dict(rule.inputs),
        by=list(rule.by),
    )
