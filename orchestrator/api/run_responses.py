"""What the API answers with. `RunResponse` is also what ``seatrial show --json`` prints.

Money is decimal text in US dollars, times are RFC 3339 in UTC, sizes are bytes and durations
seconds. Everything that came back from a machine is plain data in these shapes.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction

from pydantic import Field

from orchestrator.api.history import (
    DiagnosedResponse,
    IssueUseResponse,
    QuarantinedResponse,
    tell_quarantined,
    tell_use,
)
from orchestrator.api.ingest import IngestedResponse, tell_ingested
from orchestrator.api.machines import (
    LeaseResponse,
    MachineResponse,
    tell_lease,
    tell_machine,
)
from orchestrator.api.models import ResponseModel, Usd, documented
from orchestrator.domain.attestation import Attestation
from orchestrator.domain.cell import (
    Attempt,
    CellState,
    PlacementDecision,
    Run,
    RunState,
    Transition,
)
from orchestrator.domain.facts import Notice
from orchestrator.domain.fingerprint import fingerprint
from orchestrator.domain.gate.snapshot import Pairs
from orchestrator.domain.outcome import Counts, Outcome
from orchestrator.domain.paired_samples import pairs_of, slowdown
from orchestrator.domain.run_record import ArtifactRecord, CellRecord, JobRecord, RunRecord
from orchestrator.domain.signature import FailureGroup

documented(Counts)

PACKAGES = "packages"


class CheckResponse(ResponseModel):
    """One statement that a job made about itself."""

    name: str
    outcome: str
    value: str
    unit: str
    tolerance: str
    reason: str


class MetricResponse(ResponseModel):
    """One measured quantity, with every sample."""

    name: str
    samples: list[float]
    unit: str
    direction: str
    """``higher`` or ``lower`` is better."""
    params: dict[str, object]


class PairResponse(ResponseModel):
    """A benchmark that was measured in turns with its baseline, on the same machine."""

    metric: str
    unit: str
    direction: str
    """``higher`` or ``lower`` is better."""
    pairs: int
    """Turns of the subject, each with one of the baseline beside it."""
    slowdown: float
    """Median over the pairs: 0.03 is 3 % slower, negative is faster."""
    remarks: list[str]
    """What speaks against the figures, such as a throttled device."""


class JobResponse(ResponseModel):
    """One job of one cell."""

    id: str
    kind: str
    title: str
    outcome: Outcome | None
    """null while it is not over."""
    reason: str
    detail: str
    degraded: str | None
    counts: Counts
    """Of a suite; all zero for other jobs, which have checks and metrics."""
    checks: list[CheckResponse]
    metrics: list[MetricResponse]
    pairs: list[PairResponse]
    """Of a benchmark with a baseline."""
    started_at: datetime | None
    duration_s: float | None
    timeout_s: float
    current: str
    """The test that runs now, or empty."""
    reused_from: str
    """Run whose evidence stands for the job, which was not run; empty where it is run."""
    at: datetime | None
    """When its evidence was produced; of a reused job, back then."""
    reuse: str
    """Why it was reused, or was not; empty where nobody asked for reuse."""


class AttemptResponse(ResponseModel):
    """One try at a cell."""

    number: int
    outcome: Outcome | None
    reason: str
    detail: str
    opened_at: datetime
    closed_at: datetime | None


class TransitionResponse(ResponseModel):
    """One step of a cell's life."""

    at: datetime
    attempt: int
    origin: str = Field(alias="from")
    target: str = Field(alias="to")
    reason: str


class NoticeResponse(ResponseModel):
    """Something the agent wants a person to know."""

    at: datetime
    """By the machine's clock."""
    job: str
    level: str
    message: str


class ArtifactResponse(ResponseModel):
    """A raw file that came home."""

    name: str
    size_bytes: int
    sha256: str


class CellResponse(ResponseModel):
    """One platform x environment of the run."""

    id: str
    platform: str
    """The platform's id in the matrix."""
    environment: str
    """The environment's name."""
    state: CellState
    entered_at: datetime
    """When it reached its state."""
    outcome: Outcome | None
    reason: str
    detail: str
    optional: bool
    simulated: bool
    counts: Counts
    pass_rate: float | None
    """``passed / (passed + failed + error)``; null when none of these happened."""
    jobs: list[JobResponse]
    cost_usd: Usd
    attempts: list[AttemptResponse]
    machine: MachineResponse | None
    """The one of its last lease."""
    leases: list[LeaseResponse]
    """Every row of the ledger, refused places too, in their order."""
    kept_until: datetime | None
    """Its machine is kept for a person until then, since it did not pass; null where it is not."""
    decisions: list[PlacementDecision]
    """Why its machine is where it is."""
    attestation: Attestation | None
    """Who produced its results; null before a machine told."""
    ingested: IngestedResponse | None
    """Where its evidence is from, if our agent did not produce it; then nothing is attested."""
    packages: dict[str, str]
    """What the jobs could import: name and version."""
    fingerprint: str
    """Of its environment: the same where device, driver, runtime, Python, packages are the same."""
    probed: dict[str, object]
    """What the agent found on the machine, without the packages."""
    transitions: list[TransitionResponse]
    notices: list[NoticeResponse]
    artifacts: list[ArtifactResponse]


