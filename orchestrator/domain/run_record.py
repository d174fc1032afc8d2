"""Record of a run: everything stored of it, for `show`, watchers, REST and reports."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal

from orchestrator.domain.attestation import Attestation
from orchestrator.domain.cell import (
    Attempt,
    Cause,
    CellState,
    PlacementDecision,
    Run,
    RunState,
    SubjectBuild,
    Transition,
)
from orchestrator.domain.charges import NOT_STATED, Cost, cost_of, sum_of
from orchestrator.domain.commit import Commit
from orchestrator.domain.event_facts import CheckFact, MetricFact, Notice, TestFact
from orchestrator.domain.extend_record import extended, filled
from orchestrator.domain.failure_signature import FailureGroup
from orchestrator.domain.gate.snapshot import Pairs
from orchestrator.domain.ingested import Ingested, RunAnnotation
from orchestrator.domain.known_issue import IssueUse
from orchestrator.domain.matrix import Platform
from orchestrator.domain.money import Bill, JobCosts, cost_by_job, usd_per_validated_test
from orchestrator.domain.outcome import Counts, Outcome
from orchestrator.domain.paired_samples import pairs_of
from orchestrator.domain.parsed_results import Provenance
from orchestrator.domain.quarantine import Quarantined
from orchestrator.domain.retention import PrunedPart
from orchestrator.domain.root_cause import DiagnosedTest
from orchestrator.domain.test_set import TestSet
from orchestrator.domain.units import duration, elapsed, plural
from orchestrator.domain.vocabulary import phrase, reason_text


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job of a cell."""

    id: str
    kind: str
    title: str
    outcome: Outcome | None
    """None until it is finished."""
    reason: str = ""
    detail: str = ""
    ending: Cause | None = None
    """How the job ended, if failing tests and checks do not explain it."""
    degraded: str | None = None
    counts: Counts = field(default_factory=Counts)
    """Pytest results only; `missing` are not reported yet while the job runs."""
    unnamed: Counts = field(default_factory=Counts)
    """The part of `counts` whose tests the source does not name."""
    passed_on_retry: int = 0
    """Number of passed tests that failed first, and that the suite itself ran again: flaky ones."""
    checks: tuple[CheckFact, ...] = ()
    metrics: tuple[MetricFact, ...] = ()
    turns: tuple[MetricFact, ...] = ()
    """Turns of both arms of a paired benchmark."""
    started_at: datetime | None = None
    duration_s: float | None = None
    timeout_s: float = 0.0
    current: str = ""
    """The running test."""
    idle_since: datetime | None = None
    """Time of its last output; None while it produces output."""
    idle_timeout_s: float = 0.0
    """Seconds of silence after which the job is ended; 0 if unknown."""
    reused_from: str = ""
    """The run whose evidence is reused, since no input has changed."""
    at: datetime | None = None
    """When its evidence was produced; of a reused job, the original time. None while that is
    unknown.
    """
    test_set: TestSet = field(default_factory=TestSet)
    """Collected tests, and what excluded others."""
    reuse: str = ""
    """Why its evidence was reused or not; empty if reuse was not requested."""

    @property
    def why(self) -> str:
        """Why it has this outcome, for a person: ``cancelled; 2 failed``."""
        return reason_text(self.reason, self.detail, self.ended_by)

    @property
    def ended_by(self) -> str:
        """The reason that ended it, if that is not the reason of its outcome: ``cancelled``."""
        reason = self.ending.reason if self.ending else ""
        return "" if reason in (self.reason, "exit") else reason

    @property
    def pairs(self) -> tuple[Pairs, ...]:
        """Return the pairs of a paired benchmark."""
        return pairs_of(self.id, self.turns)

    @property
    def is_running(self) -> bool:
        """Whether the job has started and not finished."""
        return self.outcome is None and self.started_at is not None and self.duration_s is None

    def silence(self, now: datetime) -> str:
        """Return how long a job has printed nothing, with its limit; empty while the job prints."""
        if self.idle_since is None or not self.is_running:
            return ""
        silent_s = max((now - self.idle_since).total_seconds(), 0.0)
        said = f"silent for {elapsed(silent_s)}"
        if not self.idle_timeout_s:
            return said
        limit = duration(self.idle_timeout_s).removesuffix(" 00s")
        is_over = silent_s >= self.idle_timeout_s
        return (
            f"{said}, over its limit of {limit}" if is_over else f"{said}, to be ended at {limit}"
        )


