"""What is stored of a gate: versions of its policy, and its verdicts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from orchestrator.domain.gate.verdict import Decision, RuleOutcome, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPolicy:
    """One version of a policy, with the time since when it is its gate's."""

    gate: str
    product: str
    digest: str
    """Of what it says: it stays when only comments or layout change."""
    text: str
    """The file as it came."""
    document: str
    """The same with every default spelled out, as canonical JSON; `digest` is of these bytes."""
    first_seen: datetime
    """When this version was first put, at any gate."""
    since: datetime
    """When it became this gate's policy; a version that comes back has a new line."""
    by: str = ""
    """Who put it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredVerdict:
    """A verdict and where the bytes are that it was made from. All digests are of blobs."""

    id: str
    """``V-0001``; empty of one that is about to be stored."""
    gate: str
    verdict: Verdict
    runs: tuple[str, ...]
    """Whose evidence it is about."""
    lineage: str
    """The line of verdicts that it stands in; the gate's name where nobody says."""
    created_at: datetime
    snapshot_digest: str
    """Of the frozen evidence with the waivers and approvals that it was made with."""
    document_digest: str
    """Of the verdict's canonical bytes."""
    envelope_digest: str
    """Of the signed statements."""
    key_id: str
    """Who signed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictResponse(Verdict):
    """A stored verdict, which never changes, and where its bytes are."""

    id: str
    """``V-0001``."""
    runs: tuple[str, ...]
    """Whose evidence it is about."""
    lineage: str
    """The line of verdicts that it belongs to."""
    created_at: datetime
    snapshot_digest: str
    """Of everything that it was made from."""
    document_digest: str
    """Of the verdict's canonical JSON."""
    envelope_digest: str
    """Of the signed statements."""
    key_id: str
    """Who signed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleLine:
    """The outcome of one rule."""

    id: str
    kind: str
    blocking: bool
    outcome: RuleOutcome
    sentence: str
    """Why, where a blocking rule is open or violated; of others nobody asks here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictLine:
    """A stored verdict without the inputs of its rules."""

    id: str
    gate: str
    lineage: str
    decision: Decision
    summary: str
    at: datetime
    created_at: datetime
    subject: Mapping[str, str]
    runs: tuple[str, ...]
    policy_digest: str
    rules: tuple[RuleLine, ...]
