"""The verdict: the outcome of every rule with its inputs. Immutable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType

LATER: Mapping[str, bool] = MappingProxyType({"later": True})
"""Metadata of a dataclass field: a document leaves it out where it has its default, so that what
was stored before there was such a field is written again to the same bytes."""


class Decision(StrEnum):
    """The release decision."""

    PASS = "PASS"  # noqa: S105 - a word, no secret
    PASS_WITH_EXCEPTIONS = "PASS_WITH_EXCEPTIONS"  # noqa: S105
    FAIL = "FAIL"
    INCONCLUSIVE = "INCONCLUSIVE"

    @property
    def rank(self) -> int:
        """From the best, 0, to the worst, 3."""
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
    """By known issues, a flaky allowance or a quarantine."""
    WAIVED = "waived"
    """By an exception of the policy or a waiver."""
    UNKNOWN = "unknown"
    """There is no evidence to tell."""
    VIOLATED = "violated"


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleResult:
    """One rule, explained."""

    id: str
    """``platform/aws-a10g``, ``job/moe@gcp-l4``, ``performance/moe/tokens_per_s@gcp-l4``."""
    kind: str
    """evidence, subject, payload_level, platform, freshness, attestation, hardware, job,
    nothing_passed, subject_loaded, degraded, missing, test_set, selection, changed_tests,
    skips, new_failures, failed_first, flaky, known_issue, performance, cost, approval,
    own_environment."""
    blocking: bool
    outcome: RuleOutcome
    sentence: str
    """Why, for a person, with the figures."""
    inputs: Mapping[str, object] = field(default_factory=dict)
    """The figures themselves: texts, whole numbers, booleans, and lists and maps of these."""
    by: tuple[str, ...] = ()
    """Ids of the known issues, exceptions, waivers and quarantines at work."""
    waivable: bool = True
    """Whether an exception or a waiver may reach it: none makes up for evidence that is stale,
    simulated, of the wrong machine, or that nobody looked for."""
    failing: Mapping[str, int] = field(default_factory=dict, metadata=LATER)
    """What it is bad for, by a stable id (a test, a check, a reason), and how many or how much of
    each; empty where it is not bad. A waiver is given for these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The whole decision. Same inputs, same bytes."""

    gate: str
    product: str
    decision: Decision
    at: datetime
    """The `now` that it was made for."""
    subject: Mapping[str, str]
    policy_digest: str
    evidence_digest: str
    rules: tuple[RuleResult, ...]
    warnings: tuple[str, ...] = ()
    """Stale and expired exceptions, and what else a person should tidy up."""
    summary: str = ""
    """One sentence: the decision and what it hangs on."""
    tool: str = ""
    """``seatrial 0.1.0``."""
    rules_version: int = field(default=1, metadata=LATER)
    """Of the rules that decided: it is replayed by these, and by no later ones."""
