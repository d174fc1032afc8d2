"""Verdicts of a gate, their records, and the public keys that they are signed with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType

from orchestrator.domain.document_problems import InvalidDocumentError, Problem
from orchestrator.domain.extend_record import extended


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicKey:
    """The public half of a signing key; its private half is a file of one controller."""

    id: str
    """sha256 of the key's canonical form, as in securesystemslib."""
    public: str
    """The raw 32 bytes of Ed25519, in hex."""
    created_at: datetime | None = None
    """None if the file does not state it."""
    not_after: datetime | None = None
    """The time after which the key signs nothing; None without one."""
    retired_at: datetime | None = None
    """When a person retired it."""

    @property
    def ends_at(self) -> datetime | None:
        """Return when the key stops signing; None if that is unknown."""
        known = [at for at in (self.not_after, self.retired_at) if at is not None]
        return min(known, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyResponse(PublicKey):
    """A signing key with its present state."""

    is_over: bool
    """Whether it no longer signs; earlier signatures stay valid."""


def key_answer(key: PublicKey, at: datetime) -> KeyResponse:
    """Return the key with its state at a time."""
    is_over = key.ends_at is not None and at >= key.ends_at
    return extended(KeyResponse, key, is_over=is_over)


LATER: Mapping[str, bool] = MappingProxyType({"later": True})
"""Dataclass field metadata: a field with its default is left out of documents, so that older ones
keep their bytes.
"""


class Decision(StrEnum):
    """The release decision."""

    PASS = "PASS"  # noqa: S105 - a word, no secret
    PASS_WITH_EXCEPTIONS = "PASS_WITH_EXCEPTIONS"  # noqa: S105
    FAIL = "FAIL"
    INCONCLUSIVE = "INCONCLUSIVE"

    @property
    def rank(self) -> int:
        """From 0, the best, to 3, the worst."""
        return _RANKS[self]


_RANKS = {
    Decision.PASS: 0,
    Decision.PASS_WITH_EXCEPTIONS: 1,
    Decision.INCONCLUSIVE: 2,
    Decision.FAIL: 3,
}


class RuleOutcome(StrEnum):
    """The outcome of one rule."""

    OK = "ok"
    TOLERATED = "tolerated"
    """Tolerated by a known issue, a flaky allowance or a quarantine."""
    WAIVED = "waived"
    """Excused by an exception of the policy or a waiver."""
    UNKNOWN = "unknown"
    """The evidence does not decide it."""
    VIOLATED = "violated"


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleResult:
    """The result of a rule with its reason and inputs."""

    id: str
    """``platform/aws-a10g``, ``job/moe@gcp-l4``, ``performance/moe/tokens_per_s@gcp-l4``."""
    kind: str
    """evidence, subject, payload_level, platform, freshness, attestation, hardware, job,
    nothing_passed, subject_loaded, degraded, missing, test_set, selection, changed_tests,
    skips, new_failures, failed_first, flaky, known_issue, performance, cost, approval,
    own_environment, lost_attempts, untested, undeclared_requirements."""
    blocking: bool
    outcome: RuleOutcome
    sentence: str
    """The reason for a person, with figures."""
    inputs: Mapping[str, object] = field(default_factory=dict)
    """The figures: texts, integers, booleans, and lists and maps of these."""
    by: tuple[str, ...] = ()
    """Ids of the applied known issues, exceptions, waivers and quarantines."""
    waivable: bool = True
    """Whether exceptions and waivers may apply: not to stale, simulated or absent evidence, or the
    wrong machine.
    """
    failing: Mapping[str, int] = field(default_factory=dict, metadata=LATER)
    """Failing items by stable id (a test, a check, a reason) with their counts or amounts; empty
    where it is not violated. Waivers refer to these.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A verdict: the decision with every rule result. Equal inputs give equal bytes."""

    gate: str
    product: str
    decision: Decision
    at: datetime
    """The time of the evaluation."""
    subject: Mapping[str, str]
    policy_digest: str
    evidence_digest: str
    rules: tuple[RuleResult, ...]
    warnings: tuple[str, ...] = ()
    """Stale and expired exceptions, and other things to tidy up."""
    summary: str = ""
    """One sentence: the decision and its deciding rules."""
    tool: str = ""
    """``seatrial 0.1.0``."""
    rules_version: int = field(default=1, metadata=LATER)
    """Version of the rules that decided; a replay uses these."""


def reasons_of(decision: str, summary: str) -> str:
    """Return the reasons in a verdict's summary: the summary without the decision."""
    rest = summary.removeprefix(f"{decision}: ")
    return rest[:1].upper() + rest[1:]


def failing_items(verdict: Verdict) -> list[str]:
    """Return the failing tests and jobs that prevent a pass: ``t.py::one (unit@gcp-l4)``."""
    return [
        f"{name} ({rule.id.partition('/')[2]})"
        for rule in verdict.rules
        if rule.kind == "job" and rule.blocking and rule.outcome is RuleOutcome.VIOLATED
        for name in sorted(rule.failing)
    ]


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

    def refuse_other_product(self, present: StoredPolicy, *, name: str) -> None:
        """Raise InvalidDocumentError, about `name`, if the gate's present policy has another."""
        if self.product != present.product:
            said = (
                f"is {self.product!r}, and the gate {self.gate!r} is of {present.product!r}:"
                " a gate keeps its product; give the policy another name"
            )
            raise InvalidDocumentError(name, [Problem(("metadata", "product"), said)])


@dataclass(frozen=True, kw_only=True)
class VerdictEnvelope:
    """What is stored beside a verdict, with the digests of its blobs.

    Without slots, so that a record can extend it and a verdict.
    """

    id: str
    """``V-0001``; empty before it is stored."""
    runs: tuple[str, ...]
    """The runs whose evidence it evaluates."""
    lineage: str
    """The lineage of verdicts; the gate's name by default."""
    created_at: datetime
    snapshot_digest: str
    """sha256 of the frozen evidence, with the waivers and approvals at that time."""
    document_digest: str
    """sha256 of the verdict's canonical JSON."""
    envelope_digest: str
    """sha256 of the signed statements."""
    key_id: str
    """The signing key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredVerdict(VerdictEnvelope):
    """A verdict of a gate with its envelope."""

    gate: str
    verdict: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictResponse(VerdictEnvelope, Verdict):
    """A stored verdict, which never changes, with the digests of its blobs."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayResponse:
    """A verdict and its re-evaluation."""

    id: str
    identical: bool
    """Whether the bytes are equal."""
    document_digest: str
    """sha256 of the stored verdict."""
    replayed_digest: str
    """sha256 of the re-evaluated verdict."""
    decision: Decision
    """Decision of the re-evaluated verdict."""
