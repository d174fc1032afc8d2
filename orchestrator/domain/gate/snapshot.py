"""Frozen evidence: everything that a verdict was made from, small enough to keep beside it.

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


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedTest:
    """A test that failed or ended in error."""

    job: str
    nodeid: str
    signature: str
    exception: str = ""
    frame: str = ""
    message: str = ""
    """Masked: without numbers and addresses."""
    reruns: tuple[str, ...] = ()
    """Outcomes of its reruns under the same conditions on the same machine."""
    is_new: bool = False
    """The last green run had no failure of this signature."""
    quarantine: str = ""
    """Id of a quarantine that it is in, expired or not."""
    run: str = field(default="", metadata=LATER)
    """Of a test that does not fail here: the last run of the subject in which it did; this one
    where its suite ran it again."""
    payload: str = field(default="", metadata=LATER)
    """Of that run: the digest of its payload, where it is another one, or where the test does not
    pass here either."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEvidence:
    """One job of one cell."""

    id: str
    kind: str
    outcome: Outcome | None
    """None while it is not over."""
    reason: str = ""
    ending: Cause | None = field(default=None, metadata=LATER)
    """How it ended, where neither its failing tests nor its failed checks explain that."""
    degraded: str = ""
    """Why, where it passed with a fallback."""
    counts: Counts = field(default_factory=Counts)
    skips: Mapping[str, int] = field(default_factory=dict)
    """Skipped tests by reason."""
    failed: tuple[FailedTest, ...] = ()
    failed_checks: tuple[str, ...] = ()
    """Signatures cannot be had of these; `reason` and the names are what known issues match."""
    check_reasons: Mapping[str, str] = field(default_factory=dict, metadata=LATER)
    """By failed check, why: of a demo's own report, the line that it printed."""
    reused_from: str = ""
    """Run whose evidence stands here, because nothing that it depends on has changed."""
    at: datetime | None = None
    """When the evidence was produced; of a reused job, back then."""
    test_set: TestSet = field(default_factory=TestSet, metadata=LATER)
    """Which tests were collected, and what kept others out."""
    known_tests: Mapping[str, int] = field(default_factory=dict, metadata=LATER)
    """By skipped module, its tests in the last green run."""
    run: str = ""
    """Run that it was in, where that is not its cell's: a rerun did not have it again."""
    checks: Mapping[str, int] = field(default_factory=dict, metadata=LATER)
    """Statements that it made about itself, by outcome: passed, failed, skipped."""
    newly_skipped: Mapping[str, tuple[str, ...]] = field(default_factory=dict, metadata=LATER)
    """By the reason of their skip, the tests that ran in the last green run of the platform, or
    in the runs that the gate passed last; and those that passed there and are expected to fail."""
    failed_before: tuple[FailedTest, ...] = field(default=(), metadata=LATER)
    """What failed in another run of the same subject, and does not here; checks and the job itself
    by name. Where that run had another payload, it does not pass here either: it is not there."""
    passed_after: tuple[FailedTest, ...] = field(default=(), metadata=LATER)
    """What failed in a run of the same subject with another payload, and passes here."""
    tests_digest: str = field(default="", metadata=LATER)
    """Of the node ids that were collected (`domain/identity.py`: `normal_nodeid`); empty where
    not all of them are known."""
    tests_lacking: tuple[str, ...] = field(default=(), metadata=LATER)
    """Tests of this job that another cell collected, and this one did not."""
    changes: TestChanges | None = field(default=None, metadata=LATER)
    """What became of the tests that it had in the baseline; None where it did not come to its end,
    or has no tests and never had any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """One benchmark, subject and baseline in turns on the same machine."""

    job: str
    metric: str
    unit: str
    direction: str
    """``higher`` or ``lower`` is better."""
    subject: tuple[float, ...]
    """One value per pair: the median of the samples of a turn."""
    baseline: tuple[float, ...]
    """Of the same length."""
    covariates: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Machine readings by turn, such as ``sm_clock_mhz``: the subject's, then the baseline's."""
    remarks: tuple[str, ...] = ()
    """``throttled in 3 of 30 turns``."""

    @property
    def slowdown(self) -> float:
        """The median over the pairs; 0.03 is 3 % slower, negative is faster."""
        ratios = (s / b for s, b in zip(self.subject, self.baseline, strict=True))
        slower = (1 / ratio if self.direction == "higher" else ratio for ratio in ratios)
        return median(slower) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineEvidence:
    """What a machine is, as its provider and its own tools say."""

    provider: str
    instance_type: str = ""
    """As its provider says; empty where it says none."""
    devices: tuple[str, ...] | None = None
    """Accelerators by vendor and name, ``nvidia NVIDIA L4``; None where nobody looked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellEvidence:
    """One platform x environment."""

    run: str
    id: str
    """The cell's name."""
    platform: str
    environment: str
    state: str
    outcome: Outcome | None
    reason: str = ""
    detail: str = ""
    """For `not_available`: the provider's recorded answer."""
    ended_at: datetime | None = None
    instance_type: str = ""
    attested: bool = False
    """Our agent produced it on a machine whose identity its provider and its devices prove."""
    mismatch: str = ""
    """How the devices differ from what was asked for."""
    simulated: bool = False
    ingested: bool = False
    """Others produced it; nothing is attested."""
    subject: Mapping[str, str] = field(default_factory=dict)
    """``name, version, git_sha, wheel_sha256, payload_sha256, built``: what is known."""
    packages: Mapping[str, str] = field(default_factory=dict)
    own_environment: bool = field(default=False, metadata=LATER)
    """Its jobs saw the packages of the environment that Seatrial itself is installed in."""
    fingerprint: str = ""
    counts: Counts = field(default_factory=Counts)
    jobs: tuple[JobEvidence, ...] = ()
    pairs: tuple[Pairs, ...] = ()
    cost_usd: Decimal = Decimal(0)
    green_streak: int = 0
    """Runs in a row before this one in which the platform passed."""
    baseline_collected: int | None = None
    """Tests that the last green run of this platform collected."""
    blame: tuple[Mapping[str, str], ...] = ()
    """Root cause of each failing test: ``nodeid, answer, evidence`` (domain/root_cause.py)."""
    jobs_gone: Mapping[str, tuple[str, ...]] = field(default_factory=dict, metadata=LATER)
    """By job that the baseline had tests of and this cell does not have: these tests."""
    jobs_failed: Mapping[str, str] = field(default_factory=dict, metadata=LATER)
    """By job that failed in another run of the same subject, and that this cell does not have: the
    last such run."""
    stands_for: tuple[Mapping[str, str], ...] = field(default=(), metadata=LATER)
    """Other subjects, of the cells in earlier runs that it replaces."""
    expect: ExpectedHardware = field(default_factory=ExpectedHardware, metadata=LATER)
    """What the matrix says that its machines must be."""
    machines: tuple[MachineEvidence, ...] = field(default=(), metadata=LATER)
    """That its jobs ran on; none of evidence that others produced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantine:
    """A flaky test whose failures do not count until a day."""

    id: str
    """``Q-0001``."""
    product: str
    nodeid: str
    platforms: tuple[str, ...] = ()
    """Empty: all."""
    reason: str
    owner: str
    opened: datetime
    expires: datetime
    returns_after: int = 20
    """Passes in a row that end it by themselves."""
    ended_at: datetime | None = None
    ended_by: str = ""
    """A person, or ``returned after N passes``."""
    author: str = field(default="", metadata=LATER)
    """Who opened it: the name that their token had then."""
    author_token: str = field(default="", metadata=LATER)
    """Its id; `SOCKET` of the operating-system user. Empty where the name was typed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiver:
    """A person's exception for one rule of a gate; it counts once somebody else approved it."""

    id: str
    """``W-0001``."""
    gate: str
    rule: str
    reason: str
    author: str
    """Who asked for it: the name that their token had then."""
    approver: str
    """The same of who approved it; empty while nobody has."""
    at: datetime
    expires: datetime
    evidence: str = ""
    """Digest of the snapshot that it was given for; empty for the gate's next ones too."""
    author_token: str = field(default="", metadata=LATER)
    """Id of the author's token; `SOCKET` of the operating-system user. Empty where the name was
    typed."""
    approver_token: str = field(default="", metadata=LATER)
    """The same of the approver's."""
    approved_at: datetime | None = field(default=None, metadata=LATER)
    """None while nobody has, or where the name was typed."""
    failing: Mapping[str, int] = field(default_factory=dict, metadata=LATER)
    """What the rule was bad for when it was asked for (`RuleResult.failing`): it excuses these,
    and no more of each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """A person's yes to a snapshot."""

    by: str
    """The name that their token had then."""
    at: datetime
    evidence: str
    """Digest of the snapshot."""
    token: str = field(default="", metadata=LATER)
    """Its id; `SOCKET` of the operating-system user. Empty where the name was typed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalResponse(Approval):
    """An approval, with the gate whose evidence it is about."""

    gate: str
    remark: str = ""
    """Why it counts for nothing, said to whoever gives it; empty where it counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaiverResponse(Waiver):
    """A waiver at a time, with the verdict that its author had read."""

    verdict: str
    """Id of the one that they named, else of the gate's newest; empty if there was none."""
    evidence_digest: str
    """Of the evidence of that verdict."""
    is_expired: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What a gate looks at. Times are UTC."""

    product: str
    subject: Mapping[str, str]
    """``name, version`` and the digests that all cells agree on."""
    runs: tuple[str, ...]
    """In the order in which they were taken; a later cell of a platform stands for an earlier,
    and a rerun's completes it."""
    cells: tuple[CellEvidence, ...]
    known_issues: tuple[KnownIssue, ...] = ()
    """The product's stored ones, ended ones too."""
    quarantines: tuple[Quarantine, ...] = ()
    waivers: tuple[Waiver, ...] = ()
    approvals: tuple[Approval, ...] = ()
    reviews: tuple[PayloadReview, ...] = field(default=(), metadata=LATER)
    """What people said of the payloads, those that are over too."""
    cost_usd: Decimal = Decimal(0)
    last_green: str = ""
    """Run that the gate passed last."""
