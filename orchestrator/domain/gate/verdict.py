"""Verdicts of a gate, stored verdicts, and the public keys of their signatures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType

from orchestrator.domain.copied_fields import extended
from orchestrator.domain.document_problems import InvalidDocumentError, Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicKey:
    """The public part of a signing key; the private part is a file of one controller."""

    id: str
    """sha256 of the key's canonical form, as securesystemslib defines it."""
    public: str
    """The 32 bytes of the Ed25519 key, in hex."""
    created_at: datetime | None = None
    """When the key was created; None if its file does not state it."""
    not_after: datetime | None = None
    """Time after which the key does not sign; None without a limit."""
    retired_at: datetime | None = None
    """Time at which a person retired the key; None if it is not retired."""

    @property
    def ends_at(self) -> datetime | None:
        """When the key stops signing; None if that is unknown."""
        known = [at for at in (self.not_after, self.retired_at) if at is not None]
        return min(known, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyResponse(PublicKey):
    """A signing key with its present state."""

    is_over: bool
    """Whether the key does not sign any more; its earlier signatures stay valid."""


def key_answer(key: PublicKey, at: datetime) -> KeyResponse:
    """Return a key with its state at the time `at`."""
    is_over = key.ends_at is not None and at >= key.ends_at
    return extended(KeyResponse, key, is_over=is_over)


LATER: Mapping[str, bool] = MappingProxyType({"later": True})
"""Metadata of a dataclass field that documents omit if it has its default, so that older documents
keep their bytes."""


class Decision(StrEnum):
    """The decision of a gate."""

    PASS = "PASS"  # noqa: S105 - a word, no secret
    PASS_WITH_EXCEPTIONS = "PASS_WITH_EXCEPTIONS"  # noqa: S105
    FAIL = "FAIL"
    INCONCLUSIVE = "INCONCLUSIVE"

    @property
    def rank(self) -> int:
        """Rank of the decision, from 0 (best) to 3 (worst)."""
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
    """Excused by an exception of the policy or by a waiver."""
    UNKNOWN = "unknown"
    """The evidence does not decide."""
    VIOLATED = "violated"


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleResult:
    """The result of a rule, with its reason and inputs."""

    id: str
    """Id, such as ``platform/aws-a10g``, ``job/moe@gcp-l4`` or
    ``performance/moe/tokens_per_s@gcp-l4``."""
    kind: str
    """evidence, subject, payload_level, platform, freshness, attestation, hardware, job,
    nothing_passed, subject_loaded, degraded, missing, test_set, selection, changed_tests,
    skips, new_failures, failed_first, flaky, known_issue, performance, cost, approval,
    own_environment, lost_attempts, untested, undeclared_requirements."""
    blocking: bool
    outcome: RuleOutcome
    sentence: str
    """The reason with figures, for a person."""
    inputs: Mapping[str, object] = field(default_factory=dict)
    """The inputs as texts, integers, booleans, and lists and maps of these."""
    by: tuple[str, ...] = ()
    """Ids of the known issues, exceptions, waivers and quarantines that were applied."""
    waivable: bool = True
    """Whether exceptions and waivers may apply.

    They do not for stale, simulated or absent evidence, or for the wrong machine.
    """
    failing: Mapping[str, int] = field(default_factory=dict, metadata=LATER)
    """Failing items (tests, checks, reasons) by stable id, with counts or amounts; empty if the
    rule is not violated. Waivers refer to them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A verdict: the decision with all results of rules. Equal inputs give equal bytes."""

    gate: str
    product: str
    decision: Decision
    at: datetime
    """Time of the evaluation."""
    subject: Mapping[str, str]
    policy_digest: str
    evidence_digest: str
    rules: tuple[RuleResult, ...]
    warnings: tuple[str, ...] = ()
    """Warnings, such as about stale and expired exceptions."""
    summary: str = ""
    """One sentence: the decision and its deciding rules."""
    tool: str = ""
    """Program and version, such as ``seatrial 0.1.0``."""
    rules_version: int = field(default=1, metadata=LATER)
    """Version of the rules that decided; a replay uses the same."""


def reasons_of(decision: str, summary: str) -> str:
    """Return the summary of a verdict without its decision."""
    rest = summary.removeprefix(f"{decision}: ")
    return rest[:1].upper() + rest[1:]


def failing_items(verdict: Verdict) -> list[str]:
    """Return the failing items that prevent a pass, such as ``t.py::one (unit@gcp-l4)``."""
    return [
        f"{name} ({rule.id.partition('/')[2]})"
        for rule in verdict.rules
        if rule.kind == "job" and rule.blocking and rule.outcome is RuleOutcome.VIOLATED
        for name in sorted(rule.failing)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPolicy:
    """A version of a policy, with the time since which its gate uses it."""

    gate: str
    product: str
    digest: str
    """Digest of its content; comments and layout do not change it."""
    text: str
    """Text of the file as it was uploaded."""
    document: str
    """Canonical JSON with all default values; `digest` is the digest of these bytes."""
    first_seen: datetime
    """When any gate first stored this version."""
    since: datetime
    """When it became this gate's policy; a version that is restored has a new entry."""
    by: str = ""
    """The person who stored it; empty if unknown."""

    def refuse_other_product(self, present: StoredPolicy, *, name: str) -> None:
        """Raise InvalidDocumentError, for the file `name`, if the gate has another product."""
        if self.product != present.product:
            said = (
                f"is {self.product!r}, and the gate {self.gate!r} is of {present.product!r}:"
                " a gate keeps its product; give the policy another name"
            )
            raise InvalidDocumentError(name, [Problem(("metadata", "product"), said)])


@dataclass(frozen=True, kw_only=True)
class VerdictEnvelope:
    """The stored data beside a verdict, with digests.

    It has no slots, so that a record can extend both this class and `Verdict`.
    """

    id: str
    """Id, such as ``V-0001``; empty before it is stored."""
    runs: tuple[str, ...]
    """Ids of the evaluated runs."""
    lineage: str
    """Name of the lineage; by default the gate's name."""
    created_at: datetime
    snapshot_digest: str
    """sha256 of the frozen evidence with the waivers and approvals of that time."""
    document_digest: str
    """sha256 of the verdict's canonical JSON."""
    envelope_digest: str
    """sha256 of the signed statements."""
    key_id: str
    """Id of the signing key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredVerdict(VerdictEnvelope):
    """A verdict with its gate and its stored data."""

    gate: str
    verdict: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictResponse(VerdictEnvelope, Verdict):
    """A stored verdict, which never changes, with digests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleLine:
    """The outcome of one rule, in lists of verdicts."""

    id: str
    kind: str
    blocking: bool
    outcome: RuleOutcome
    sentence: str
    """The sentence of a blocking rule that is unknown or violated; otherwise empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictLine:
    """A stored verdict in lists, without the inputs of its rules."""

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
    """A stored verdict compared with its evaluation by a replay."""

    id: str
    identical: bool
    """Whether the bytes of both verdicts are equal."""
    document_digest: str
    """sha256 of the stored verdict."""
    replayed_digest: str
    """sha256 of the replayed verdict."""
    decision: Decision
    """Decision of the replayed verdict."""
