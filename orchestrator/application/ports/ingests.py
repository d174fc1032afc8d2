"""Where ingested cells and authored statements are kept. Each method is one transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from orchestrator.application.ports.evidence import Artifact
from orchestrator.domain.cell import Cause, Run
from orchestrator.domain.ingested import Ingested, Statement
from orchestrator.domain.matrix import CellPlan

if TYPE_CHECKING:
    from orchestrator.application.ports.stores import RunSpec


class CellTakenError(ValueError):
    """The run has a cell of this name already, with other evidence; nothing was stored."""


class RunBusyError(RuntimeError):
    """The run is not finished: a cell can only be added to one that is."""


@dataclass(frozen=True, slots=True)
class Begun:
    """An ingested cell whose evidence is being stored, or is stored."""

    run_id: str
    cell_id: str
    attempt_id: str
    finished: bool


class IngestStore(Protocol):
    """Ingested cells. A run with one that is not finished is in state INGESTING."""

    def find(self, fingerprint: str) -> Begun | None:
        """The cell that was made from exactly this, if there is one."""
        ...

    def begin(
        self,
        run: Run,
        spec: RunSpec,
        cell: tuple[str, CellPlan],
        ingested: Ingested,
        *,
        attempt_id: str,
        artifacts: Sequence[Artifact],
        statements: Sequence[Statement],
        cause: Cause | None = None,
    ) -> Begun:
        """Store the cell with its open attempt, making the run or adding to a finished one.

        The run is INGESTING, the cell COLLECTING; no controller takes it for one of its own. A
        finished run learns of jobs that it has not. The artifacts are there from now on, so that
        an ingestion that is cut off can be ended from them. `cause` is why there are no results,
        where somebody says that. The same fingerprint again returns
        what was begun. Raises CellTakenError or RunBusyError.
        """
        ...

    def unfinished(self) -> tuple[tuple[Begun, Ingested], ...]:
        """Cells whose evidence is not all stored, or whose run nobody has finished."""
        ...

    def of_run(self, run_id: str) -> Mapping[str, Ingested]:
        """By cell id."""
        ...

    def of_runs(self, run_ids: Sequence[str]) -> Mapping[str, Sequence[Ingested]]:
        """By run; one without ingested cells is left out."""
        ...


class StatementStore(Protocol):
    """What people wrote for the reports of a run."""

    def add(self, run_id: str, statements: Sequence[Statement]) -> None:
        """Append; the very same statement is kept once."""
        ...

    def of_run(self, run_id: str) -> tuple[Statement, ...]:
        """In the order they were added."""
        ...
