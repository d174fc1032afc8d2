"""Machines that clouds show, and bills, as values: read leniently."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from orchestrator.cli.client import Json
from orchestrator.cli.errors import CliError
from orchestrator.cli.machine_responses import Bill, Lease, Money, Words

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """One thing that a cloud shows."""

    provider: str
    id: str
    kind: Words = "machine"
    state: Words = ""
    standing: Words = ""
    run: Words = ""
    cell: Words = ""
    expires_at: datetime | None = None
    simulated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """Everything that was seen."""

    items: tuple[Sight, ...] = ()
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
class Price:
    """What one unit of something costs somewhere."""

    provider: Words = ""
    item: Words = ""
    place: Words = ""
    market: Words = ""
    usd_per_hour: Decimal | None = None
    as_of: datetime | None = None
    source: Words = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubtful:
    """A price that is not used, and why."""

    price: Price
    why: Words = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refreshed:
    """What came of reading the prices."""

    kept: tuple[Price, ...] = ()
    doubtful: tuple[Doubtful, ...] = ()
    unread: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceList:
    """All of them."""

    items: tuple[Price, ...] = ()


def read_survey(answer: Json) -> Survey:
    """Read what ``/machines`` answers. Raises CliError."""
    return read(Survey, answer)


def read_costs(answer: Json) -> Costs:
    """Read what ``/costs`` answers. Raises CliError."""
    return read(Costs, answer)


def read(kind: type[T], answer: Json) -> T:
    """Read an answer; keys that are not known are passed over. Raises CliError."""
    try:
        return TypeAdapter(kind).validate_python(answer)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise CliError(
            f"the controller's answer is not understood: {place}: {first['msg']}",
            "Are the controller and this command of the same version?",
        ) from None
