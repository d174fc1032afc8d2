"""What the API tells of gates: policies, verdicts, waivers, approvals and keys."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from orchestrator.api.models import ResponseModel
from orchestrator.domain.gate.payload_review import PayloadLevel
from orchestrator.domain.gate.verdict import Decision, RuleOutcome


class PolicyResponse(ResponseModel):
    """One version of a gate's policy."""

    gate: str
    product: str
    """The payload's name."""
    digest: str
    """Of what it says: it stays when only comments or layout change."""
    text: str
    """The file as it came."""
    first_seen: datetime
    """When this version was first put."""
    since: datetime
    """When it became this gate's policy."""
    by: str


class PolicyListResponse(ResponseModel):
    """Policies."""

    items: list[PolicyResponse]


class RuleResponse(ResponseModel):
    """One rule, explained."""

    id: str
    kind: str
    blocking: bool
    """Whether it can stop a release."""
    outcome: RuleOutcome
    sentence: str
    inputs: dict[str, Any]
    """The figures that it rests on."""
    by: list[str]
    """Ids of the known issues, exceptions, waivers and quarantines at work."""


class DecidedResponse(ResponseModel):
    """What a gate decides."""

    gate: str
    product: str
    decision: Decision
    summary: str
    at: datetime
    """The time that it was made for."""
    subject: dict[str, str]
    """Name, version and the digests that it binds to."""
    rules: list[RuleResponse]
    warnings: list[str]
    policy_digest: str
    evidence_digest: str
    """Of the frozen evidence without waivers and approvals, which are given for it."""
    tool: str
    rules_version: int
    """Of the rules that decided."""


class VerdictResponse(DecidedResponse):
    """A verdict; it never changes."""

    id: str
    """``V-0001``."""
    runs: list[str]
    lineage: str
    created_at: datetime
    snapshot_digest: str
    """Of everything that it was made from."""
    document_digest: str
    """Of the verdict's canonical JSON."""
    envelope_digest: str
    """Of the signed statements."""
    key_id: str
    """Who signed."""


class VerdictBriefResponse(ResponseModel):
    """A verdict in a list."""

    id: str
    gate: str
    decision: Decision
    summary: str
    at: datetime
    subject: dict[str, str]
    runs: list[str]
    lineage: str
    policy_digest: str


class VerdictListResponse(ResponseModel):
    """Verdicts, newest first."""

    items: list[VerdictBriefResponse]
    next: str | None
    """The cursor of the next page."""


class ReplayResponse(ResponseModel):
    """A verdict, evaluated again from what it was made from."""

    id: str
    identical: bool
    """Whether the bytes are the same."""
    document_digest: str
    """Of the stored verdict."""
    replayed_digest: str
    """Of what its inputs come to now."""
    decision: Decision
    """What they come to now."""


class WaiverResponse(ResponseModel):
    """A person's exception for a rule: it counts once somebody else has approved it."""

    id: str
    gate: str
    rule: str
    reason: str
    author: str
    """Who asked for it: the name that their token had then."""
    author_token: str
    """Its id; `socket`: the operating-system user, on the home's socket. Empty: typed."""
    approver: str
    """Who approved it; empty while nobody has: then it does not count."""
    approver_token: str
    at: datetime
    approved_at: datetime | None
    expires: datetime
    evidence: str
    """The only evidence that it is for; empty: whatever the gate looks at until it expires."""
    verdict: str
    """That its author had read: the one that they named, else the gate's newest."""
    seen: str
    """The evidence of that verdict."""
    is_expired: bool


class WaiverListResponse(ResponseModel):
    """Waivers, those that are over too."""

    items: list[WaiverResponse]


class ReviewResponse(ResponseModel):
    """A person's word that they read a payload."""

    id: str
    payload: str
    """sha256 of its archive."""
    level: PayloadLevel
    by: str
    """The name that their token had then."""
    token: str
    """Its id; `socket`: the operating-system user, on the home's socket."""
    note: str
    at: datetime
    expires: datetime
    is_expired: bool


class ReviewListResponse(ResponseModel):
    """Reviews of payloads, those that are over too."""

    items: list[ReviewResponse]


class ApprovalResponse(ResponseModel):
    """A person's yes to some evidence."""

    gate: str
    by: str
    """The name that their token had then."""
    token: str
    """Its id; `socket`: the operating-system user, on the home's socket. Empty: typed."""
    at: datetime
    evidence: str


class ApprovalListResponse(ResponseModel):
    """Approvals, in the order they came."""

    items: list[ApprovalResponse]


class KeyResponse(ResponseModel):
    """The public half of a key that verdicts are signed with."""

    id: str
    public: str
    """The raw bytes of Ed25519, in hex."""
    created_at: datetime | None
    not_after: datetime | None
    retired_at: datetime | None
    is_over: bool
    """It signs nothing any more, and still proves what it signed before."""


class KeyListResponse(ResponseModel):
    """Keys, oldest first."""

    items: list[KeyResponse]
