"""Record of a run: all its stored data, for `show`, watchers, REST and reports."""

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
from orchestrator.domain.collected_tests import TestSet
from orchestrator.domain.commit import Commit
from orchestrator.domain.copied_fields import extended, filled
from orchestrator.domain.event_facts import CheckFact, MetricFact, Notice, TestFact
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
from orchestrator.domain.units import duration, elapsed, plural
from orchestrator.domain.vocabulary import phrase, reason_text


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job of a cell with its results."""

    id: str
    kind: str
    title: str
    outcome: Outcome | None
    """The outcome; None until the job is finished."""
    reason: str = ""
    detail: str = ""
    ending: Cause | None = None
    """The end of the job, if failing tests and checks do not explain it; None otherwise."""
    degraded: str | None = None
    counts: Counts = field(default_factory=Counts)
    """Numbers of its tests; while it runs, `missing` are those not reported yet."""
    unnamed: Counts = field(default_factory=Counts)
    """The part of `counts` whose tests the artifact does not name."""
    passed_on_retry: int = 0
    """Number of passed tests that failed first and that the suite itself repeated (flaky tests)."""
    checks: tuple[CheckFact, ...] = ()
    metrics: tuple[MetricFact, ...] = ()
    turns: tuple[MetricFact, ...] = ()
    """The turns of both arms of a paired benchmark."""
    started_at: datetime | None = None
    duration_s: float | None = None
    timeout_s: float = 0.0
    current: str = ""
    """Node id of the running test; empty if none runs."""
    idle_since: datetime | None = None
    """Time since which it is silent; None while it produces output."""
    idle_timeout_s: float = 0.0
    """Seconds of silence after which the job is stopped; 0 if unknown."""
    reused_from: str = ""
    """Id of the run whose evidence is reused; empty if the job ran."""
    at: datetime | None = None
    """When the evidence was produced; for a reused job, the original time.

    None if it is unknown.
    """
    test_set: TestSet = field(default_factory=TestSet)
    """The collected tests, and what left out others."""
    reuse: str = ""
    """Why the evidence was or was not reused; empty if reuse was not requested."""

    @property
    def why(self) -> str:
        """The explanation of the outcome for a person, such as ``cancelled; 2 failed``."""
        return reason_text(self.reason, self.detail, self.ended_by)

    @property
    def ended_by(self) -> str:
        """The reason that ended the job, if the outcome has another reason; otherwise empty."""
        reason = self.ending.reason if self.ending else ""
        return "" if reason in (self.reason, "exit") else reason

    @property
    def pairs(self) -> tuple[Pairs, ...]:
        """The pairs of a paired benchmark."""
        return pairs_of(self.id, self.turns)

    @property
    def is_running(self) -> bool:
        """Whether the job has started and not finished."""
        return self.outcome is None and self.started_at is not None and self.duration_s is None

    def silence(self, now: datetime) -> str:
        """Return for how long the job has been silent, with its limit; empty while it prints."""
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
    """sha256 of its content, in hex."""
    pruned_at: datetime | None = None
    """When its content was pruned; None while it is stored."""


_ODD = re.compile(r"[^A-Za-z0-9._+=@-]")


def artifacts_of_test(artifacts: Iterable[str], job: str, nodeid: str) -> tuple[str, ...]:
    """Return the names of the artifacts that a test wrote into the folder of its name.

    Args:
        artifacts: Names of the cell's artifacts.
        job: The test's job.
        nodeid: The test's node id. The folder has its last part with the parameters.
    """
    path, bracket, params = nodeid.partition("[")
    name = path.rsplit("::", 1)[-1] + bracket + params
    begin = f"{job}.{_ODD.sub('_', name)}-"
    return tuple(one for one in artifacts if one.startswith(begin))


@dataclass(frozen=True, slots=True, kw_only=True)
class TestResponse(TestFact):
    """A test with the text of its failure and its artifacts."""

    __test__ = False

    artifacts: tuple[str, ...] = ()
    """Names of the cell's artifacts that the test wrote into the folder of its name."""

    @property
    def error(self) -> str:
        """The first line of the test's message; empty without a message."""
        lines = (self.message or self.text).strip().splitlines()
        return lines[0] if lines else ""


