"""What the API answers with. `RunShape` is also what ``seatrial show --json`` prints.

Money is decimal text in US dollars, times are RFC 3339 in UTC, sizes are bytes and durations
seconds. Everything that came back from a machine is plain data in these shapes.
"""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, ConfigDict, Field

from orchestrator.api.history_responses import (
    ClusterShape,
    DiagnosedShape,
    IssueUseShape,
    QuarantinedShape,
)
from orchestrator.api.ingest_responses import IngestedShape
from orchestrator.api.machine_responses import (
    AttestationShape,
    DecisionShape,
    LeaseShape,
    MachineShape,
)
from orchestrator.api.response_base import Shape, Usd
from orchestrator.domain.cell import CellState, RunState
from orchestrator.domain.outcome import Outcome
from orchestrator.domain.person import Scope


class CountsShape(Shape):
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


class CheckShape(Shape):
    """One statement that a job made about itself."""

    name: str
    outcome: str
    value: str
    unit: str
    tolerance: str
    reason: str


class MetricShape(Shape):
    """One measured quantity, with every sample."""

    name: str
    samples: list[float]
    unit: str
    direction: str
    """``higher`` or ``lower`` is better."""
    params: dict[str, object]


class PairShape(Shape):
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


class JobShape(Shape):
    """One job of one cell."""

    id: str
    kind: str
    title: str
    outcome: Outcome | None
    """null while it is not over."""
    reason: str
    detail: str
    degraded: str | None
    counts: CountsShape
    """Of a suite; all zero for other jobs, which have checks and metrics."""
    checks: list[CheckShape]
    metrics: list[MetricShape]
    pairs: list[PairShape]
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


class AttemptShape(Shape):
    """One try at a cell."""

    number: int
    outcome: Outcome | None
    reason: str
    detail: str
    opened_at: datetime
    closed_at: datetime | None


class TransitionShape(Shape):
    """One step of a cell's life."""

    at: datetime
    attempt: int
    origin: str = Field(alias="from")
    target: str = Field(alias="to")
    reason: str


class NoticeShape(Shape):
    """Something the agent wants a person to know."""

    at: datetime
    """By the machine's clock."""
    job: str
    level: str
    message: str


class ArtifactShape(Shape):
    """A raw file that came home."""

    name: str
    size_bytes: int
    sha256: str


class CellShape(Shape):
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
    counts: CountsShape
    pass_rate: float | None
    """``passed / (passed + failed + error)``; null when none of these happened."""
    jobs: list[JobShape]
    cost_usd: Usd
    attempts: list[AttemptShape]
    machine: MachineShape | None
    """The one of its last lease."""
    leases: list[LeaseShape]
    """Every row of the ledger, refused places too, in their order."""
    kept_until: datetime | None
    """Its machine is kept for a person until then, since it did not pass; null where it is not."""
    decisions: list[DecisionShape]
    """Why its machine is where it is."""
    attestation: AttestationShape | None
    """Who produced its results; null before a machine told."""
    ingested: IngestedShape | None
    """Where its evidence is from, if our agent did not produce it; then nothing is attested."""
    packages: dict[str, str]
    """What the jobs could import: name and version."""
    fingerprint: str
    """Of its environment: the same where device, driver, runtime, Python, packages are the same."""
    probed: dict[str, object]
    """What the agent found on the machine, without the packages."""
    transitions: list[TransitionShape]
    notices: list[NoticeShape]
    artifacts: list[ArtifactShape]


class SubjectShape(Shape):
    """What is being validated."""

    name: str
    version: str


class RunSummaryShape(Shape):
    """A run without its cells."""

    id: str
    state: RunState
    outcome: Outcome | None
    """Its worst cell's; null while it runs."""
    subject: SubjectShape
    matrix: str
    """The matrix's name."""
    cost_usd: Usd
    counts: CountsShape
    pass_rate: float | None
    """``passed / (passed + failed + error)``; null when none of these happened."""
    payload: str
    """sha256 of the payload's archive."""
    rerun_of: str | None
    created_at: datetime
    finished_at: datetime | None
    cancel_requested_at: datetime | None


class RunShape(RunSummaryShape):
    """A run with everything but its single tests."""

    cells: list[CellShape]
    """In matrix order."""
    clusters: list[ClusterShape]
    """Its failures by signature, the largest first."""
    known_issues: list[IssueUseShape]
    """How the product's known issues stand to it; those out of its scope are not here."""
    quarantined: list[QuarantinedShape]
    """Its failing results whose tests are in quarantine; they are failures in every count."""
    diagnosed: list[DiagnosedShape]
    """Its failing tests that ran again, and who broke them; once that is over."""


class RunPageShape(Shape):
    """Runs, newest first."""

    items: list[RunSummaryShape]
    next: str | None
    """Give it as `before` to see older ones; null on the last page."""


class TestShape(Shape):
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


class TestPageShape(Shape):
    """Tests, in the order they were collected."""

    __test__ = False

    items: list[TestShape]
    next: int | None
    """Give it as `after` to see more; null on the last page."""


class LogShape(Shape):
    """A piece of a cell's log."""

    text: str
    next: int
    """The byte offset to ask for next."""
    done: bool
    """Nothing will ever come after this piece."""


class PayloadShape(Shape):
    """An uploaded payload."""

    digest: str
    size_bytes: int
    name: str
    version: str
    jobs: list[str]
    """Ids, in the order they run."""


class SubjectFileShape(Shape):
    """An uploaded wheel."""

    digest: str
    size_bytes: int


class PlatformShape(Shape):
    """One provider, and what a platform of it may say."""

    provider: str
    rented: bool
    """Costs money, so that a matrix that names it needs ``limits.max_usd``."""
    keys: list[str]
    required: list[str]


class PlatformListShape(Shape):
    """Every provider."""

    items: list[PlatformShape]


class TokenShape(Shape):
    """An API token, without its secret."""

    id: str
    name: str
    scope: Scope
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    revoked_at: datetime | None


class NewTokenShape(TokenShape):
    """A token that was just made."""

    secret: str
    """Shown here, and never again."""


class TokenListShape(Shape):
    """Every token."""

    items: list[TokenShape]


class FaultShape(BaseModel):
    """One thing to mend in a request."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    detail: str
    pointer: str | None = None
    """JSON Pointer into the body, or into the document that the body carries."""
    parameter: str | None = None
    """The path, query or header parameter that is meant."""
    line: int | None = None
    column: int | None = None


class ProblemShape(BaseModel):
    """A problem document (RFC 9457)."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    type: str
    """A URN that is the same for every problem of a kind."""
    title: str
    status: int
    detail: str
    instance: str
    """The path of the request."""
    errors: list[FaultShape] | None = None
    matches: list[str] | None = None
    """Of an ambiguous id: the runs that it could mean."""