class SubjectResponse(ResponseModel):
    """What is being validated."""

    name: str
    version: str


class RunSummaryResponse(ResponseModel):
    """A run without its cells."""

    id: str
    state: RunState
    outcome: Outcome | None
    """Its worst cell's; null while it runs."""
    subject: SubjectResponse
    matrix: str
    """The matrix's name."""
    cost_usd: Usd
    counts: Counts
    pass_rate: float | None
    """``passed / (passed + failed + error)``; null when none of these happened."""
    payload: str
    """sha256 of the payload's archive."""
    rerun_of: str | None
    created_at: datetime
    finished_at: datetime | None
    cancel_requested_at: datetime | None


class RunResponse(RunSummaryResponse):
    """A run with everything but its single tests."""

    cells: list[CellResponse]
    """In matrix order."""
    failure_groups: list[FailureGroup]
    """Its failures by signature, the largest first."""
    known_issues: list[IssueUseResponse]
    """How the product's known issues stand to it; those out of its scope are not here."""
    quarantined: list[QuarantinedResponse]
    """Its failing results whose tests are in quarantine; they are failures in every count."""
    diagnosed: list[DiagnosedResponse]
    """Its failing tests that ran again, and who broke them; once that is over."""


class RunPageResponse(ResponseModel):
    """Runs, newest first."""

    items: list[RunSummaryResponse]
    next: str | None
    """Give it as `before` to see older ones; null on the last page."""


def tell_run(record: RunRecord) -> RunResponse:
    """A run with its cells."""
    summary = tell_summary(record.run, record.counts, record.cost_usd)
    return RunResponse(
        **dict(summary),
        cells=[tell_cell(cell, record) for cell in record.cells],
        failure_groups=list(record.failure_groups),
        known_issues=[tell_use(use) for use in record.known_issues],
        quarantined=[tell_quarantined(one) for one in record.quarantined],
        diagnosed=[DiagnosedResponse.of(one) for one in record.diagnosed],
    )


def tell_summary(run: Run, counts: Counts, cost_usd: Decimal) -> RunSummaryResponse:
    """A run without its cells."""
    return RunSummaryResponse.of(
        run,
        subject=SubjectResponse(name=run.subject_name, version=run.subject_version),
        matrix=run.matrix_name,
        cost_usd=cost_usd,
        counts=counts,
        pass_rate=_rate(counts.pass_rate),
        payload=run.payload_digest,
    )


def tell_cell(cell: CellRecord, run: RunRecord) -> CellResponse:
    """One cell of a run."""
    last = cell.leases[-1] if cell.leases else None
    return CellResponse.of(
        cell,
        platform=cell.platform.id,
        optional=cell.platform.optional,
        pass_rate=_rate(cell.counts.pass_rate),
        jobs=[_job(job) for job in cell.jobs],
        attempts=[_attempt(attempt) for attempt in cell.attempts],
        machine=tell_machine(last) if last else None,
        leases=[tell_lease(lease) for lease in cell.leases],
        kept_until=run.kept_until(cell),
        ingested=tell_ingested(cell.ingested) if cell.ingested else None,
        packages=_packages(cell.probed),
        fingerprint=fingerprint(cell.probed),
        probed={key: value for key, value in cell.probed.items() if key != PACKAGES},
        transitions=[_transition(step) for step in cell.transitions],
        notices=[_notice(notice) for notice in cell.notices],
        artifacts=[_artifact(artifact) for artifact in cell.artifacts],
    )


def _packages(probed: Mapping[str, object]) -> dict[str, str]:
    """A machine said it: whatever else it may be, it becomes names and texts."""
    found = probed.get(PACKAGES)
    if not isinstance(found, Mapping):
        return {}
    return {str(name): str(version) for name, version in found.items()}


def _rate(rate: Fraction | None) -> float | None:
    return None if rate is None else float(rate)


def _job(job: JobRecord) -> JobResponse:
    return JobResponse.of(
        job,
        pairs=[_pair(pairs) for pairs in pairs_of(job)],
    )


def _pair(pairs: Pairs) -> PairResponse:
    return PairResponse.of(pairs, pairs=len(pairs.subject), slowdown=slowdown(pairs))


def _attempt(attempt: Attempt) -> AttemptResponse:
    cause = attempt.cause
    return AttemptResponse.of(
        attempt, reason=cause.reason if cause else "", detail=cause.detail if cause else ""
    )


def _transition(step: Transition) -> TransitionResponse:
    words = {"from": step.from_state, "to": step.to_state}
    return TransitionResponse(at=step.at, attempt=step.attempt, reason=step.reason, **words)


def _notice(notice: Notice) -> NoticeResponse:
    return NoticeResponse.of(notice, at=datetime.fromtimestamp(notice.ts, UTC))


def _artifact(artifact: ArtifactRecord) -> ArtifactResponse:
    return ArtifactResponse.of(artifact, sha256=artifact.digest)
