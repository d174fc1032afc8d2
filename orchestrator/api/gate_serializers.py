"""From what is stored of gates to what the API tells."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Any

from orchestrator.api.gate_responses import (
    ApprovalResponse,
    DecidedResponse,
    KeyResponse,
    PolicyResponse,
    ReplayResponse,
    ReviewResponse,
    RuleResponse,
    VerdictBriefResponse,
    VerdictResponse,
    WaiverResponse,
)
from orchestrator.application.ports.gates import StoredPolicy, StoredVerdict, StoredWaiver
from orchestrator.application.ports.signer import PublicKey
from orchestrator.application.replay_verdict import Replay
from orchestrator.domain.gate.payload_review import PayloadReview
from orchestrator.domain.gate.snapshot import Approval
from orchestrator.domain.gate.verdict import RuleResult, Verdict


def tell_policy(stored: StoredPolicy) -> PolicyResponse:
    """A version of a policy."""
    return PolicyResponse(
        gate=stored.gate,
        product=stored.product,
        digest=stored.digest,
        text=stored.text,
        first_seen=stored.first_seen,
        since=stored.since,
        by=stored.by,
    )


def tell_decided(verdict: Verdict) -> DecidedResponse:
    """What a gate decides, stored or not."""
    return DecidedResponse(**_decided(verdict))


def tell_verdict(stored: StoredVerdict) -> VerdictResponse:
    """A stored verdict."""
    return VerdictResponse(
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


def tell_verdict_briefly(stored: StoredVerdict) -> VerdictBriefResponse:
    """The same in a list."""
    return VerdictBriefResponse(
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


def tell_replay(found: Replay) -> ReplayResponse:
    """What came of evaluating again."""
    return ReplayResponse(
        id=found.stored.id,
        identical=found.is_identical,
        document_digest=found.stored.document_digest,
        replayed_digest=found.digest,
        decision=found.again.decision,
    )


def tell_waiver(stored: StoredWaiver, *, at: datetime) -> WaiverResponse:
    """A waiver, as it stands at a time."""
    waiver = stored.waiver
    return WaiverResponse(
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


def tell_review(review: PayloadReview, *, at: datetime) -> ReviewResponse:
    """A review of a payload, as it stands at a time."""
    return ReviewResponse(**asdict(review), is_expired=at >= review.expires)


def tell_approval(gate: str, approval: Approval) -> ApprovalResponse:
    """An approval."""
    return ApprovalResponse(
        gate=gate,
        by=approval.by,
        token=approval.token,
        at=approval.at,
        evidence=approval.evidence,
    )


def tell_key(key: PublicKey, *, at: datetime) -> KeyResponse:
    """A key, as it stands at a time."""
    return KeyResponse(
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


def _rule(rule: RuleResult) -> RuleResponse:
    return RuleResponse(
        id=rule.id,
        kind=rule.kind,
        blocking=rule.blocking,
        outcome=rule.outcome,
        sentence=rule.sentence,
        inputs=dict(rule.inputs),
        by=list(rule.by),
    )
