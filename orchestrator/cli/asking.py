"""The plan of a launch, and the question before anything is rented."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

import typer
from pydantic import TypeAdapter, ValidationError
from rich.table import Table
from rich.text import Text

from orchestrator.cli.client import Json
from orchestrator.cli.faults import CliError
from orchestrator.cli.safe_text import one_line
from orchestrator.cli.session import Session
from orchestrator.cli.units import plural, usd
from orchestrator.domain.machine import ProviderTraits


@dataclass(frozen=True, slots=True)
class PlannedPlace:
    """Where a cell would be tried."""

    name: str
    price_usd_per_hour: Decimal | None = None


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


@dataclass(frozen=True, slots=True)
class ShownPlan:
    """What the controller says a launch would do."""

    cells: tuple[PlannedCell, ...]
    worst_usd: Decimal | None = None
    max_usd: Decimal | None = None

    def rented(self, traits: Mapping[str, ProviderTraits]) -> list[PlannedCell]:
        """The cells that cost money; a provider that is not known here does, too."""
        return [
            cell
            for cell in self.cells
            if cell.worst_usd or cell.provider not in traits or traits[cell.provider].rented
        ]


def read_plan(answer: Json) -> ShownPlan:
    """Read what the API answers. Raises CliError."""
    try:
        return TypeAdapter(ShownPlan).validate_python(answer)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise CliError(f"the controller's plan is not understood: {first['msg']}") from None


def plan_table(plan: ShownPlan) -> Table:
    """The cells, where they would run, and what that can cost."""
    table = Table(box=None, pad_edge=False, header_style="dim", show_edge=False)
    for title in ("cell", "provider", "environment", "jobs", "places", "at most"):
        table.add_column(title, justify="right" if title == "at most" else "left", overflow="fold")
    for cell in plan.cells:
        table.add_row(
            Text(one_line(cell.id), style="bold"),
            Text(one_line(cell.provider)),
            Text(one_line(cell.environment)),
            Text(", ".join(one_line(job) for job in cell.jobs) or "none"),
            Text(one_line(cell.note), style="yellow") if cell.note else _places(cell),
            Text(usd(cell.worst_usd)),
        )
    return table


def totals(plan: ShownPlan) -> str:
    """One line: how much there is to do, and the most it can cost."""
    jobs = sum(len(cell.jobs) for cell in plan.cells)
    limit = f" (limit {usd(plan.max_usd)})" if plan.max_usd is not None else ""
    cost = "free" if plan.worst_usd == 0 else f"at most {usd(plan.worst_usd)} an attempt{limit}"
    return f"{plural(len(plan.cells), 'cell')}, {plural(jobs, 'job')}, {cost}"


def ask(session: Session, plan: ShownPlan, *, yes: bool) -> None:
    """Show the plan, and have a person agree to what costs money. Raises CliError."""
    rented = plan.rented(session.wiring.traits)
    if rented:
        session.err.print(plan_table(plan))
    session.say(f"plan: {totals(plan)}")
    if not rented or yes:
        return
    names = ", ".join(one_line(cell.id) for cell in rented)
    if not session.is_interactive:
        raise CliError(
            f"{names} would be rented, for at most {usd(plan.worst_usd)} an attempt,"
            " and nobody can be asked here: say -y to agree. Nothing was launched."
        )
    if not typer.confirm(f"Rent {plural(len(rented), 'machine')}?", err=True):
        raise CliError("Nothing was launched.")


def _places(cell: PlannedCell) -> Text:
    parts = [
        one_line(place.name)
        + (f" {usd(place.price_usd_per_hour)}/h" if place.price_usd_per_hour else "")
        for place in cell.places
    ]
    return Text(", ".join(parts) or "–")