@dataclass(frozen=True, slots=True)
class ArtifactRecord:
    """An artifact of a cell."""

    name: str
    size_bytes: int
    digest: str
    """sha256 of its bytes, in hex."""
    pruned_at: datetime | None = None
    """When its bytes were pruned; None while they are stored."""


_ODD = re.compile(r"[^A-Za-z0-9._+=@-]")


def artifacts_of_test(artifacts: Iterable[str], job: str, nodeid: str) -> tuple[str, ...]:
    """Return the names of files that a test left in the folder of its name.

    Args:
        artifacts: Names of the cell's files.
        job: Of the test.
        nodeid: Of the test; its name is what follows the last ``::`` before its parameters.
    """
    path, bracket, params = nodeid.partition("[")
    name = path.rsplit("::", 1)[-1] + bracket + params
    begin = f"{job}.{_ODD.sub('_', name)}-"
    return tuple(one for one in artifacts if one.startswith(begin))


@dataclass(frozen=True, slots=True, kw_only=True)
class TestResponse(TestFact):
    """A test with the text of its failure, and the files that the test left."""

    __test__ = False

    artifacts: tuple[str, ...] = ()
    """Names of the files that it left in a folder of its name; of the cell's artifacts."""

    @property
    def error(self) -> str:
        """The first line of the test's error."""
        lines = (self.message or self.text).strip().splitlines()
        return lines[0] if lines else ""


def test_answer(test: TestFact, artifacts: Iterable[str]) -> TestResponse:
    """Return a test with the cell's artifacts that the test left."""
    own = artifacts_of_test(artifacts, test.job, test.nodeid)
    return extended(TestResponse, test, artifacts=own)


test_answer.__test__ = False  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """A machine of a cell with its cost."""

    attempt: int
    provider: str
    place: str
    state: str
    machine_id: str
    address: str
    """Its address, for a person."""
    price_usd_per_hour: Decimal | None
    seconds: float
    """From the launch call until it was gone, or until now; 0 if no machine was granted."""
    cost_usd: Decimal
    """Settled cost, or the cost so far."""
    refusal: str = ""
    bill: Bill = field(default_factory=Bill)
    """The parts of the cost."""
    billed_s: int = 0
    """Billed seconds of the machine's price: whole ones, and at least the offer's minimum."""
    phase_usd: Mapping[CellState, Decimal] = field(default_factory=dict)
    """The cost by cell state."""
    priced: str = ""
    """Source and date of its prices."""
    instance_type: str = ""
    market: str = ""
    region: str = ""
    zone: str = ""
    image_id: str = ""
    image_name: str = ""
    simulated: bool = False
    """Whether its provider is an emulation."""


