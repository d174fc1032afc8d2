"""What the controller answers, as values: read leniently, as it may be newer than this command.

What a class does not name is passed over, and most of what is missing has a default.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from functools import cache
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, TypeAdapter, ValidationError

from orchestrator.cli.errors import CliError
from orchestrator.domain.attestation import Attestation
from orchestrator.domain.machine import ProviderTraits
from orchestrator.domain.outcome import Counts
from orchestrator.domain.prices import Price, UncertainPrice
from orchestrator.domain.signature import Signature

T = TypeVar("T")
Words = Annotated[str, BeforeValidator(lambda value: "" if value is None else value)]
Money = Annotated[Decimal, BeforeValidator(lambda value: 0 if value is None else value)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """What is paid, and its parts."""

    machine_usd: Money = Decimal(0)
    disk_usd: Money = Decimal(0)
    address_usd: Money = Decimal(0)
    total_usd: Money = Decimal(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A machine and its money."""

    attempt: int = 0
    provider: Words = ""
    place: Words = ""
    id: Words = ""
    state: Words = ""
    price_usd_per_hour: Decimal | None = None
    seconds: float = 0.0
    billed_s: int = 0
    instance_type: Words = ""
    market: Words = ""
    zone: Words = ""
    image_id: Words = ""
    image_name: Words = ""
    priced: Words = ""
    refusal: Words = ""
    simulated: bool = False
    cost_usd: Money = Decimal(0)
    bill: Bill = field(default_factory=Bill)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One line of why a machine is where it is."""

    at: datetime
    attempt: int = 0
    place: Words = ""
    verdict: Words = ""
    reason: Words = ""
    detail: Words = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureGroup:
    """Failures of one signature."""

    signature: Signature
    count: int = 0
    cells: tuple[str, ...] = ()
    known_issues: tuple[str, ...] = ()
    tolerated: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantined:
    """A failing result whose test is in quarantine."""

    id: Words = ""
    nodeid: Words = ""
    cell: Words = ""
    owner: Words = ""
    expires: Words = ""
    state: Words = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosed:
    """A failing test that ran again, and who broke it."""

    cell: Words = ""
    job: Words = ""
    nodeid: Words = ""
    answer: Words = ""
    sentence: Words = ""
    tried: Words = ""

    def __str__(self) -> str:
        return f"{self.job}::{self.nodeid}" if self.nodeid else self.job


@dataclass(frozen=True, slots=True, kw_only=True)
class IssueUse:
    """A known issue in a run."""

    id: Words = ""
    title: Words = ""
    state: Words = ""
    count: int = 0
    max_failures: int | None = None
    expired_days: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """What a job said about itself."""

    name: Words = ""
    outcome: Words = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A measured quantity; its samples are not for a terminal."""

    name: Words = ""
    unit: Words = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One job of a cell."""

    id: str
    kind: Words = "suite"
    outcome: str | None = None
    """None while it is not over."""
    reason: Words = ""
    detail: Words = ""
    degraded: str | None = None
    counts: Counts | None = None
    checks: tuple[Check, ...] = ()
    metrics: tuple[Metric, ...] = ()
    started_at: datetime | None = None
    duration_s: float | None = None
    timeout_s: float | None = None
    current: Words = ""
    """The test that runs now."""
    reused_from: Words = ""
    """Run whose evidence stands for it."""
    reuse: Words = ""
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
    message: Words = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One platform x environment."""

    id: str
    state: str
    outcome: str | None = None
    reason: Words = ""
    detail: Words = ""
    counts: Counts = field(default_factory=Counts)
    jobs: tuple[Job, ...] = ()
    attempts: tuple[Attempt, ...] | int = ()
    entered_at: datetime | None = None
    cost_usd: Money = Decimal(0)
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

    name: Words = ""
    state: Words = ""
    dialect: Words = ""
    jobs: tuple[str, ...] = ()
    announced: int | None = None
    named: int | None = None
    summed: int | None = None
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Disagreement:
    """A test that files tell differently."""

    nodeid: Words = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingested:
    """What an ingested cell is made from."""

    provenance: Words = ""
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

    name: Words = ""
    version: Words = ""

    def __str__(self) -> str:
        return f"{self.name} {self.version}".strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One launch of a matrix."""

    id: str
    state: str
    outcome: str | None = None
    subject: Subject | str = field(default_factory=Subject)
    matrix: Words = ""
    cost_usd: Money = Decimal(0)
    counts: Counts | None = None
    cells: tuple[Cell, ...] = ()
    failure_groups: tuple[FailureGroup, ...] = ()
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


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudResource:
    """One thing that a cloud shows."""

    provider: str
    id: str
    kind: Words = "machine"
    state: Words = ""
    ownership: Words = ""
    run: Words = ""
    cell: Words = ""
    expires_at: datetime | None = None
    simulated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class InventoryReport:
    """Everything that was seen."""

    items: tuple[CloudResource, ...] = ()
    unread: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A part of a bill, by job or by state."""

    usd: Money = Decimal(0)
    id: Words = ""
    phase: Words = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformCost:
    """One cell's bill, or one provider's."""

    cell: Words = ""
    provider: Words = ""
    simulated: bool = False
    seconds: float = 0.0
    machines: tuple[Lease, ...] | int = ()
    bill: Bill = field(default_factory=Bill)
    usd_per_validated_test: Decimal | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTotal:
    """One run's total."""

    run: str
    matrix: Words = ""
    created_at: datetime | None = None
    outcome: Words = ""
    total_usd: Money = Decimal(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """The bill of a run, or what the runs of some days came to."""

    bill: Bill = field(default_factory=Bill)
    run: Words = ""
    settled: bool = True
    simulated: bool = False
    max_usd: Decimal | None = None
    platforms: tuple[PlatformCost, ...] = ()
    providers: tuple[PlatformCost, ...] = ()
    phases: tuple[Share, ...] = ()
    jobs: tuple[Share, ...] = ()
    overhead_usd: Money = Decimal(0)
    validated_tests: int = 0
    usd_per_validated_test: Decimal | None = None
    simulated_usd: Money = Decimal(0)
    since: datetime | None = None
    runs: tuple[RunTotal, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Refreshed:
    """What came of reading the prices."""

    kept: tuple[Price, ...] = ()
    uncertain: tuple[UncertainPrice, ...] = ()
    unread: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceList:
    """All of them."""

    items: tuple[Price, ...] = ()


@dataclass(frozen=True, slots=True)
class PlannedPlace:
    """Where a cell would be tried."""

    name: str
    price_usd_per_hour: Decimal | None = None
    """Of the machine alone."""
    usd_per_hour: Decimal | None = None
    """With its disks and its address."""
    market: str = ""

    @property
    def total_usd(self) -> Decimal | None:
        """Everything, an hour."""
        return self.price_usd_per_hour if self.usd_per_hour is None else self.usd_per_hour


@dataclass(frozen=True, slots=True)
class PlannedCell:
    """A cell as it would be launched."""

    id: str
    provider: str
    environment: str
    jobs: tuple[str, ...]
    places: tuple[PlannedPlace, ...] = ()
    worst_usd: Decimal | None = None
    note: str = ""
    expect: str = ""
    """What its machine must be, by the matrix."""

    @property
    def is_offered(self) -> bool:
        """False where its provider says that nobody sells it: asking again cannot cost anything."""
        return not (self.note and self.worst_usd == 0)


@dataclass(frozen=True, slots=True)
class Headroom:
    """What the matrix takes of one quota, against what is free."""

    provider: str
    name: str
    scope: str
    unit: str
    needed: int
    status: str
    sentence: str = ""
    limit: int | None = None
    used: int | None = None


@dataclass(frozen=True, slots=True)
class ShownPlan:
    """What a launch would do."""

    cells: tuple[PlannedCell, ...]
    worst_usd: Decimal | None = None
    max_usd: Decimal | None = None
    headroom: tuple[Headroom, ...] = ()
    warnings: tuple[str, ...] = ()

    def rented(self, traits: Mapping[str, ProviderTraits]) -> list[PlannedCell]:
        """The cells that cost money; a provider that is not known here does, too."""
        return [
            cell
            for cell in self.cells
            if cell.worst_usd or cell.provider not in traits or traits[cell.provider].rented
        ]

    @property
    def known_usd(self) -> Decimal:
        """Of one attempt of every cell, as far as that is known."""
        return sum((cell.worst_usd for cell in self.cells if cell.worst_usd), Decimal(0))


@cache
def _adapter(kind: type) -> TypeAdapter[Any]:
    """Made at the first use: it takes longer than most commands."""
    return TypeAdapter(kind)


def read(kind: type[T], answer: object) -> T:
    """Read an answer of the API. Raises CliError."""
    try:
        found: T = _adapter(kind).validate_python(answer)  # type: ignore[arg-type]  # a class has a hash
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise CliError(
            f"the controller's answer is not understood: {place}: {first['msg']}",
            "Are the controller and this command of the same version?",
        ) from None
    return found
