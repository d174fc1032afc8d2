"""The policy of a gate: the schema of its file. Versioned by the digest of its content."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import date, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Literal

from orchestrator.domain.document_problems import SUCH_AS
from orchestrator.domain.field_limits import STRICT
from orchestrator.domain.gate.payload_review import PayloadLevel
from orchestrator.domain.gate.verdict import LATER
from orchestrator.domain.known_issue import IssueMatch, IssueScope
from orchestrator.domain.matrix import ExpectedHardware
from orchestrator.domain.outcome import Counts
from orchestrator.domain.retests import RetestOptions

_DURATION = re.compile(r"(\d{1,6})\s*([mhdw])")
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_PERCENT = re.compile(r"(\d{1,4}(?:\.\d{1,6})?)\s*%")


def duration(text: str) -> timedelta:
    """Parse ``90m``, ``36h``, ``7d``, ``2w``. Raises ValueError."""
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is no duration: write 90m, 36h, 7d or 2w")
    return timedelta(**{_UNITS[found[2]]: int(found[1])})


def percent(text: str) -> Decimal:
    """Parse ``3%`` as 0.03. Raises ValueError."""
    found = _PERCENT.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is no percentage: write 3% or 2.5%")
    return Decimal(found[1]) / 100


def is_pattern(name: str) -> bool:
    """Whether the name contains a wildcard."""
    return "*" in name


def like(pattern: str, name: str) -> bool:
    """Whether a name matches a pattern; only ``*`` is special."""
    return _compiled(pattern).fullmatch(name) is not None


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    """Compile a pattern so that matching takes linear time."""
    first, *rest = map(re.escape, pattern.split("*"))
    if not rest:
        return re.compile(first, re.DOTALL)
    *between, last = rest
    found = "".join(f"(?>.*?{part})" for part in between if part)
    return re.compile(f"{first}{found}.*{last}", re.DOTALL)


def figure(number: float) -> str:
    """Format a number with four significant digits."""
    return f"{number:.4g}"


def as_percent(part: float | Decimal) -> str:
    """Format 0.0312 as ``3.12 %``."""
    return f"{float(part) * 100:.3g} %"


def some(names: list[str], most: int = 5) -> str:
    """Join names, as ``a, b, c and 4 more``."""
    if len(names) <= most:
        return ", ".join(names)
    return f"{', '.join(names[:most])} and {len(names) - most} more"


_OTHERS = {
    "failed": "failed",
    "error": "ended in an error",
    "skipped": "skipped",
    "xfailed": "failed as expected",
    "xpassed": "passed unexpectedly",
    "missing": "missing",
    "not_run": "not run",
}


def all_counts(counts: Counts) -> str:
    """Format counts whose numbers add up.

    ``3 of 7 tests passed, 1 skipped, 3 failed as expected``.
    """
    numbers = counts.as_dict()
    others = [f", {numbers[name]} {word}" for name, word in _OTHERS.items() if numbers[name]]
    return f"{counts.passed} of {counted(counts.collected, 'test')} passed{''.join(others)}"


def first_rules_counts(counts: Counts) -> str:
    """Format counts as in the first rules: ``3 of 3 tests passed and 2 failed as expected``."""
    judged = counts.passed + counts.failed + counts.error
    return f"{counts.passed} of {counted(judged, 'test')} passed{expected_failures(counts)}"


def expected_failures(counts: Counts) -> str:
    """Return `` and 2 failed as expected``; empty without any."""
    return f" and {counts.xfailed} failed as expected" if counts.xfailed else ""


def counted(number: int, one: str, many: str = "") -> str:
    """Format a number with its noun: ``1 test``, ``2 tests``."""
    return f"{number} {one if number == 1 else many or one + 's'}"


LONGEST_EXCEPTION_TEXT = "90d"
Level = Literal["blocking", "advisory"]
"""Whether a violation changes the verdict, or is only shown."""
OnTrouble = Literal["fail", "inconclusive", "advisory"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GateMetadata:
    """Name and owner of a gate."""

    __pydantic_config__ = STRICT

    name: str
    """Names the gate in commands and addresses."""
    product: str
    """The payload's name: evidence of other products is ignored."""
    owner: str
    """Who is responsible for the policy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectRule:
    """Digests of the subject that must be known."""

    __pydantic_config__ = STRICT

    require: tuple[Literal["git_sha", "wheel_sha256", "payload_sha256"], ...] = ()
    """Digests that every cell must carry."""
    may_differ: tuple[Literal["git_sha", "wheel_sha256", "payload_sha256"], ...] = field(
        default=(), metadata=LATER
    )
    """Digests that may differ between platforms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestRule:
    """Completeness of the tests."""

    __pydantic_config__ = STRICT

    min_tests_vs_baseline: Decimal | None = field(default=None, metadata={SUCH_AS: "0.95"})
    """Minimum share of the tests that the last green run collected, per platform."""
    removed_tests: tuple[str, ...] | Literal["refused", "allowed"] = field(
        default="refused", metadata=LATER
    )
    """Tests that the baseline had and this run has not: `allowed`, or patterns of node ids that
    are given up, as ``tests/test_old.py::*``."""
    on_missing: Literal["fail", "inconclusive"] = "fail"
    """Outcome of the rule where collected tests did not report."""

    def gives_up(self, nodeid: str) -> bool:
        """Whether the policy allows this test to be missing."""
        if isinstance(self.removed_tests, str):
            return self.removed_tests == "allowed"
        return any(like(pattern, nodeid) for pattern in self.removed_tests)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceRule:
    """The evidence that counts. Simulated evidence never counts."""

    __pydantic_config__ = STRICT

    max_age: str = field(default="36h", metadata={SUCH_AS: "90m, 36h, 7d or 2w"})
    """``36h``, ``7d``: older cells are stale, and stale evidence never passes."""
    attestation: Literal["required", "optional"] = "required"
    """Whether ingested evidence, which cannot be attested, counts."""
    payload_level: PayloadLevel = field(default="untrusted", metadata=LATER)
    """The level that a review must give the payload: ``reviewed``, ``trusted``."""
    reuse: Literal["allowed", "refused"] = "allowed"
    """Whether evidence of an earlier run with identical inputs counts."""
    own_environment: Literal["allowed", "refused"] = field(default="allowed", metadata=LATER)
    """Whether jobs may see the packages of Seatrial's own environment."""
    subject_not_loaded: Literal["inconclusive", "accepted"] = field(
        default="inconclusive", metadata=LATER
    )
    """Outcome for a platform where no suite and no Python process of a command imported the
    subject; ``accepted`` where they use it only in programs that are not Python.
    """
    undeclared_requirements: tuple[str, ...] = field(default=(), metadata=LATER)
    """Modules, as ``torch``, that the subject imports and its metadata leaves out on purpose."""
    manifest: ManifestRule = field(default_factory=ManifestRule)
    """Completeness."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Substitute:
    """A platform that must pass where the required one is unavailable.

    It never counts as that platform.
    """

    __pydantic_config__ = STRICT

    platform: str
    """Id of the other platform."""
    jobs: tuple[str, ...] = ()
    """Jobs that must pass there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unavailable:
    """Handling of a platform that its provider does not offer."""

    __pydantic_config__ = STRICT

    verdict: Literal["fail", "inconclusive", "exception", "advisory"] = "inconclusive"
    """``exception`` needs a named, approved exception that has not expired."""
    exception: str = ""
    """Id of the exception."""
    substitute: Substitute | None = None
    """A substitute that must pass too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformRule:
    """A platform that must pass."""

    __pydantic_config__ = STRICT

    id: str
    """The id in the matrix."""
    instance: str = ""
    """Short for `expect.instance`."""
    expect: ExpectedHardware = field(default_factory=ExpectedHardware, metadata=LATER)
    """Requirements for its machines. By default those that the platform's id implies; ``any``
    accepts every machine.
    """
    level: Level = "blocking"
    """Whether it can block a release."""
    consecutive_green: int = 1
    """Number of consecutive runs that must have passed, this one included."""
    when_unavailable: Unavailable = field(default_factory=Unavailable)
    """Handling of a refusal by the provider."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRule:
    """Jobs that must pass on platforms."""

    __pydantic_config__ = STRICT

    id: str
    """Job id; ``*`` matches anything."""
    on: tuple[str, ...] | Literal["all"] = "all"
    """Platforms; `all` means those of the policy."""
    require: Literal["all_pass", "pass_if_run"] = "all_pass"
    """``pass_if_run`` ignores jobs without any evidence."""
    degraded: Literal["forbid", "inform"] = "forbid"
    """Outcome of a pass with a fallback."""
    nothing_passed: Literal["inconclusive", "accepted"] = field(
        default="inconclusive", metadata=LATER
    )
    """Outcome of a job in which every test was skipped."""
    test_set: Literal["same", "may_differ"] = field(default="same", metadata=LATER)
    """Whether every platform must collect the same tests."""
    level: Level = "blocking"
    """Whether it can block a release."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SkipRule:
    """Which skipped tests a platform may have, and what follows from others."""

    __pydantic_config__ = STRICT

    allow_reasons: tuple[str, ...] = ()
    """Patterns with ``*`` of accepted reasons."""
    max: int | None = None
    """Maximum skips per platform; None limits only tests that ran on the baseline."""
    on_other: Literal["fail", "inconclusive", "advisory", "counted"] = "counted"
    """Outcome for other reasons; with ``counted`` they count against `max`."""
    on_regression: OnTrouble = field(default="fail", metadata=LATER)
    """The outcome of a skip for another reason where the subject lacks a module that the test
    imports, or where the test ran on the baseline: the last green run of the platform, or the runs
    that the gate passed last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlakyRule:
    """Tests that fail and pass under the same conditions."""

    __pydantic_config__ = STRICT

    reruns: int = 0
    """Reruns of a failed test on its machine."""
    rerun_success: Literal["flaky", "failed"] = "failed"
    """Outcome of a failed test that passes in a rerun. It stays failed in every count."""
    max: int = 0
    """Maximum number of flaky tests."""
    quarantine: Literal["honoured", "ignored"] = "honoured"
    """Whether failures of quarantined tests are tolerated until the quarantine expires."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkBudget:
    """Allowed slow-down of benchmarks."""

    __pydantic_config__ = STRICT

    match: str
    """``job/metric``, with ``*``; the first match applies."""
    max_regression: str = field(metadata={SUCH_AS: "3% or 2.5%"})
    """``3%``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PerformanceRule:
    """Paired benchmarks: subject against baseline, in turns on the same machine."""

    __pydantic_config__ = STRICT

    budgets: tuple[BenchmarkBudget, ...]
    """Benchmarks that match none are shown, and cannot fail."""
    min_pairs: int = 10
    """Minimum pairs for evidence."""
    alpha: Decimal = Decimal("0.01")
    """Significance level of one test, one-sided."""
    fdr: Decimal = Decimal("0.05")
    """False discovery rate (Benjamini-Hochberg) over all benchmarks of the run."""
    on_inconclusive: OnTrouble = "inconclusive"
    """Outcome where noise is too high, or the baseline is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewFailureRule:
    """Failures of signatures that the last green run did not have."""

    __pydantic_config__ = STRICT

    max: int = 0
    """Maximum number of new failures."""
    level: Level = "blocking"
    """Whether it can block a release."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CostRule:
    """Cost limit of a run."""

    __pydantic_config__ = STRICT

    max_usd: Decimal
    """Over all machines of the run."""
    on_exceed: OnTrouble = "advisory"
    """Outcome where the limit is exceeded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyIssue:
    """A known issue of the policy: matching failures are tolerated. They change no count."""

    __pydantic_config__ = STRICT

    id: str
    """``KI-0007``."""
    title: str
    """The problem in one line."""
    match: IssueMatch
    """Matching failures."""
    scope: IssueScope = field(default_factory=IssueScope)
    """Where it applies."""
    max_failures: int | None = None
    """Maximum results; further ones are new failures."""
    without_signature: Literal["refused", "allowed"] = "refused"
    """Whether failing results without a signature (checks, and tests that a document only counts)
    match by scope alone, up to `max_failures`.
    """
    owner: str
    """Name of the person who fixes it."""
    issue: str = ""
    """URL in a tracker."""
    opened: date
    """The day that it was opened."""
    expires: date
    """The last day."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateException:
    """An exception for a rule, approved by persons other than its author."""

    __pydantic_config__ = STRICT

    id: str
    """``EXC-2026-003``."""
    rule: str
    """Id of the rule, as the verdict prints it: ``platform/aws-mi300x``."""
    reason: str
    """The reason, shown in the verdict."""
    author: str
    """Who requested it."""
    approved_by: tuple[str, ...]
    """At least one person other than the author."""
    expires: date
    """The last day."""
    failing: dict[str, int] = field(default_factory=dict, metadata=LATER)
    """The failing items that it excuses, as in the verdict's `failing`, with their counts. Without
    it, it excuses nothing.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRule:
    """The approvals that a verdict needs before it counts."""

    __pydantic_config__ = STRICT

    on: tuple[Literal["PASS", "PASS_WITH_EXCEPTIONS"], ...] = ("PASS_WITH_EXCEPTIONS",)
    """Decisions that need approval; without it they are INCONCLUSIVE. Empty: none."""
    need: int = 1
    """Number of approvals."""
    not_author: bool = True
    """Whether authors of exceptions and waivers do not count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """Diagnosis of failures while their machine is still there."""

    __pydantic_config__ = STRICT

    enabled: bool = True
    """Retest failing tests with the baseline, and with the packages of the last green run."""
    max_tests: int = 20
    """Maximum tests to diagnose."""
    max_minutes: float = 15.0
    """Maximum time on the machine."""
    confirmation_usd: Decimal | None = None
    """Maximum cost of a confirmation run; None never rents a second machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateSpec:
    """The rules of a gate."""

    __pydantic_config__ = STRICT

    platforms: tuple[PlatformRule, ...]
    """At least one is blocking."""
    jobs: tuple[JobRule, ...] = ()
    """Rules for jobs on these platforms."""
    subject: SubjectRule = field(default_factory=SubjectRule)
    """Digests of the subject."""
    evidence: EvidenceRule = field(default_factory=EvidenceRule)
    """The evidence that counts."""
    skips: SkipRule | None = None
    """Rules for skips; None means the defaults."""
    new_failures: NewFailureRule | None = None
    """Rules against the last green run."""
    flaky: FlakyRule = field(default_factory=FlakyRule)
    """Rules for flaky tests."""
    performance: PerformanceRule | None = None
    """Rules for benchmarks."""
    cost: CostRule | None = None
    """Cost limits."""
    known_issues: tuple[PolicyIssue, ...] = ()
    """Known issues, in addition to the product's stored ones."""
    exceptions: tuple[GateException, ...] = ()
    """Exceptions for rules."""
    approvals: ApprovalRule | None = None
    """Human approval. By default it is needed where only one person excused something."""
    exception_max_age: str = field(
        default=LONGEST_EXCEPTION_TEXT, metadata={**LATER, SUCH_AS: "7d or 2w"}
    )
    """Longest validity of known issues, exceptions, waivers and quarantines."""
    diagnosis: Diagnosis = field(default_factory=Diagnosis)
    """How root causes of failures are diagnosed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatePolicy:
    """The content of a policy file."""

    __pydantic_config__ = STRICT

    metadata: GateMetadata
    """Name and owner."""
    spec: GateSpec
    """The rules of a gate."""


def retest_options(policy: GatePolicy) -> RetestOptions:
    """Return the retest options of runs that this policy will evaluate."""
    diagnosis = policy.spec.diagnosis
    return RetestOptions(
        reruns=policy.spec.flaky.reruns,
        diagnose=diagnosis.enabled,
        max_tests=diagnosis.max_tests,
        max_minutes=diagnosis.max_minutes,
    )