@dataclass(frozen=True, slots=True)
class CellRecord:
    """A cell with its jobs, attempts and machines."""

    id: str
    platform: Platform
    environment: str
    state: CellState
    entered_at: datetime
    outcome: Outcome | None
    reason: str
    detail: str
    jobs: tuple[JobRecord, ...]
    attempts: tuple[Attempt, ...]
    transitions: tuple[Transition, ...]
    leases: tuple[LeaseRecord, ...]
    probed: Mapping[str, object]
    """The agent's `environment` event; empty before it arrives."""
    notices: tuple[Notice, ...]
    artifacts: tuple[ArtifactRecord, ...]
    fingerprint: str = ""
    """Fingerprint of its environment: device, driver, runtime, Python and packages, without the
    subject.
    """
    simulated: bool = False
    """Whether any of its machines was simulated, or its provider is the fake one."""
    decisions: tuple[PlacementDecision, ...] = ()
    """Placement decisions."""
    attestation: Attestation | None = None
    """Attestation of the last machine that reported."""
    ingested: Ingested | None = None
    """Provenance of ingested evidence, which is not attested; None for the agent's."""
    kept_until: datetime | None = None
    """Until when its machine is held, since it did not pass; None if it is not."""
    undeclared_packages: tuple[str, ...] = ()
    """Packages of this computer's interpreter that its jobs could import and ``payload.toml`` does
    not name; none on other machines, whose image is chosen."""

    @property
    def undeclared_note(self) -> str:
        """What `undeclared_packages` means for its results, for a person; empty without any."""
        many = len(self.undeclared_packages)
        said = f"jobs could import {plural(many, 'package')} of the interpreter that payload.toml"
        return f"{said} does not name" if many else ""

    @property
    def why(self) -> str:
        """Why it has this outcome, for a person: ``cancelled; unit: 2 failed``."""
        return reason_text(self.reason, self.detail, self.ended_by)

    @property
    def ended_by(self) -> str:
        """The reason that ended it, if that is not the reason of its outcome: ``cancelled``."""
        cause = self.attempts[-1].cause if self.attempts and self.is_done else None
        return cause.reason if cause and cause.reason != self.reason else ""

    @property
    def provenance(self) -> str:
        """Return its `Provenance`; ``none`` where no result was recorded or handed in."""
        if self.ingested is not None:
            return self.ingested.provenance.value
        ran = any(job.started_at or job.reused_from or job.counts.collected for job in self.jobs)
        has_evidence = ran or bool(self.probed) or self.attestation is not None
        return Provenance.AGENT.value if has_evidence else "none"

    @property
    def jobs_s(self) -> float | None:
        """Return the seconds of its own jobs that have a duration; None without any."""
        known = [job.duration_s for job in self.jobs if not job.reused_from]
        seconds = [one for one in known if one is not None]
        return sum(seconds) if seconds else None

    @property
    def is_done(self) -> bool:
        """Whether the cell is done."""
        return self.state is CellState.DONE

    @property
    def was_reached(self) -> bool:
        """Whether any of its machines was connected to."""
        return any(one.to_state == CellState.PREPARING for one in self.transitions)

    @property
    def attempt(self) -> int:
        """The number of the cell's last attempt; 0 before the first."""
        return len(self.attempts)

    @property
    def machine(self) -> LeaseRecord | None:
        """Return the cell's last machine; None before the first request."""
        return self.leases[-1] if self.leases else None

    @property
    def packages(self) -> Mapping[str, str]:
        """Importable packages: name and version."""
        found = self.probed.get("packages")
        if not isinstance(found, Mapping):
            return {}
        return {str(name): str(version) for name, version in found.items()}

    @property
    def pass_rate(self) -> float | None:
        """``passed / (passed + failed + error)``; None when all are zero."""
        rate = self.counts.pass_rate
        return None if rate is None else float(rate)

    @property
    def counts(self) -> Counts:
        """Test counts over the cell's suites."""
        total = Counts()
        for job in self.jobs:
            total = total + job.counts
        return total

    @property
    def passed_on_retry(self) -> int:
        """Number of passed tests that failed first."""
        return sum(job.passed_on_retry for job in self.jobs)

    @property
    def cost(self) -> Cost:
        """Cost of all machines of the cell so far."""
        if self.ingested and not self.leases:
            return Cost(reasons=frozenset([NOT_STATED]))
        return sum_of(cost_of(lease, lease.cost_usd) for lease in self.leases)

    @property
    def cost_usd(self) -> Decimal | None:
        """Cost of all machines so far, in US dollars; None as `no_cost` says."""
        return self.cost.usd

    @property
    def no_cost(self) -> str:
        """Why it has no cost, for a person; empty if it has."""
        return self.cost.no_cost

    @property
    def job_costs(self) -> JobCosts:
        """Return the cell's costs by job, and the overhead."""
        here = [job for job in self.jobs if not job.reused_from]
        ran = {job.id: job.duration_s for job in here if job.duration_s is not None}
        held_s = sum(lease.seconds for lease in self.leases)
        return cost_by_job(ran, self.cost_usd or Decimal(0), machine_s=held_s)

    @property
    def usd_per_validated_test(self) -> Decimal | None:
        """Cost per test that passed or failed; None without any, or if the cost is unknown."""
        return usd_per_validated_test(self.cost_usd, self.counts)


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A run with its cells and derived figures."""

    run: Run
    cells: tuple[CellRecord, ...]
    as_of: datetime
    annotations: tuple[RunAnnotation, ...] = ()
    """Annotations for its reports."""
    failure_groups: tuple[FailureGroup, ...] = ()
    """Failures by signature, largest group first."""
    known_issues: tuple[IssueUse, ...] = ()
    """The product's known issues in this run; those out of scope are left out."""
    quarantined: tuple[Quarantined, ...] = ()
    """Failing results of quarantined tests; they stay failures in every count."""
    diagnosed: tuple[DiagnosedTest, ...] = ()
    """Failing tests that ran again, with their root causes."""
    subject: SubjectBuild = field(default_factory=SubjectBuild)
    """The build of the subject that it tested."""
    pruned: tuple[PrunedPart, ...] = ()
    """Its parts that were pruned."""

    @property
    def counts(self) -> Counts:
        """Test counts over all cells."""
        total = Counts()
        for cell in self.cells:
            total = total + cell.counts
        return total

    @property
    def passed_on_retry(self) -> int:
        """Number of passed tests that failed first."""
        return sum(cell.passed_on_retry for cell in self.cells)

    @property
    def cost(self) -> Cost:
        """Cost of all machines so far."""
        return sum_of(cell.cost for cell in self.cells)

    @property
    def cost_usd(self) -> Decimal | None:
        """Cost of all machines so far; None if no machine has a price."""
        return self.cost.usd

    @property
    def usd_per_validated_test(self) -> Decimal | None:
        """Cost per test that passed or failed; None without any, or if the cost is unknown."""
        return usd_per_validated_test(self.cost_usd, self.counts)

    def cell(self, name: str) -> CellRecord | None:
        """Return the cell with this id."""
        return next((cell for cell in self.cells if cell.id == name), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestResponse:
    """Result of an ingestion."""

    run: str
    """The run's id."""
    cell: str
    state: RunState
    outcome: Outcome | None
    """Outcome of the cell."""
    replayed: bool
    """Whether an identical upload was stored before."""
    ingested: Ingested


@dataclass(frozen=True, slots=True, kw_only=True)
class PlotResponse:
    """A plot of a report as an SVG text."""

    path: str
    """Path relative to the document."""
    svg: str


@dataclass(frozen=True, slots=True)
class Evidence:
    """A run with every test of every cell: the input of reports."""

    record: RunRecord
    tests: Mapping[str, tuple[TestFact, ...]]
    """Tests by cell id, in the order of collection."""
    base: Evidence | None = None
    """The run that a `compare` report compares with."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """With a base: confirmed new names, by the old ones."""


@dataclass(frozen=True, slots=True)
class SubjectName:
    """The validated subject."""

    name: str
    version: str

    def __str__(self) -> str:
        return f"{self.name} {self.version}".strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """A run without its cells."""

    id: str
    state: RunState
    outcome: Outcome | None
    """The worst outcome of its cells; None while it runs."""
    subject: SubjectName
    matrix: str
    """The matrix's name."""
    cost_usd: Decimal | None
    """None if no machine has a price, as `no_cost` says."""
    counts: Counts
    """Test counts over all cells."""
    payload: str
    """sha256 of the payload's archive."""
    rerun_of: str | None
    commit: Commit = field(default_factory=Commit)
    """The tested commit; empty if it is unknown."""
    created_at: datetime
    finished_at: datetime | None
    cancel_requested_at: datetime | None
    untrusted: bool = False
    """Whether its code is untrusted: its results decide nothing."""
    no_cost: str = ""
    """Why it has no cost: ``own machine: nothing is charged``; empty if it has."""

    @property
    def pass_rate(self) -> float | None:
        """``passed / (passed + failed + error)``; None when all are zero."""
        rate = self.counts.pass_rate
        return None if rate is None else float(rate)

    @property
    def is_finished(self) -> bool:
        """Whether the run has an outcome."""
        return self.state is RunState.FINISHED


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResponse(RunSummary):
    """A run with its cells, jobs and machines, but without single tests."""

    cells: tuple[CellRecord, ...] = ()
    """In matrix order."""
    failure_groups: tuple[FailureGroup, ...] = ()
    """Failures by signature, largest group first."""
    known_issues: tuple[IssueUse, ...] = ()
    """The product's known issues in this run; those out of scope are left out."""
    quarantined: tuple[Quarantined, ...] = ()
    """Failing results of quarantined tests; they stay failures in every count."""
    diagnosed: tuple[DiagnosedTest, ...] = ()
    """Failing tests that ran again, with their root causes; set at the end of the retests."""
    wheel: str = ""
    """sha256 of the subject's wheel; empty without one."""
    pruned: tuple[PrunedPart, ...] = ()
    """Its parts that were pruned, when and by which rule; its results never are."""

    @property
    def has_only_skips(self) -> bool:
        """Whether it passed, and every job that did has tests that were all skipped."""
        jobs = [job for cell in self.cells for job in cell.jobs if job.outcome is Outcome.PASSED]
        skipped = [job for job in jobs if 0 < job.counts.collected == job.counts.skipped]
        return self.outcome == Outcome.PASSED and bool(jobs) and len(skipped) == len(jobs)


def note_of_run(run: Run | RunSummary, counts: Counts) -> str:
    """Return the note that lists, pages and reports show beside a run's outcome.

    ``cancelled; 3 failed``, because the outcome names only one of the two, or ``no test passed: 29
    skipped``. Empty while the run goes on, and where the outcome says all; a run of untrusted code
    is always called so.
    """
    parts = ["untrusted" if run.untrusted else ""]
    if run.outcome is not None and (
        run.cancel_requested_at is None or run.outcome is Outcome.PASSED
    ):
        parts.append(counts.nothing_passed)
    elif run.outcome is not None:
        parts += ["" if run.outcome is Outcome.CANCELLED else "cancelled", counts.failures]
    return "; ".join(filter(None, parts))


def summary_answer(run: Run, counts: Counts, cost: Cost) -> RunSummary:
    """Return a run without its cells."""
    return filled(
        RunSummary,
        run,
        subject=SubjectName(run.subject_name, run.subject_version),
        matrix=run.matrix_name,
        cost_usd=cost.usd,
        no_cost=cost.no_cost,
        counts=counts,
        payload=run.payload_digest,
    )


def run_answer(record: RunRecord) -> RunResponse:
    """Return the response of a run record."""
    summary = summary_answer(record.run, record.counts, record.cost)
    return extended(
        RunResponse,
        summary,
        cells=record.cells,
        failure_groups=record.failure_groups,
        known_issues=record.known_issues,
        quarantined=record.quarantined,
        diagnosed=record.diagnosed,
        pruned=record.pruned,
        wheel=record.subject.wheel,
    )


def flaky_mark(record: RunRecord | CellRecord | JobRecord) -> str:
    """Return ``2 flaky`` if two of the passed tests failed first; empty if none did."""
    return f"{record.passed_on_retry:,} flaky" if record.passed_on_retry else ""


def ended_mark(record: CellRecord | JobRecord) -> str:
    """Return ``cancelled; 3 failed`` if something else than its failures ended it; else empty."""
    parts = (phrase(record.ended_by), record.counts.failures) if record.ended_by else ()
    return "; ".join(part for part in parts if part)


def ingested_s(cells: Sequence[CellRecord]) -> float | None:
    """Return the seconds of the jobs of ingested cells; None where no file says them."""
    known = [cell.jobs_s for cell in cells if cell.jobs_s is not None]
    return sum(known) if known else None


def are_ingested(cells: Sequence[CellRecord]) -> bool:
    """Whether all of these cells were ingested: how long the run took says nothing of them."""
    return bool(cells) and all(cell.ingested is not None for cell in cells)
