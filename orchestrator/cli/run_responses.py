"""What the controller shows of a run, as values: `show JSON` of the API, read leniently."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from functools import cache

from pydantic import TypeAdapter, ValidationError

from orchestrator.cli.errors import CliError
from orchestrator.cli.failure_responses import Cluster, Diagnosed, IssueUse, Quarantined
from orchestrator.cli.machine_responses import Attestation, Decision, Lease
from orchestrator.cli.machine_responses import Money as _Money
from orchestrator.cli.machine_responses import Words as _Text
from orchestrator.domain.outcome import Counts


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """What a job said about itself."""

    name: _Text = ""
    outcome: _Text = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A measured quantity; its samples are not for a terminal."""

    name: _Text = ""
    unit: _Text = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One job of a cell."""

    id: str
    kind: _Text = "suite"
    outcome: str | None = None
    """None while it is not over."""
    reason: _Text = ""
    detail: _Text = ""
    degraded: str | None = None
    counts: Counts | None = None
    checks: tuple[Check, ...] = ()
    metrics: tuple[Metric, ...] = ()
    started_at: datetime | None = None
    duration_s: float | None = None
    timeout_s: float | None = None
    current: _Text = ""
    """The test that runs now."""
    reused_from: _Text = ""
    """Run whose evidence stands for it."""
    reuse: _Text = ""
    """Why it was reused, or was not."""

    @property
    def is_running(self) -> bool:
        """Whether it was started and is not over."""
        return self.outcome is None and self.started_at is not None and self.duration_s is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One try."""

    number: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CellNotice:
    """Something that the agent wants a person to know."""

    job: str = ""
    level: str = ""
    message: _Text = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One platform x environment."""

    id: str
    state: str
    outcome: str | None = None
    reason: _Text = ""
    detail: _Text = ""
    counts: Counts = field(default_factory=Counts)
    jobs: tuple[Job, ...] = ()
    attempts: tuple[Attempt, ...] | int = ()
    entered_at: datetime | None = None
    cost_usd: _Money = Decimal(0)
    artifacts: tuple[Artifact, ...] = ()
    notices: tuple[CellNotice, ...] = ()
    simulated: bool = False
    """Emulated machines: no gate accepts its results."""
    kept_until: datetime | None = None
    """Its machine waits for a person until then."""
    leases: tuple[Lease, ...] = ()
    decisions: tuple[Decision, ...] = ()
    attestation: Attestation | None = None
    ingested: Ingested | None = None
    """Where its evidence is from, if no agent produced it."""

    @property
    def is_done(self) -> bool:
        """Whether nothing more will happen."""
        return self.state == "done"

    @property
    def attempt(self) -> int:
        """The number of its last attempt; 0 before the first."""
        return self.attempts if isinstance(self.attempts, int) else len(self.attempts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One file that an ingested cell is made from."""

    name: _Text = ""
    state: _Text = ""
    dialect: _Text = ""
    jobs: tuple[str, ...] = ()
    announced: int | None = None
    named: int | None = None
    summed: int | None = None
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Disagreement:
    """A test that files tell differently."""

    nodeid: _Text = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingested:
    """What an ingested cell is made from."""

    provenance: _Text = ""
    dated_at: datetime | None = None
    is_dated: bool = False
    sources: tuple[Source, ...] = ()
    disagreements: tuple[Disagreement, ...] = ()
    repeated: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """A raw file that came home."""

    name: str
    size_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What is being validated."""

    name: _Text = ""
    version: _Text = ""

    def __str__(self) -> str:
        return f"{self.name} {self.version}".strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One launch of a matrix."""

    id: str
    state: str
    outcome: str | None = None
    subject: Subject | str = field(default_factory=Subject)
    matrix: _Text = ""
    cost_usd: _Money = Decimal(0)
    counts: Counts | None = None
    cells: tuple[Cell, ...] = ()
    clusters: tuple[Cluster, ...] = ()
    known_issues: tuple[IssueUse, ...] = ()
    quarantined: tuple[Quarantined, ...] = ()
    diagnosed: tuple[Diagnosed, ...] = ()
    created_at: datetime | None = None
    finished_at: datetime | None = None
    cancel_requested_at: datetime | None = None

    @property
    def is_finished(self) -> bool:
        """Whether it has its outcome."""
        return self.state == "finished"

    @property
    def is_ingesting(self) -> bool:
        """Whether foreign evidence is being stored for it; nothing of it runs anywhere."""
        return self.state == "ingesting"

    @property
    def totals(self) -> Counts:
        """Of all cells."""
        if self.counts is not None and not self.cells:
            return self.counts
        total = Counts()
        for cell in self.cells:
            total += cell.counts
        return total


@cache
def _adapter() -> TypeAdapter[Run]:
    """Made at the first use: it takes longer than most commands."""
    return TypeAdapter(Run)


def read_run(shown: object) -> Run:
    """Read `show` JSON; keys that are not known are passed over. Raises CliError."""
    try:
        return _adapter().validate_python(shown)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise CliError(
            f"the controller shows a run in a way that is not understood: {place}: {first['msg']}",
            "Are the controller and this command of the same version?",
        ) from None
