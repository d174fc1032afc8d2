"""Stored records of a gate: its policy versions and its verdicts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from orchestrator.domain.gate.verdict import Decision, RuleOutcome, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPolicy:
    """A version of a policy, with the time from which its gate uses it."""

    gate: str
    product: str
    digest: str
    """Digest of its content; comments and layout do not change it."""
    text: str
    """The file as it was uploaded."""
    document: str
    """Canonical JSON with every default spelled out; `digest` is of these bytes."""
    first_seen: datetime
    """When any gate first stored this version."""
    since: datetime
    """When it became this gate's policy; a version that is restored has a new entry."""
    by: str = ""
    """Who stored it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredVerdict:
    """A verdict and the digests of its blobs."""

    id: str
    """``V-0001``; empty before it is stored."""
    gate: str
    verdict: Verdict
    runs: tuple[str, ...]
    """The runs whose evidence it judges."""
    lineage: str
    """The lineage of verdicts; the gate's name by default."""
    created_at: datetime
    snapshot_digest: str
    """sha256 of the frozen evidence, with the waivers and approvals at that time."""
    document_digest: str
    """sha256 of the verdict's canonical bytes."""
    envelope_digest: str
    """sha256 of the signed statements."""
    key_id: str
    """The signing key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictResponse(Verdict):
    """A stored verdict, which never changes, with the digests of its blobs."""

    id: str
    """``V-0001``."""
    runs: tuple[str, ...]
    """The runs whose evidence it judges."""
    lineage: str
    """The lineage of verdicts."""
    created_at: datetime
    snapshot_digest: str
    """sha256 of the frozen evidence."""
    document_digest: str
    """sha256 of the verdict's canonical JSON."""
    envelope_digest: str
    """sha256 of the signed statements."""
    key_id: str
    """The signing key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleLine:
    """The outcome of one rule."""

    id: str
    kind: str
    blocking: bool
    outcome: RuleOutcome
    sentence: str
    """The reason of a blocking rule that is unknown or violated; empty for others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictLine:
    """A stored verdict without the inputs of its rules, for lists."""

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
