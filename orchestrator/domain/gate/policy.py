"""The policy of a gate, as its file says it. Versioned by the digest of its content."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from typing import Literal

from orchestrator.domain.gate.payload_review import PayloadLevel
from orchestrator.domain.gate.policy_values import like
from orchestrator.domain.gate.verdict import LATER
from orchestrator.domain.known_issue import IssueMatch, IssueScope
from orchestrator.domain.matrix import ExpectedHardware
from orchestrator.domain.retests import RetestOptions

_STRICT = {"extra": "forbid", "use_attribute_docstrings": True}

LONGEST_EXCEPTION_TEXT = "90d"
Level = Literal["blocking", "advisory"]
"""Whether a violation changes the verdict, or is only shown."""
OnTrouble = Literal["fail", "inconclusive", "advisory"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GateMetadata:
    """What the gate is called and whose it is."""

    __pydantic_config__ = _STRICT

    name: str
    """Names the gate in commands and addresses."""
    product: str
    """The payload's name: evidence of other products is not looked at."""
    owner: str
    """Who answers for the policy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectRule:
    """What must be known of the subject, so that the verdict binds to it."""

    __pydantic_config__ = _STRICT

    require: tuple[Literal["git_sha", "wheel_sha256", "payload_sha256"], ...] = ()
    """Digests that every cell must carry."""
    may_differ: tuple[Literal["git_sha", "wheel_sha256", "payload_sha256"], ...] = field(
        default=(), metadata=LATER
    )
    """Digests of which platforms may have several: they were not all tested with the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestRule:
    """Whether everything ran that should have."""

    __pydantic_config__ = _STRICT

    min_tests_vs_baseline: Decimal | None = None
    """At least this part of the tests that the last green run collected, per platform."""
    removed_tests: tuple[str, ...] | Literal["refused", "allowed"] = field(
        default="refused", metadata=LATER
    )
    """Tests that the baseline had and this run has not: `allowed`, or patterns of node ids that
    are given up, as ``tests/test_old.py::*``."""
    on_missing: Literal["fail", "inconclusive"] = "fail"
    """What tests that were collected and never reported come to; nothing lets them pass."""

    def gives_up(self, nodeid: str) -> bool:
        """Whether this test may be missing."""
        if isinstance(self.removed_tests, str):
            return self.removed_tests == "allowed"
        return any(like(pattern, nodeid) for pattern in self.removed_tests)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceRule:
    """Which evidence is believed. Simulated evidence never is."""

    __pydantic_config__ = _STRICT

    max_age: str = "36h"
    """``36h``, ``7d``: older cells are stale, and stale evidence never passes."""
    attestation: Literal["required", "optional"] = "required"
    """Whether ingested evidence, which nobody can attest, may count."""
    payload_level: PayloadLevel = field(default="untrusted", metadata=LATER)
    """What the payload must be held for, by a person who read it: ``reviewed``, ``trusted``."""
    reuse: Literal["allowed", "refused"] = "allowed"
    """Whether evidence that an earlier run produced of the very same may stand for a job."""
    own_environment: Literal["allowed", "refused"] = field(default="allowed", metadata=LATER)
    """Whether jobs may have seen the packages of the environment that Seatrial is installed in."""
    subject_not_loaded: Literal["inconclusive", "accepted"] = field(
        default="inconclusive", metadata=LATER
    )
    """What a platform comes to on which no suite imported anything of the subject; ``accepted``
    where tests use it in other processes alone, as a command."""
    manifest: ManifestRule = field(default_factory=ManifestRule)
    """Completeness."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Substitute:
    """What is looked at where the platform cannot be had; it never counts as the platform."""

    __pydantic_config__ = _STRICT

    platform: str
    """Id of the other platform."""
    jobs: tuple[str, ...] = ()
    """Which must pass there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unavailable:
    """How the gate treats a platform that its provider does not offer."""

    __pydantic_config__ = _STRICT

    verdict: Literal["fail", "inconclusive", "exception", "advisory"] = "inconclusive"
    """``exception`` needs one that is named, approved and not expired."""
    exception: str = ""
    """Its id."""
    substitute: Substitute | None = None
    """Shown beside it, and must pass too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformRule:
    """A platform that must have passed."""

    __pydantic_config__ = _STRICT

    id: str
    """As the matrix calls it."""
    instance: str = ""
    """Short for `expect.instance`."""
    expect: ExpectedHardware = field(default_factory=ExpectedHardware, metadata=LATER)
    """What its machines must be. What is left out is what the platform's id promises; ``any`` takes
    any machine."""
    level: Level = "blocking"
    """Whether it can stop a release."""
    consecutive_green: int = 1
    """So many runs in a row must have passed, this one included."""
    when_unavailable: Unavailable = field(default_factory=Unavailable)
    """What a refusal of the provider comes to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRule:
    """Jobs that must have passed on platforms."""

    __pydantic_config__ = _STRICT

    id: str
    """Of a job; ``*`` stands for anything."""
    on: tuple[str, ...] | Literal["all"] = "all"
    """Platforms; `all` are those that the policy names."""
    require: Literal["all_pass", "pass_if_run"] = "all_pass"
    """``pass_if_run`` asks nothing of a job that has no evidence at all."""
    degraded: Literal["forbid", "inform"] = "forbid"
    """What a fallback beside a pass comes to."""
    nothing_passed: Literal["inconclusive", "accepted"] = field(
        default="inconclusive", metadata=LATER
    )
    """The outcome of a job in which no test passed because all were skipped."""
    test_set: Literal["same", "may_differ"] = field(default="same", metadata=LATER)
    """Whether every platform must have collected the same tests of it."""
    level: Level = "blocking"
    """Whether it can stop a release."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SkipRule:
    """Which skips are accepted."""

    __pydantic_config__ = _STRICT

    allow_reasons: tuple[str, ...] = ()
    """Patterns with ``*``; a reason that fits none is another one."""
    max: int | None = None
    """Skips that count, per platform; None leaves those of tests that ran on the baseline."""
    on_other: Literal["fail", "inconclusive", "advisory", "counted"] = "counted"
    """The outcome of another reason; ``counted`` ones count against `max` like the accepted."""
    on_regression: OnTrouble = field(default="fail", metadata=LATER)
    """The outcome of a skip for another reason where the subject lacks a module that the test
    imports, or where the test ran on the baseline: the last green run of the platform, or the runs
    that the gate passed last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlakyRule:
    """Tests that fail and pass under the same conditions."""

    __pydantic_config__ = _STRICT

    reruns: int = 0
    """How often a failed test is run again on its machine."""
    rerun_success: Literal["flaky", "failed"] = "failed"
    """What a failed test is that passes in a rerun. It stays failed in every count."""
    max: int = 0
    """More flaky tests than these are a violation."""
    quarantine: Literal["honoured", "ignored"] = "honoured"
    """Whether failures of quarantined tests are tolerated, up to their expiry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """How much slower a benchmark may become."""

    __pydantic_config__ = _STRICT

    match: str
    """``job/metric``, with ``*``; the first that fits counts."""
    max_regression: str
    """``3%``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PerformanceRule:
    """Subject against baseline, in turns on the same machine."""

    __pydantic_config__ = _STRICT

    budgets: tuple[Budget, ...]
    """Benchmarks that fit none are shown, and cannot fail."""
    min_pairs: int = 10
    """Fewer pairs are no evidence."""
    alpha: Decimal = Decimal("0.01")
    """Of one test, one-sided."""
    fdr: Decimal = Decimal("0.05")
    """Benjamini-Hochberg over all benchmarks of the run."""
    on_inconclusive: OnTrouble = "inconclusive"
    """Too noisy to tell, or no baseline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewFailureRule:
    """Failures of signatures that the last green run did not have."""

    __pydantic_config__ = _STRICT

    max: int = 0
    """More of them are a violation."""
    level: Level = "blocking"
    """Whether it can stop a release."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CostRule:
    """What a run may cost."""

    __pydantic_config__ = _STRICT

    max_usd: Decimal
    """All machines of the run."""
    on_exceed: OnTrouble = "advisory"
    """What more comes to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyIssue:
    """A known issue in the policy: failures that fit are tolerated. They change no count."""

    __pydantic_config__ = _STRICT

    id: str
    """``KI-0007``."""
    title: str
    """What is wrong."""
    match: IssueMatch
    """Which failures."""
    scope: IssueScope = field(default_factory=IssueScope)
    """Where."""
    max_failures: int | None = None
    """More are new failures."""
    without_signature: Literal["refused", "allowed"] = "refused"
    """Whether failing results without one may be meant, by scope alone and up to `max_failures`:
    checks, and tests that a document only counts."""
    owner: str
    """Who mends it."""
    issue: str = ""
    """Address in a tracker."""
    opened: date
    """Since when."""
    expires: date
    """The last day."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateException:
    """An exception for a rule, approved by others than its author."""

    __pydantic_config__ = _STRICT

    id: str
    """``EXC-2026-003``."""
    rule: str
    """Id of the rule, as the verdict prints it: ``platform/aws-mi300x``."""
    reason: str
    """For whoever reads the verdict."""
    author: str
    """Who asked for it."""
    approved_by: tuple[str, ...]
    """At least one who is not the author."""
    expires: date
    """The last day."""
    failing: dict[str, int] = field(default_factory=dict, metadata=LATER)
    """All that it excuses of the rule, as the verdict has it under `failing`: what the rule is bad
    for, and how often. Without it, it excuses nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRule:
    """The approvals that a verdict needs before it counts."""

    __pydantic_config__ = _STRICT

    on: tuple[Literal["PASS", "PASS_WITH_EXCEPTIONS"], ...] = ("PASS_WITH_EXCEPTIONS",)
    """Verdicts that need it; without it they are INCONCLUSIVE. Empty: none does."""
    need: int = 1
    """How many."""
    not_author: bool = True
    """Whoever waived or asked for an exception does not count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """What is found out about a failure while its machine is still there."""

    __pydantic_config__ = _STRICT

    enabled: bool = True
    """Run failing tests again with the baseline, and with the last green packages."""
    max_tests: int = 20
    """Failing tests that are looked into."""
    max_minutes: float = 15.0
    """On the machine."""
    confirmation_usd: Decimal | None = None
    """The most that a second machine may cost; None never rents one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateSpec:
    """The rules."""

    __pydantic_config__ = _STRICT

    platforms: tuple[PlatformRule, ...]
    """At least one is blocking."""
    jobs: tuple[JobRule, ...] = ()
    """Jobs of these platforms."""
    subject: SubjectRule = field(default_factory=SubjectRule)
    """What the verdict binds to."""
    evidence: EvidenceRule = field(default_factory=EvidenceRule)
    """What is believed."""
    skips: SkipRule | None = None
    """Skips; None is the defaults."""
    new_failures: NewFailureRule | None = None
    """Against the last green run."""
    flaky: FlakyRule = field(default_factory=FlakyRule)
    """Flaky tests."""
    performance: PerformanceRule | None = None
    """Benchmarks."""
    cost: CostRule | None = None
    """Money."""
    known_issues: tuple[PolicyIssue, ...] = ()
    """Beside those that are stored for the product."""
    exceptions: tuple[GateException, ...] = ()
    """For rules."""
    approvals: ApprovalRule | None = None
    """Human review. None asks for one where what one person alone can excuse was excused."""
    exception_max_age: str = field(default=LONGEST_EXCEPTION_TEXT, metadata=LATER)
    """The longest that a known issue, an exception, a waiver or a quarantine counts."""
    diagnosis: Diagnosis = field(default_factory=Diagnosis)
    """How root causes of failures are diagnosed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatePolicy:
    """The whole of a policy file."""

    __pydantic_config__ = _STRICT

    metadata: GateMetadata
    """Its name."""
    spec: GateSpec
    """Its rules."""


def retest_options(policy: GatePolicy) -> RetestOptions:
    """What a run that this policy will judge does with its failing tests."""
    diagnosis = policy.spec.diagnosis
    return RetestOptions(
        reruns=policy.spec.flaky.reruns,
        diagnose=diagnosis.enabled,
        max_tests=diagnosis.max_tests,
        max_minutes=diagnosis.max_minutes,
    )
