"""The schema of a gate's policy. The digest of its content is its version."""

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
    """Parse a duration such as ``90m``, ``36h``, ``7d`` or ``2w``. Raises ValueError."""
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is no duration: write 90m, 36h, 7d or 2w")
    return timedelta(**{_UNITS[found[2]]: int(found[1])})


def percent(text: str) -> Decimal:
    """Parse a percentage: 0.03 for ``3%``. Raises ValueError."""
    found = _PERCENT.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is no percentage: write 3% or 2.5%")
    return Decimal(found[1]) / 100


def is_pattern(name: str) -> bool:
    """Whether the name has a wildcard."""
    return "*" in name


def like(pattern: str, name: str) -> bool:
    """Whether a name matches a pattern; only ``*`` is special."""
    return _compiled(pattern).fullmatch(name) is not None


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    """Return a compiled pattern that matches in linear time."""
    first, *rest = map(re.escape, pattern.split("*"))
    if not rest:
        return re.compile(first, re.DOTALL)
    *between, last = rest
    found = "".join(f"(?>.*?{part})" for part in between if part)
    return re.compile(f"{first}{found}.*{last}", re.DOTALL)


def figure(number: float) -> str:
    """Return a number with four significant digits."""
    return f"{number:.4g}"


def as_percent(part: float | Decimal) -> str:
    """Return a share as a percentage: ``3.12 %`` for 0.0312."""
    return f"{float(part) * 100:.3g} %"


def some(names: list[str], most: int = 5) -> str:
    """Return names in one text: ``a, b, c and 4 more``."""
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
    """Return counts whose numbers add up, in words.

    For example ``3 of 7 tests passed, 1 skipped, 3 failed as expected``.
    """
    numbers = counts.as_dict()
    others = [f", {numbers[name]} {word}" for name, word in _OTHERS.items() if numbers[name]]
    return f"{counts.passed} of {counted(counts.collected, 'test')} passed{''.join(others)}"


def first_rules_counts(counts: Counts) -> str:
    """Return counts in the words of version 1: ``3 of 3 tests passed and 2 failed as expected``."""
    judged = counts.passed + counts.failed + counts.error
    return f"{counts.passed} of {counted(judged, 'test')} passed{expected_failures(counts)}"


def expected_failures(counts: Counts) -> str:
    """Return `` and 2 failed as expected``; empty if there are none."""
    return f" and {counts.xfailed} failed as expected" if counts.xfailed else ""


def counted(number: int, one: str, many: str = "") -> str:
    """Return a number with its noun: ``1 test``, ``2 tests``."""
    return f"{number} {one if number == 1 else many or one + 's'}"


