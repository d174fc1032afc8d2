"""Frozen evidence: all inputs of one verdict, in one immutable value.

It is built once from stored data, written as JSON, and identified by its digest. Later evidence
never changes an earlier verdict; it becomes a new snapshot.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from statistics import median

from orchestrator.domain.cell import Cause
from orchestrator.domain.collected_tests import TestSet
from orchestrator.domain.gate.changes_of_tests import TestChanges
from orchestrator.domain.gate.payload_review import PayloadReview
from orchestrator.domain.gate.verdict import LATER
from orchestrator.domain.known_issue import KnownIssue
from orchestrator.domain.matrix import ExpectedHardware
from orchestrator.domain.outcome import Counts, Outcome

NAMELESS = "(without a name)"
"""Name of a failure that is counted without a name."""
EXPECTED = "expected to fail: "
"""Prefix of the reasons of expected failures, in policies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedTest:
    """A test that failed or ended with an error."""

    job: str
    nodeid: str
    signature: str
    exception: str = ""
    frame: str = ""
    message: str = ""
    """The message with variable parts masked."""
    reruns: tuple[str, ...] = ()
    """Outcomes of unchanged reruns on the same machine."""
    is_new: bool = False
    """Whether the last green run did not have its signature."""
    quarantine: str = ""
    """Id of its quarantine, expired or not; empty without one."""
    run: str = field(default="", metadata=LATER)
    """Last run of the subject in which the test failed, if it does not fail here; this run, if the
    suite reran it."""
    payload: str = field(default="", metadata=LATER)
    """Digest of that run's payload, if it differs or the test does not pass here either."""
    is_by_version: bool = field(default=False, metadata=LATER)
    """Whether that run has the same subject only by name and version, because one of the two has no
    wheel or commit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEvidence:
    """The frozen evidence of one job of one cell: outcome, counts, failures and compared tests."""

    id: str
    kind: str
    outcome: Outcome | None
    """The outcome; None until the job is finished."""
    reason: str = ""
    ending: Cause | None = field(default=None, metadata=LATER)
    """The end of the job, if failing tests and checks do not explain it; None otherwise."""
    degraded: str = ""
    """The fallback with which the job passed; empty without one."""
    counts: Counts = field(default_factory=Counts)
    skips: Mapping[str, int] = field(default_factory=dict)
    """Number of skipped tests by reason."""
    expected_failures: Mapping[str, int] = field(default_factory=dict, metadata=LATER)
    """Number of expected failures by reason."""
    failed: tuple[FailedTest, ...] = ()
    failed_checks: tuple[str, ...] = ()
    """Names of failed checks.

    They have no signatures; known issues match `reason` and the names.
    """
    check_reasons: Mapping[str, str] = field(default_factory=dict, metadata=LATER)
    """Reasons of failed checks by name; for a demo's own report, the printed line."""
    reused_from: str = ""
    """Id of the run whose evidence is reused; empty if the job ran."""
    at: datetime | None = None
    """When the evidence was produced; for a reused job, the original time."""
    test_set: TestSet = field(default_factory=TestSet, metadata=LATER)
    """The collected tests, and what left out others."""
    known_tests: Mapping[str, int] = field(default_factory=dict, metadata=LATER)
    """Number of tests that the last green run had in each skipped or ignored path."""
    run: str = ""
    """Id of the run, if it is another than that of the cell, because a rerun did not repeat the
    job."""
    checks: Mapping[str, int] = field(default_factory=dict, metadata=LATER)
    """Number of checks by outcome: passed, failed, skipped."""
    newly_skipped: Mapping[str, tuple[str, ...]] = field(default_factory=dict, metadata=LATER)
    """Skipped tests by reason that ran in the last green run of the platform, or in the runs that
    the gate passed last; and tests that passed there and are now expected to fail (`EXPECTED`)."""
    failed_before: tuple[FailedTest, ...] = field(default=(), metadata=LATER)
    """Failures in other runs of the subject that do not occur here; checks and the job have names.

    With another payload, the test is absent or does not pass here.
    """
    passed_after: tuple[FailedTest, ...] = field(default=(), metadata=LATER)
    """Failures in runs of the subject with another payload whose tests pass here."""
    tests_digest: str = field(default="", metadata=LATER)
    """Digest of the collected node ids (`normal_nodeid` in `domain/node_ids.py`); empty if not
    all are known."""
    tests_lacking: tuple[str, ...] = field(default=(), metadata=LATER)
    """Tests of the job that another cell collected and this one did not."""
    changes: TestChanges | None = field(default=None, metadata=LATER)
    """Changes against the tests of the baseline; None if the job was cut short or never had tests.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """Paired samples of one benchmark: turns of subject and baseline on one machine."""

    job: str
    metric: str
    unit: str
    direction: str
    """Which values are better: ``higher`` or ``lower``."""
    subject: tuple[float, ...]
    """One value for each pair: the median of the samples of the subject's turn."""
    baseline: tuple[float, ...]
    """One value for each pair, of the baseline's turn."""
    covariates: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Readings of sensors by name, such as ``sm_clock_mhz``: of the subject's turns, then of the
    baseline's."""
    remarks: tuple[str, ...] = ()
    """Remarks, such as ``throttled in 3 of 30 turns``."""

    @property
    def slowdown(self) -> float:
        """Median slow-down over the pairs; 0.03 is 3 % slower, negative is faster."""
        ratios = (s / b for s, b in zip(self.subject, self.baseline, strict=True))
        slower = (1 / ratio if self.direction == "higher" else ratio for ratio in ratios)
        return median(slower) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineEvidence:
    """A machine as its provider and its tools report it."""

    provider: str
    instance_type: str = ""
    """Instance type that the provider reports; empty without one."""
    devices: tuple[str, ...] | None = None
    """Vendor and name of each accelerator, such as ``nvidia NVIDIA L4``; None if not probed."""
    system: str = field(default="", metadata=LATER)
    """Operating system and CPU that the agent probed; empty if not probed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UndeclaredRequirement:
    """A module that the subject's import needs and that none of its requirements installs."""

    module: str
    file: str
    """The file of the subject that imports the module."""
    distribution: str
    """The distribution that has the module on the jobs' machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellEvidence:
    """Evidence of one cell."""

    run: str
    id: str
    """Name of the cell."""
    platform: str
    environment: str
    state: str
    outcome: Outcome | None
    reason: str = ""
    detail: str = ""
    """Details for a person; for `not_available`, the provider's answer."""
    ended_at: datetime | None = None
    instance_type: str = ""
    attested: bool = False
    """Whether our agent produced it on a machine whose identity is proven."""
    mismatch: str = ""
    """How the devices differ from the requested ones."""
    simulated: bool = False
    ingested: bool = False
    """Whether the evidence was ingested, so that it is not attested."""
    subject: Mapping[str, str] = field(default_factory=dict)
    """Known ones of ``name, version, git_sha, wheel_sha256, payload_sha256, built``."""
    packages: Mapping[str, str] = field(default_factory=dict)
    own_environment: bool = field(default=False, metadata=LATER)
    """Whether its jobs saw the packages of Seatrial's own environment."""
    undeclared_requirements: tuple[UndeclaredRequirement, ...] = field(default=(), metadata=LATER)
    """Modules that the subject needs and that its metadata does not require."""
    lost_attempts: tuple[str, ...] = field(default=(), metadata=LATER)
    """Earlier attempts that ended while jobs could run, as number, reason and detail."""
    fingerprint: str = ""
    counts: Counts = field(default_factory=Counts)
    jobs: tuple[JobEvidence, ...] = ()
    pairs: tuple[Pairs, ...] = ()
    cost_usd: Decimal | None = Decimal(0)
    """Cost in US dollars; None if none of its machines has a price."""
    green_streak: int = 0
    """Number of consecutive earlier runs in which the platform passed."""
    baseline_collected: int | None = None
    """Number of tests that the last green run of the platform collected; None without such a run.
    """
    blame: tuple[Mapping[str, str], ...] = ()
    """Root causes of failing tests: ``nodeid, answer, evidence`` (`domain/root_cause.py`)."""
    jobs_gone: Mapping[str, tuple[str, ...]] = field(default_factory=dict, metadata=LATER)
    """Tests of jobs that the baseline has and this cell lacks, by job."""
    jobs_failed: Mapping[str, str] = field(default_factory=dict, metadata=LATER)
    """Jobs that failed in other runs of the subject and that this cell lacks, with the last such
    run."""
    stands_for: tuple[Mapping[str, str], ...] = field(default=(), metadata=LATER)
    """Subjects of the cells in earlier runs that this cell replaces."""
    expect: ExpectedHardware = field(default_factory=ExpectedHardware, metadata=LATER)
    """Hardware that the matrix requires."""
    machines: tuple[MachineEvidence, ...] = field(default=(), metadata=LATER)
    """Machines that ran its jobs; empty for ingested evidence."""
    other_subject: str = field(default="", metadata=LATER)
    """Another installed version of the subject, if the payload itself is the subject; otherwise
    empty."""
    untested: tuple[str, ...] = field(default=(), metadata=LATER)
    """Sentences about jobs and test files of the payload that did not run."""
    own_baseline: bool = field(default=False, metadata=LATER)
    """Whether the baseline of its paired benchmarks is the subject itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantine:
    """A quarantine: failures of a flaky test may be tolerated until a given day."""

    id: str
    """Id, such as ``Q-0001``."""
    product: str
    nodeid: str
    platforms: tuple[str, ...] = ()
    """The platforms on which it applies; empty for all."""
    reason: str
    owner: str
    opened: datetime
    expires: datetime
    returns_after: int = 20
    """Number of consecutive passes that end it automatically."""
    ended_at: datetime | None = None
    ended_by: str = ""
    """Name of the person who ended it, or ``returned after N passes``."""
    author: str = field(default="", metadata=LATER)
    """The person who opened it: name of their token at that time."""
    author_token: str = field(default="", metadata=LATER)
    """Id of the token; `SOCKET` for an operating-system user. Empty if the name was typed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiver:
    """A waiver of one rule of a gate; it takes effect when another person approves it."""

    id: str
    """Id, such as ``W-0001``."""
    gate: str
    rule: str
    reason: str
    author: str
    """The person who requested it: name of their token at that time."""
    approver: str
    """The person who approved it; empty before."""
    at: datetime
    expires: datetime
    evidence: str = ""
    """Digest of the evidence that it is limited to; empty if it also applies to later evidence."""
    author_token: str = field(default="", metadata=LATER)
    """Id of the author's token; `SOCKET` for an operating-system user. Empty if the name was
    typed.
    """
    approver_token: str = field(default="", metadata=LATER)
    """Id of the approver's token; the same values as `author_token`."""
    approved_at: datetime | None = field(default=None, metadata=LATER)
    """When it was approved; None before, or if the name was typed."""
    failing: Mapping[str, int] = field(default_factory=dict, metadata=LATER)
    """The failing items of the rule when it was requested (`RuleResult.failing`), which are excused
    up to their counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """A person's approval of evidence."""

    by: str
    """The approver: name of their token at that time."""
    at: datetime
    evidence: str
    """Digest of the evidence."""
    token: str = field(default="", metadata=LATER)
    """Id of the token; `SOCKET` for an operating-system user. Empty if the name was typed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalResponse(Approval):
    """An approval with its gate."""

    gate: str
    remark: str = ""
    """Why it does not count; empty if it counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaiverResponse(Waiver):
    """A waiver with its state and the verdict that it was requested for."""

    verdict: str
    """Id of the verdict that was named, or of the gate's newest one; empty without one."""
    evidence_digest: str
    """sha256 of the evidence of that verdict."""
    is_expired: bool
    approval_page: str = ""
    """URL of the page on which signed-in persons approve it; empty if tokens also approve."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ViolatedBefore:
    """A rule on measurements that an earlier verdict on the same subject found violated."""

    rule: str
    verdict: str
    """Id of the verdict, such as ``V-0001``."""
    runs: tuple[str, ...]
    """Runs of that verdict; the present evidence has none of them."""
    sentence: str
    """The sentence of the rule's result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """All inputs of one verdict. Times are in UTC."""

    product: str
    subject: Mapping[str, str]
    """``name, version`` and the digests on which all cells agree."""
    runs: tuple[str, ...]
    """Ids of the runs in the order of reading; a later cell of a platform replaces an earlier one,
    and a rerun completes it."""
    cells: tuple[CellEvidence, ...]
    known_issues: tuple[KnownIssue, ...] = ()
    """Stored known issues of the product, with those that ended."""
    issue_tests: Mapping[str, bool] | None = field(default=None, metadata=LATER)
    """By id of each known issue (also of the policy) that ever matched a test's failure: whether
    such a test ran here. None in older evidence, for which the issue's scope alone decides."""
    quarantines: tuple[Quarantine, ...] = ()
    waivers: tuple[Waiver, ...] = ()
    approvals: tuple[Approval, ...] = ()
    reviews: tuple[PayloadReview, ...] = field(default=(), metadata=LATER)
    """Reviews of the payloads, with the expired ones."""
    cost_usd: Decimal = Decimal(0)
    """US dollars of all cells with a known cost."""
    unpriced: tuple[str, ...] = field(default=(), metadata=LATER)
    """Names of cells whose cost is unknown or incomplete; own machines cost nothing."""
    last_green: str = ""
    """Id of the run that the gate passed last; empty without one."""
    elsewhere: Mapping[str, str] = field(default_factory=dict, metadata=LATER)
    """Newest run of the subject with a platform that the policy names and these runs lack, by
    platform."""
    violated_before: tuple[ViolatedBefore, ...] = field(default=(), metadata=LATER)
    """Rules that other runs of the subject violated; for each rule the last violation."""
