"""Gather what a gate is to look at: runs with every test, their failures and what they ran with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from orchestrator.application.blame_run import blame_run
from orchestrator.application.context import Context
from orchestrator.application.describe_run import evidence_of, find_run
from orchestrator.application.ports.stores import RunSpec
from orchestrator.domain.blame import Blame
from orchestrator.domain.record import CellRecord, Evidence
from orchestrator.domain.signature import Failure
from orchestrator.domain.trials import Trial


class WrongProductError(ValueError):
    """A run is of another product than the gate."""


@dataclass(frozen=True, slots=True)
class Taken:
    """One run, as far as a gate looks at it."""

    evidence: Evidence
    spec: RunSpec
    failures: Mapping[str, tuple[Failure, ...]]
    """By cell, those that have a signature."""
    trials: Mapping[str, tuple[Trial, ...]]
    """By cell, how its failed tests went when they were run again."""
    blames: Mapping[str, tuple[Blame, ...]]
    """By cell, who broke what."""

    @property
    def id(self) -> str:
        """The run's."""
        return self.evidence.record.run.id


@dataclass(frozen=True, slots=True)
class TakenCell:
    """One cell with the run that it stands in."""

    taken: Taken
    cell: CellRecord

    @property
    def failures(self) -> tuple[Failure, ...]:
        """Its failing tests."""
        return self.taken.failures.get(self.cell.id, ())

    @property
    def trials(self) -> tuple[Trial, ...]:
        """What was tried on its machine."""
        return self.taken.trials.get(self.cell.id, ())

    @property
    def blames(self) -> tuple[Blame, ...]:
        """Who broke it."""
        return self.taken.blames.get(self.cell.id, ())


def gather(
    context: Context, product: str, runs: Sequence[str], *, at: datetime
) -> tuple[Taken, ...]:
    """The runs, oldest first, each once; the product's newest finished one where none is named.

    Raises RunMissingError, WrongProductError.
    """
    newest = context.stores.gates.newest_finished(product) if not runs else None
    wanted = sorted({*runs, *((newest,) if newest else ())})
    return tuple(_take(context, product, run, at) for run in wanted)


def standing(taken: Sequence[Taken]) -> tuple[TakenCell, ...]:
    """The cells that count: a later run's stands for an earlier one's of the same name."""
    found: dict[tuple[str, str], TakenCell] = {}
    for one in taken:
        for cell in one.evidence.record.cells:
            found[cell.platform.id, cell.environment] = TakenCell(one, cell)
    return tuple(found.values())


def _take(context: Context, product: str, run: str, at: datetime) -> Taken:
    stores = context.stores
    find_run(stores, run)
    spec = stores.runs.spec(run)
    if spec.manifest.name != product:
        raise WrongProductError(
            f"run {run} is of {spec.manifest.name!r}, and the gate is of {product!r}; "
            "name a run of that product"
        )
    failures: dict[str, list[Failure]] = {}
    for failure in stores.failures.of_run(run):
        failures.setdefault(failure.cell, []).append(failure)
    return Taken(
        evidence_of(stores, run, at=at),
        spec,
        {cell: tuple(some) for cell, some in failures.items()},
        stores.trials.of_run(run),
        blame_run(stores, run),
    )