LONGEST_EXCEPTION_TEXT = "90d"
Level = Literal["blocking", "advisory"]
"""Whether a violation changes the verdict (blocking) or is only displayed (advisory)."""
OnTrouble = Literal["fail", "inconclusive", "advisory"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GateMetadata:
    """Name and owner of a gate."""

    __pydantic_config__ = STRICT

    name: str
    """Name of the gate in commands and URLs."""
    product: str
    """Name of the payload; evidence of other payloads is ignored."""
    owner: str
    """The person or team that is responsible for the policy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectRule:
    """Which digests of the subject must be known."""

    __pydantic_config__ = STRICT

    require: tuple[Literal["git_sha", "wheel_sha256", "payload_sha256"], ...] = ()
    """Digests that every cell must have."""
    may_differ: tuple[Literal["git_sha", "wheel_sha256", "payload_sha256"], ...] = field(
        default=(), metadata=LATER
    )
    """Digests that may differ between platforms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestRule:
    """Which tests must exist and report."""

    __pydantic_config__ = STRICT

    min_tests_vs_baseline: Decimal | None = field(default=None, metadata={SUCH_AS: "0.95"})
    """Minimum share, per platform, of the tests that the last green run collected."""
    removed_tests: tuple[str, ...] | Literal["refused", "allowed"] = field(
        default="refused", metadata=LATER
    )
    """Tests of the baseline that this run may lack: `allowed` for all, or patterns of node ids such
    as ``tests/test_old.py::*``."""
    on_missing: Literal["fail", "inconclusive"] = "fail"
    """Outcome of the rule if collected tests did not report."""

    def gives_up(self, nodeid: str) -> bool:
        """Whether the policy allows that this test is missing."""
        if isinstance(self.removed_tests, str):
            return self.removed_tests == "allowed"
        return any(like(pattern, nodeid) for pattern in self.removed_tests)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceRule:
    """Which evidence counts; simulated evidence never does."""

    __pydantic_config__ = STRICT

    max_age: str = field(default="36h", metadata={SUCH_AS: "90m, 36h, 7d or 2w"})
    """Maximum age of cells, such as ``36h`` or ``7d``; older evidence never passes."""
    attestation: Literal["required", "optional"] = "required"
    """Whether evidence must be attested; ``optional`` accepts ingested evidence."""
    payload_level: PayloadLevel = field(default="untrusted", metadata=LATER)
    """Level that a review must have given the payload: ``reviewed`` or ``trusted``."""
    reuse: Literal["allowed", "refused"] = "allowed"
    """Whether evidence of an earlier run with equal inputs counts."""
    own_environment: Literal["allowed", "refused"] = field(default="allowed", metadata=LATER)
    """Whether jobs may import the packages of Seatrial's own environment."""
    subject_not_loaded: Literal["inconclusive", "accepted"] = field(
        default="inconclusive", metadata=LATER
    )
    """Outcome for a platform on which no suite and no Python process of a command imported the
    subject; ``accepted`` if only programs that are not Python use it."""
    undeclared_requirements: tuple[str, ...] = field(default=(), metadata=LATER)
    """Modules, such as ``torch``, that the subject imports and that its metadata omits on purpose.
    """
    manifest: ManifestRule = field(default_factory=ManifestRule)
    """Which tests must exist and report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Substitute:
    """A platform that must pass if the required one is not available.

    It never counts as the required platform.
    """

    __pydantic_config__ = STRICT

    platform: str
    """Id of the other platform."""
    jobs: tuple[str, ...] = ()
    """Jobs that must pass there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unavailable:
    """What follows if a platform is not available."""

    __pydantic_config__ = STRICT

    verdict: Literal["fail", "inconclusive", "exception", "advisory"] = "inconclusive"
    """The outcome; ``exception`` needs a named, approved exception that has not expired."""
    exception: str = ""
    """Id of the exception."""
    substitute: Substitute | None = None
    """A substitute that must also pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformRule:
    """A platform that must pass."""

    __pydantic_config__ = STRICT

    id: str
    """The id in the matrix."""
    instance: str = ""
    """Short form of `expect.instance`."""
    expect: ExpectedHardware = field(default_factory=ExpectedHardware, metadata=LATER)
    """Requirements for its machines; by default those that the platform's id implies.

    ``any`` accepts every machine.
    """
    level: Level = "blocking"
    """Whether a violation can block a release."""
    consecutive_green: int = 1
    """Number of consecutive runs that must have passed, with this one."""
    when_unavailable: Unavailable = field(default_factory=Unavailable)
    """What follows if the platform is not available."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRule:
    """A rule for jobs on platforms."""

    __pydantic_config__ = STRICT

    id: str
    """Id of the job; ``*`` matches any characters."""
    on: tuple[str, ...] | Literal["all"] = "all"
    """Platform ids; `all` means every platform of the policy."""
    require: Literal["all_pass", "pass_if_run"] = "all_pass"
    """Whether the job must have run; ``pass_if_run`` ignores jobs without evidence."""
    degraded: Literal["forbid", "inform"] = "forbid"
    """Whether a pass with a fallback is a violation."""
    nothing_passed: Literal["inconclusive", "accepted"] = field(
        default="inconclusive", metadata=LATER
    )
    """Outcome of a job in which nothing passed, and something was skipped or failed as expected."""
    test_set: Literal["same", "may_differ"] = field(default="same", metadata=LATER)
    """Whether all platforms must collect the same tests."""
    level: Level = "blocking"
    """Whether a violation can block a release."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SkipRule:
    """Which skipped tests are accepted, and what follows from others."""

    __pydantic_config__ = STRICT

    allow_reasons: tuple[str, ...] = ()
    """Patterns of accepted reasons, with ``*``."""
    max: int | None = None
    """Maximum number of skips per platform; without it, only tests that ran on the baseline are
    limited."""
    on_other: Literal["fail", "inconclusive", "advisory", "counted"] = "counted"
    """Outcome of skips for other reasons; ``counted`` counts them against `max`."""
    on_regression: OnTrouble = field(default="fail", metadata=LATER)
    """Outcome of a skip for another reason if the subject lacks a module that the test imports, or
    if the test ran on the baseline: in the last green run of the platform, or in the runs that the
    gate passed last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlakyRule:
    """Tests that fail and pass under the same conditions."""

    __pydantic_config__ = STRICT

    reruns: int = 0
    """Number of reruns of a failed test on its machine."""
    rerun_success: Literal["flaky", "failed"] = "failed"
    """Outcome of a failed test that passes in a rerun; it stays failed in every count."""
    max: int = 0
    """Maximum number of flaky tests."""
    quarantine: Literal["honoured", "ignored"] = "honoured"
    """Whether failures of quarantined tests are tolerated until the quarantine expires."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkBudget:
    """Allowed slow-down of benchmarks."""

    __pydantic_config__ = STRICT

    match: str
    """Pattern of ``job/metric``, with ``*``; the first match applies."""
    max_regression: str = field(metadata={SUCH_AS: "3% or 2.5%"})
    """Allowed slow-down, such as ``3%``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PerformanceRule:
    """Rules for paired benchmarks: subject against baseline, in turns on the same machine."""

    __pydantic_config__ = STRICT

    budgets: tuple[BenchmarkBudget, ...]
    """Budgets; benchmarks without a budget are displayed and cannot fail."""
    min_pairs: int = 10
    """Minimum number of pairs."""
    alpha: Decimal = Decimal("0.01")
    """Significance level of one one-sided test."""
    fdr: Decimal = Decimal("0.05")
    """False discovery rate (Benjamini-Hochberg) over all benchmarks of the run."""
    on_inconclusive: OnTrouble = "inconclusive"
    """Outcome if the noise is too high or there is no baseline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewFailureRule:
    """Limit of failures with signatures that the last green run did not have."""

    __pydantic_config__ = STRICT

    max: int = 0
    """Maximum number of new failures."""
    level: Level = "blocking"
    """Whether a violation can block a release."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CostRule:
    """Limit of the cost of a run."""

    __pydantic_config__ = STRICT

    max_usd: Decimal
    """Maximum US dollars for all machines of the run."""
    on_exceed: OnTrouble = "advisory"
    """Outcome if the limit is exceeded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyIssue:
    """A known issue of the policy: matching failures are tolerated. They change no count."""

    __pydantic_config__ = STRICT

    id: str
    """Id, such as ``KI-0007``."""
    title: str
    """The problem in one line."""
    match: IssueMatch
    """The failures that it matches."""
    scope: IssueScope = field(default_factory=IssueScope)
    """The platforms, jobs and versions that it applies to."""
    max_failures: int | None = None
    """Maximum number of results; more results are new failures."""
    without_signature: Literal["refused", "allowed"] = "refused"
    """Whether failing results without a signature (checks, and tests that a document only counts)
    match by scope alone, up to `max_failures`."""
    owner: str
    """Name of the person who fixes it."""
    issue: str = ""
    """URL of the issue in a tracker."""
    opened: date
    """The day on which it was opened."""
    expires: date
    """The last day on which it applies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateException:
    """An exception from a rule, approved by other persons than its author."""

    __pydantic_config__ = STRICT

    id: str
    """Id, such as ``EXC-2026-003``."""
    rule: str
    """Id of the rule as in a verdict, such as ``platform/aws-mi300x``."""
    reason: str
    """The reason, which verdicts show."""
    author: str
    """The person who requested it."""
    approved_by: tuple[str, ...]
    """The persons who approved it; at least one is not the author."""
    expires: date
    """The last day on which it applies."""
    failing: dict[str, int] = field(default_factory=dict, metadata=LATER)
    """The failing items that it excuses, with their counts, as in the verdict's `failing`; without
    any, it excuses nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRule:
    """The approvals that a verdict needs."""

    __pydantic_config__ = STRICT

    on: tuple[Literal["PASS", "PASS_WITH_EXCEPTIONS"], ...] = ("PASS_WITH_EXCEPTIONS",)
    """Decisions that need approvals, and are INCONCLUSIVE without them; empty for none."""
    need: int = 1
    """Number of needed approvals."""
    not_author: bool = True
    """Whether approvals by the authors of exceptions and waivers do not count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """Diagnosis of failures on their machine."""

    __pydantic_config__ = STRICT

    enabled: bool = True
    """Whether failing tests are retested with the baseline and with the last green run's packages.
    """
    max_tests: int = 20
    """Maximum number of tests that are diagnosed."""
    max_minutes: float = 15.0
    """Maximum minutes on the machine."""
    confirmation_usd: Decimal | None = None
    """Maximum US dollars of a confirmation run; None never rents a second machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateSpec:
    """The rules of a gate."""

    __pydantic_config__ = STRICT

    platforms: tuple[PlatformRule, ...]
    """The platforms; at least one is blocking."""
    jobs: tuple[JobRule, ...] = ()
    """Rules for jobs on the platforms."""
    subject: SubjectRule = field(default_factory=SubjectRule)
    """Rules for the subject's digests."""
    evidence: EvidenceRule = field(default_factory=EvidenceRule)
    """The evidence that counts."""
    skips: SkipRule | None = None
    """Rules for skipped tests; None for the defaults."""
    new_failures: NewFailureRule | None = None
    """Limit of failures that the last green run did not have; None without one."""
    flaky: FlakyRule = field(default_factory=FlakyRule)
    """Rules for flaky tests."""
    performance: PerformanceRule | None = None
    """Rules for benchmarks; None without any."""
    cost: CostRule | None = None
    """Cost limit; None without one."""
    known_issues: tuple[PolicyIssue, ...] = ()
    """Known issues, in addition to the stored ones of the product."""
    exceptions: tuple[GateException, ...] = ()
    """Exceptions from rules."""
    approvals: ApprovalRule | None = None
    """Approvals by persons; by default needed if only one person excused a violation."""
    exception_max_age: str = field(
        default=LONGEST_EXCEPTION_TEXT, metadata={**LATER, SUCH_AS: "7d or 2w"}
    )
    """Maximum duration of known issues, exceptions, waivers and quarantines."""
    diagnosis: Diagnosis = field(default_factory=Diagnosis)
    """How root causes of failures are diagnosed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatePolicy:
    """The content of a policy file."""

    __pydantic_config__ = STRICT

    metadata: GateMetadata
    """Name and owner of the gate."""
    spec: GateSpec
    """The rules of a gate."""


def retest_options(policy: GatePolicy) -> RetestOptions:
    """Return the retest options for runs that this policy evaluates."""
    diagnosis = policy.spec.diagnosis
    return RetestOptions(
        reruns=policy.spec.flaky.reruns,
        diagnose=diagnosis.enabled,
        max_tests=diagnosis.max_tests,
        max_minutes=diagnosis.max_minutes,
    )
