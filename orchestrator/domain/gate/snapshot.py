"""Frozen evidence: every input of one verdict, in one immutable value.

Built once from what is stored, written as JSON, kept by its digest. Late evidence never changes
an old verdict; it makes a new snapshot.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from statistics import median

from orchestrator.domain.cell import Cause
from orchestrator.domain.gate.payload_review import PayloadReview
from orchestrator.domain.gate.test_changes import TestChanges
from orchestrator.domain.gate.verdict import LATER
from orchestrator.domain.known_issue import KnownIssue
from orchestrator.domain.matrix import ExpectedHardware
from orchestrator.domain.outcome import Counts, Outcome
from orchestrator.domain.test_set import TestSet

NAMELESS = "(without a name)"
"""Name of a failure that a job only counts."""
EXPECTED = "expected to fail: "
"""Start of the reason of an expected failure in policies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedTest:
    """A test that failed or ended in error."""

    job: str
    nodeid: str
    signature: str
    exception: str = ""
    frame: str = ""
    message: str = ""
    """The message with numbers and addresses masked."""
    reruns: tuple[str, ...] = ()
    """Outcomes of reruns with nothing changed on the same machine."""
    is_new: bool = False
    """Whether its signature is new since the last green run."""
    quarantine: str = ""
    """Id of its quarantine, expired or not."""
    run: str = field(default="", metadata=LATER)
    """For a test that does not fail here: the last run of the subject in which it failed; this run
    where its suite reran it.
    """
    payload: str = field(default="", metadata=LATER)
    """Digest of that run's payload, where it differs or the test does not pass here either."""
    is_by_version: bool = field(default=False, metadata=LATER)
    """Whether that run is of the same subject by name and version alone: one of the two has no
    wheel or commit.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEvidence:
    """One job of one cell."""

    id: str
    kind: str
    outcome: Outcome | None
    """None until it is finished."""
    reason: str = ""
    ending: Cause | None = field(default=None, metadata=LATER)
    """How the job ended, if failing tests and checks do not explain it."""
    degraded: str = ""
    """The fallback with which it passed."""
    counts: Counts = field(default_factory=Counts)
    skips: Mapping[str, int] = field(default_factory=dict)
    """Skipped tests by reason."""
    expected_failures: Mapping[str, int] = field(default_factory=dict, metadata=LATER)
    """Tests that failed as expected, by reason."""
    failed: tuple[FailedTest, ...] = ()
    failed_checks: tuple[str, ...] = ()
    """Failed checks have no signatures; known issues match `reason` and the names."""
    check_reasons: Mapping[str, str] = field(default_factory=dict, metadata=LATER)
    """Reasons by failed check: of a demo's own report, the line that it printed."""
    reused_from: str = ""
    """The run whose evidence is reused, since no input has changed."""
    at: datetime | None = None
    """When the evidence was produced; of a reused job, the original time."""
    test_set: TestSet = field(default_factory=TestSet, metadata=LATER)
    """Collected tests, and what excluded others."""
    known_tests: Mapping[str, int] = field(default_factory=dict, metadata=LATER)
    """Tests of the last green run, by skipped module."""
    run: str = ""
    """The run, where it is not its cell's: a rerun did not repeat the job."""
    checks: Mapping[str, int] = field(default_factory=dict, metadata=LATER)
    """Checks by outcome: passed, failed, skipped."""
    newly_skipped: Mapping[str, tuple[str, ...]] = field(default_factory=dict, metadata=LATER)
    """By skip reason, tests that ran in the last green run of the platform, or in the runs that the
    gate passed last; and passes of these that are now expected to fail, by `EXPECTED`.
    """
    failed_before: tuple[FailedTest, ...] = field(default=(), metadata=LATER)
    """Failures of another run of the subject that do not occur here; checks and the job by name.
    With another payload, the test is absent or not passing here.
    """
    passed_after: tuple[FailedTest, ...] = field(default=(), metadata=LATER)
    """Failures of a run of the subject with another payload that pass here."""
    tests_digest: str = field(default="", metadata=LATER)
    """Digest of the collected node ids (`domain/test_identity.py`: `normal_nodeid`); empty if
    not all are known.
    """
    tests_lacking: tuple[str, ...] = field(default=(), metadata=LATER)
    """Tests of this job that another cell collected, and this one did not."""
    changes: TestChanges | None = field(default=None, metadata=LATER)
    """Changes against the baseline's tests.

    None if the job was cut short, or never had tests.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """Paired samples of one benchmark, subject and baseline in turns on one machine."""

    job: str
    metric: str
    unit: str
    direction: str
    """``higher`` or ``lower`` is better."""
    subject: tuple[float, ...]
    """One value per pair: the median of a turn's samples."""
    baseline: tuple[float, ...]
    """Samples of the baseline, as many as the subject's."""
    covariates: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Sensor readings by turn, such as ``sm_clock_mhz``: the subject's, then the baseline's."""
    remarks: tuple[str, ...] = ()
    """``throttled in 3 of 30 turns``."""

    @property
    def slowdown(self) -> float:
        """Return the median slow-down over the pairs; 0.03 is 3 % slower, negative is faster."""
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
    """Accelerators by vendor and name, ``nvidia NVIDIA L4``; None if they were not read."""
    system: str = field(default="", metadata=LATER)
    """Operating system and CPU's architecture as the agent probed them; empty if it did not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UndeclaredRequirement:
    """A module that importing the subject needs, and that no requirement of its metadata brings."""

    module: str
    file: str
    """The subject's file that imports it."""
    distribution: str
    """The distribution that has it where the jobs ran."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellEvidence:
    """Evidence of one cell."""

    run: str
    id: str
    """The cell's name."""
    platform: str
    environment: str
    state: str
    outcome: Outcome | None
    reason: str = ""
    detail: str = ""
    """For `not_available`: the provider's answer."""
    ended_at: datetime | None = None
    instance_type: str = ""
    attested: bool = False
    """Whether our agent produced it on a machine with a proven identity."""
    mismatch: str = ""
    """How the devices differ from the requested ones."""
    simulated: bool = False
    ingested: bool = False
    """Whether it was ingested, and so is not attested."""
    subject: Mapping[str, str] = field(default_factory=dict)
    """``name, version, git_sha, wheel_sha256, payload_sha256, built``, where known."""
    packages: Mapping[str, str] = field(default_factory=dict)
    own_environment: bool = field(default=False, metadata=LATER)
    """Whether its jobs saw the packages of Seatrial's own environment."""
    undeclared_requirements: tuple[UndeclaredRequirement, ...] = field(default=(), metadata=LATER)
    """Modules that the subject needs and that its metadata does not require."""
    lost_attempts: tuple[str, ...] = field(default=(), metadata=LATER)
    """Earlier attempts that ended while jobs could run, with number, reason and detail."""
    fingerprint: str = ""
    counts: Counts = field(default_factory=Counts)
    jobs: tuple[JobEvidence, ...] = ()
    pairs: tuple[Pairs, ...] = ()
    cost_usd: Decimal | None = Decimal(0)
    """None if no machine of it has a price."""
    green_streak: int = 0
    """Number of consecutive earlier runs in which the platform passed."""
    baseline_collected: int | None = None
    """Number of tests that the last green run of this platform collected."""
    blame: tuple[Mapping[str, str], ...] = ()
    """Root cause of each failing test: ``nodeid, answer, evidence`` (domain/root_cause.py)."""
    jobs_gone: Mapping[str, tuple[str, ...]] = field(default_factory=dict, metadata=LATER)
    """Tests of jobs that the baseline had and this cell lacks, by job."""
    jobs_failed: Mapping[str, str] = field(default_factory=dict, metadata=LATER)
    """Jobs that failed in another run of the subject and that this cell lacks, with the last such
    run.
    """
    stands_for: tuple[Mapping[str, str], ...] = field(default=(), metadata=LATER)
    """Subjects of the cells in earlier runs that it replaces."""
    expect: ExpectedHardware = field(default_factory=ExpectedHardware, metadata=LATER)
    """Hardware that the matrix requires."""
    machines: tuple[MachineEvidence, ...] = field(default=(), metadata=LATER)
    """Machines of its jobs; empty for ingested evidence."""
    other_subject: str = field(default="", metadata=LATER)
    """Where the payload itself is the subject: another version of it that is installed."""
    untested: tuple[str, ...] = field(default=(), metadata=LATER)
    """Sentences on the payload's jobs and test files that its matrix or its jobs leave out."""
    own_baseline: bool = field(default=False, metadata=LATER)
    """Whether the baseline of its paired benchmarks is the subject itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantine:
    """A quarantine: failures of a flaky test do not count until a day."""

    id: str
    """``Q-0001``."""
    product: str
    nodeid: str
    platforms: tuple[str, ...] = ()
    """Platforms; empty means all."""
    reason: str
    owner: str
    opened: datetime
    expires: datetime
    returns_after: int = 20
    """Number of consecutive passes that end it automatically."""
    ended_at: datetime | None = None
    ended_by: str = ""
    """A person, or ``returned after N passes``."""
    author: str = field(default="", metadata=LATER)
    """Who opened it: the name of their token at that time."""
    author_token: str = field(default="", metadata=LATER)
    """Id of the token; `SOCKET` for an operating-system user. Empty if the name was typed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiver:
    """A waiver for one rule of a gate; it counts once another person approved it."""

    id: str
    """``W-0001``."""
    gate: str
    rule: str
    reason: str
    author: str
    """Who requested it: the name of their token at that time."""
    approver: str
    """Who approved it; empty before."""
    at: datetime
    expires: datetime
    evidence: str = ""
    """Digest of the snapshot that it is limited to; empty for later ones too."""
    author_token: str = field(default="", metadata=LATER)
    """Id of the author's token; `SOCKET` for an operating-system user. Empty if the name was
    typed.
    """
    approver_token: str = field(default="", metadata=LATER)
    """The same for the approver."""
    approved_at: datetime | None = field(default=None, metadata=LATER)
    """None before approval, or where the name was typed."""
    failing: Mapping[str, int] = field(default_factory=dict, metadata=LATER)
    """The rule's failing items when it was requested (`RuleResult.failing`): it excuses these, with
    their counts.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """A person's approval of a snapshot."""

    by: str
    """The name of their token at that time."""
    at: datetime
    evidence: str
    """Digest of the snapshot."""
    token: str = field(default="", metadata=LATER)
    """Id of the token; `SOCKET` for an operating-system user. Empty if the name was typed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalResponse(Approval):
    """An approval with its gate."""

    gate: str
    remark: str = ""
    """The reason for which it does not count; empty if it counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaiverResponse(Waiver):
    """A waiver at a time, with the verdict that it was requested for."""

    verdict: str
    """Id of the named verdict, else of the gate's newest; empty without one."""
    evidence_digest: str
    """sha256 of the evidence of that verdict."""
    is_expired: bool
    approval_page: str = ""
    """URL of the page on which people who signed in approve it; empty where tokens approve, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ViolatedBefore:
    """A rule on what was measured, which an earlier verdict on the same subject found violated."""

    rule: str
    verdict: str
    """``V-0001``."""
    runs: tuple[str, ...]
    """Runs that the verdict was about; none of them is of the present evidence."""
    sentence: str
    """What it said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The input of an evaluation. Times are UTC."""

    product: str
    subject: Mapping[str, str]
    """``name, version`` and the digests on which all cells agree."""
    runs: tuple[str, ...]
    """In the order in which they were read; a later cell of a platform replaces an earlier one, and
    a rerun completes it.
    """
    cells: tuple[CellEvidence, ...]
    known_issues: tuple[KnownIssue, ...] = ()
    """Stored known issues of the product, ended ones included."""
    issue_tests: Mapping[str, bool] | None = field(default=None, metadata=LATER)
    """By known issue that a test's failure has ever matched, the policy's included, whether such a
    test ran here. None in older evidence, where the issue's scope alone decides.
    """
    quarantines: tuple[Quarantine, ...] = ()
    waivers: tuple[Waiver, ...] = ()
    approvals: tuple[Approval, ...] = ()
    reviews: tuple[PayloadReview, ...] = field(default=(), metadata=LATER)
    """Reviews of the payloads, expired ones included."""
    cost_usd: Decimal = Decimal(0)
    """Of all cells whose cost is known."""
    unpriced: tuple[str, ...] = field(default=(), metadata=LATER)
    """Cells whose cost is unknown, or a part of it; own machines cost nothing."""
    last_green: str = ""
    """The run that the gate passed last."""
    elsewhere: Mapping[str, str] = field(default_factory=dict, metadata=LATER)
    """By platform of the policy that these runs lack, the newest run of the subject that has it."""
    violated_before: tuple[ViolatedBefore, ...] = field(default=(), metadata=LATER)
    """What other runs of the subject violated, as the gate found; of each rule the last."""
