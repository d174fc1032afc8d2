"""What the API answers with. `RunResponse` is also what ``seatrial show --json`` prints.

Money is decimal text in US dollars, times are RFC 3339 in UTC, sizes are bytes and durations
seconds. Everything that came back from a machine is plain data in these shapes.
"""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, ConfigDict, Field

from orchestrator.api.history_responses import (
    ClusterResponse,
    DiagnosedResponse,
    IssueUseResponse,
    QuarantinedResponse,
)
from orchestrator.api.ingest_responses import IngestedResponse
from orchestrator.api.machine_responses import (
    AttestationResponse,
    DecisionResponse,
    LeaseResponse,
    MachineResponse,
)
from orchestrator.api.models import ResponseModel, Usd
from orchestrator.application.ports.stores import Scope
from orchestrator.domain.cell import CellState, RunState
from orchestrator.domain.outcome import Outcome


class CountsResponse(ResponseModel):
    """Pytest results by outcome."""

    passed: int
    failed: int
    error: int
    skipped: int
    xfailed: int
    xpassed: int
    missing: int
    """Collected, and not reported (yet, while the job runs)."""
    not_run: int
    """Collected, and never started."""


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
    counts: CountsResponse
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
    counts: CountsResponse
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
    decisions: list[DecisionResponse]
    """Why its machine is where it is."""
    attestation: AttestationResponse | None
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
    counts: CountsResponse
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
    clusters: list[ClusterResponse]
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


class TestResponse(ResponseModel):
    """One test, with the text of its failure."""

    __test__ = False

    job: str
    nodeid: str
    outcome: str
    final: bool
    """Whether its outcome can still get worse."""
    duration_s: float
    reason: str
    message: str
    text: str


class TestPageResponse(ResponseModel):
    """Tests, in the order they were collected."""

    __test__ = False

    items: list[TestResponse]
    next: int | None
    """Give it as `after` to see more; null on the last page."""


class LogResponse(ResponseModel):
    """A piece of a cell's log."""

    text: str
    next: int
    """The byte offset to ask for next."""
    done: bool
    """Nothing will ever come after this piece."""


class PayloadResponse(ResponseModel):
    """An uploaded payload."""

    digest: str
    size_bytes: int
    name: str
    version: str
    jobs: list[str]
    """Ids, in the order they run."""


class SubjectFileResponse(ResponseModel):
    """An uploaded wheel."""

    digest: str
    size_bytes: int


class PlatformResponse(ResponseModel):
    """One provider, and what a platform of it may say."""

    provider: str
    rented: bool
    """Costs money, so that a matrix that names it needs ``limits.max_usd``."""
    keys: list[str]
    required: list[str]


class PlatformListResponse(ResponseModel):
    """Every provider."""

    items: list[PlatformResponse]


class TokenResponse(ResponseModel):
    """An API token, without its secret."""

    id: str
    name: str
    scope: Scope
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    revoked_at: datetime | None


class NewTokenResponse(TokenResponse):
    """A token that was just made."""

    secret: str
    """Shown here, and never again."""


class TokenListResponse(ResponseModel):
    """Every token."""

    items: list[TokenResponse]


class FaultResponse(BaseModel):
    """One thing to mend in a request."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    detail: str
    pointer: str | None = None
    """JSON Pointer into the body, or into the document that the body carries."""
    parameter: str | None = None
    """The path, query or header parameter that is meant."""
    line: int | None = None
    column: int | None = None


class ProblemResponse(BaseModel):
    """A problem document (RFC 9457)."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    type: str
    """A URN that is the same for every problem of a kind."""
    title: str
    status: int
    detail: str
    instance: str
    """The path of the request."""
    errors: list[FaultResponse] | None = None
    matches: list[str] | None = None
    """Of an ambiguous id: the runs that it could mean."""