def test_answer(test: TestFact, artifacts: Iterable[str]) -> TestResponse:
    """Return a test with those of the cell's artifacts that it wrote."""
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
    """The machine's address, for a person; empty if it is not known."""
    price_usd_per_hour: Decimal | None
    seconds: float
    """Seconds from the launch call until the machine was gone or until now; 0 without a machine."""
    cost_usd: Decimal
    """Settled cost in US dollars, or the cost until now."""
    refusal: str = ""
    bill: Bill = field(default_factory=Bill)
    """The parts of the cost."""
    billed_s: int = 0
    """Billed seconds: rounded up, and at least the offer's minimum."""
    phase_usd: Mapping[CellState, Decimal] = field(default_factory=dict)
    """US dollars by cell state."""
    priced: str = ""
    """Source and date of the prices."""
    instance_type: str = ""
    market: str = ""
    region: str = ""
    zone: str = ""
    image_id: str = ""
    image_name: str = ""
    simulated: bool = False
    """Whether the provider is an emulation."""


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
    """Data of the agent's `environment` event; empty before it arrives."""
    notices: tuple[Notice, ...]
    artifacts: tuple[ArtifactRecord, ...]
    fingerprint: str = ""
    """Fingerprint of the environment (device, driver, runtime, Python, packages), without the
    subject."""
    simulated: bool = False
    """Whether any of its machines was emulated, or its provider is the fake one."""
    decisions: tuple[PlacementDecision, ...] = ()
    """The decisions about places for its machines."""
    attestation: Attestation | None = None
    """Attestation of the last machine that reported; None if none has."""
    ingested: Ingested | None = None
    """Sources of ingested evidence, which is not attested; None if the agent produced the evidence.
    """
    kept_until: datetime | None = None
    """Time until which the machine is held, because the cell did not pass; None if it is not held.
    """
    undeclared_packages: tuple[str, ...] = ()
    """Packages that jobs could import from this computer's interpreter and that ``payload.toml``
    does not name; empty for other machines, whose image is selected."""

    @property
    def undeclared_note(self) -> str:
        """The sentence about `undeclared_packages` for a person; empty without any."""
        many = len(self.undeclared_packages)
        said = f"jobs could import {plural(many, 'package')} of the interpreter that payload.toml"
        return f"{said} does not name" if many else ""

    @property
    def why(self) -> str:
        """The explanation of the outcome for a person, such as ``cancelled; unit: 2 failed``."""
        return reason_text(self.reason, self.detail, self.ended_by)

    @property
    def ended_by(self) -> str:
        """The reason that ended the cell, if the outcome has another reason; otherwise empty."""
        cause = self.attempts[-1].cause if self.attempts and self.is_done else None
        return cause.reason if cause and cause.reason != self.reason else ""

    @property
    def provenance(self) -> str:
        """The `Provenance` of the evidence; ``none`` if there is no evidence."""
        if self.ingested is not None:
            return self.ingested.provenance.value
        ran = any(job.started_at or job.reused_from or job.counts.collected for job in self.jobs)
        has_evidence = ran or bool(self.probed) or self.attestation is not None
        return Provenance.AGENT.value if has_evidence else "none"

    @property
    def jobs_s(self) -> float | None:
        """Total seconds of its jobs, without reused ones; None if no duration is known."""
        known = [job.duration_s for job in self.jobs if not job.reused_from]
        seconds = [one for one in known if one is not None]
        return sum(seconds) if seconds else None

    @property
    def is_done(self) -> bool:
        """Whether the cell is in the state `done`."""
        return self.state is CellState.DONE

    @property
    def was_reached(self) -> bool:
        """Whether the controller connected to any of its machines."""
        return any(one.to_state == CellState.PREPARING for one in self.transitions)

    @property
    def attempt(self) -> int:
        """Number of the last attempt; 0 before the first."""
        return len(self.attempts)

    @property
    def machine(self) -> LeaseRecord | None:
        """The last machine; None before the first request."""
        return self.leases[-1] if self.leases else None

    @property
    def packages(self) -> Mapping[str, str]:
        """Versions of the importable packages, by name."""
        found = self.probed.get("packages")
        if not isinstance(found, Mapping):
            return {}
        return {str(name): str(version) for name, version in found.items()}

    @property
    def pass_rate(self) -> float | None:
        """The share ``passed / (passed + failed + error)``; None if all three are 0."""
        rate = self.counts.pass_rate
        return None if rate is None else float(rate)

    @property
    def counts(self) -> Counts:
        """Numbers of the cell's tests."""
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
        """The cost of all its machines until now."""
        if self.ingested and not self.leases:
            return Cost(reasons=frozenset([NOT_STATED]))
        return sum_of(cost_of(lease, lease.cost_usd) for lease in self.leases)

    @property
    def cost_usd(self) -> Decimal | None:
        """The cost of all its machines in US dollars; None without a cost (see `no_cost`)."""
        return self.cost.usd

    @property
    def no_cost(self) -> str:
        """Why there is no cost, for a person; empty with a cost."""
        return self.cost.no_cost

    @property
    def job_costs(self) -> JobCosts:
        """The cost of its machines by job, and the overhead."""
        here = [job for job in self.jobs if not job.reused_from]
        ran = {job.id: job.duration_s for job in here if job.duration_s is not None}
        held_s = sum(lease.seconds for lease in self.leases)
        return cost_by_job(ran, self.cost_usd or Decimal(0), machine_s=held_s)

    @property
    def usd_per_validated_test(self) -> Decimal | None:
        """US dollars per test that passed or failed; None without such tests or a cost."""
        return usd_per_validated_test(self.cost_usd, self.counts)


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A run with its cells and the figures that are derived from them."""

    run: Run
    cells: tuple[CellRecord, ...]
    as_of: datetime
    annotations: tuple[RunAnnotation, ...] = ()
    """Annotations of the run."""
    failure_groups: tuple[FailureGroup, ...] = ()
    """The failure groups, largest first."""
    known_issues: tuple[IssueUse, ...] = ()
    """The states of the product's known issues in this run, without those out of scope."""
    quarantined: tuple[Quarantined, ...] = ()
    """Failing results of quarantined tests; they stay failures in every count."""
    diagnosed: tuple[DiagnosedTest, ...] = ()
    """Failing tests that were retested, with their root causes."""
    subject: SubjectBuild = field(default_factory=SubjectBuild)
    """The build of the subject that the run tested."""
    pruned: tuple[PrunedPart, ...] = ()
    """The parts of the run that were pruned."""

    @property
    def counts(self) -> Counts:
        """Numbers of the tests of all cells."""
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
        """The cost of all machines until now."""
        return sum_of(cell.cost for cell in self.cells)

    @property
    def cost_usd(self) -> Decimal | None:
        """The cost of all machines in US dollars; None if no machine has a price."""
        return self.cost.usd

    @property
    def usd_per_validated_test(self) -> Decimal | None:
        """US dollars per test that passed or failed; None without such tests or a cost."""
        return usd_per_validated_test(self.cost_usd, self.counts)

    def cell(self, name: str) -> CellRecord | None:
        """Return the cell with this id; None if there is none."""
        return next((cell for cell in self.cells if cell.id == name), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestResponse:
    """The result of ingesting an upload."""

    run: str
    """Id of the run."""
    cell: str
    state: RunState
    outcome: Outcome | None
    """Outcome of the cell."""
    replayed: bool
    """Whether an identical upload was stored before."""
    ingested: Ingested


@dataclass(frozen=True, slots=True, kw_only=True)
class PlotResponse:
    """A plot of a report as SVG."""

    path: str
    """Path of the plot, relative to the document."""
    svg: str


@dataclass(frozen=True, slots=True)
class Evidence:
    """A run with every test of its cells, from which reports are made."""

    record: RunRecord
    tests: Mapping[str, tuple[TestFact, ...]]
    """Tests by cell id, in the order of collection."""
    base: Evidence | None = None
    """The run that a comparison compares with; None without one."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """With a base: new names of tests by old ones, as confirmed by aliases."""


@dataclass(frozen=True, slots=True)
class SubjectName:
    """Name and version of the subject."""

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
    """Name of the matrix."""
    cost_usd: Decimal | None
    """Cost in US dollars; None if no machine has a price (see `no_cost`)."""
    counts: Counts
    """Numbers of the tests of all cells."""
    payload: str
    """sha256 of the payload's archive."""
    rerun_of: str | None
    commit: Commit = field(default_factory=Commit)
    """The tested commit; empty if it is unknown."""
    created_at: datetime
    finished_at: datetime | None
    cancel_requested_at: datetime | None
    untrusted: bool = False
    """Whether the code is untrusted, so that no gate accepts its results."""
    no_cost: str = ""
    """Why there is no cost, such as ``own machine: nothing is charged``; empty with a cost."""

    @property
    def pass_rate(self) -> float | None:
        """The share ``passed / (passed + failed + error)``; None if all three are 0."""
        rate = self.counts.pass_rate
        return None if rate is None else float(rate)

    @property
    def is_finished(self) -> bool:
        """Whether the run is finished."""
        return self.state is RunState.FINISHED


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResponse(RunSummary):
    """A run with its cells, jobs and machines, but without its tests."""

    cells: tuple[CellRecord, ...] = ()
    """The cells in the order of the matrix."""
    failure_groups: tuple[FailureGroup, ...] = ()
    """The failure groups, largest first."""
    known_issues: tuple[IssueUse, ...] = ()
    """The states of the product's known issues in this run, without those out of scope."""
    quarantined: tuple[Quarantined, ...] = ()
    """Failing results of quarantined tests; they stay failures in every count."""
    diagnosed: tuple[DiagnosedTest, ...] = ()
    """Failing tests that were retested, with their root causes; set when the retests end."""
    wheel: str = ""
    """sha256 of the subject's wheel; empty without a wheel."""
    pruned: tuple[PrunedPart, ...] = ()
    """The parts that were pruned, with time and rule; results are never pruned."""

    @property
    def has_only_skips(self) -> bool:
        """Whether the run passed, and all of its passed jobs have only skipped tests."""
        jobs = [job for cell in self.cells for job in cell.jobs if job.outcome is Outcome.PASSED]
        skipped = [job for job in jobs if 0 < job.counts.collected == job.counts.skipped]
        return self.outcome == Outcome.PASSED and bool(jobs) and len(skipped) == len(jobs)


def note_of_run(run: Run | RunSummary, counts: Counts) -> str:
    """Return the note that is displayed beside the outcome of a run.

    Examples are ``cancelled; 3 failed``, because an outcome names only one of the two, and ``no
    test passed: 29 skipped``. The note is empty while the run is not finished, and if the
    outcome needs no note. It always has the word ``untrusted`` for a run of untrusted code.
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
    """Return the summary of a run, without its cells."""
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
    """Return a run record as the response of REST."""
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
    """Return the number of flaky tests in words, ``2 flaky``; empty if there are none."""
    return f"{record.passed_on_retry:,} flaky" if record.passed_on_retry else ""


def ended_mark(record: CellRecord | JobRecord) -> str:
    """Return ``cancelled; 3 failed`` if another reason than failures ended it; otherwise empty."""
    parts = (phrase(record.ended_by), record.counts.failures) if record.ended_by else ()
    return "; ".join(part for part in parts if part)


def ingested_s(cells: Sequence[CellRecord]) -> float | None:
    """Return the total seconds of the jobs of ingested cells; None if no file states any."""
    known = [cell.jobs_s for cell in cells if cell.jobs_s is not None]
    return sum(known) if known else None


def are_ingested(cells: Sequence[CellRecord]) -> bool:
    """Whether all of these cells were ingested, so that the run itself has no duration."""
    return bool(cells) and all(cell.ingested is not None for cell in cells)
