"""More executions of failed tests on the same machine, with one thing changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

from orchestrator.domain.cell import CellState
from orchestrator.domain.retests import Sitting, Trial, TrialAsk


class NoTrialsError(RuntimeError):
    """The cell's machine does not wait for trials (any more)."""

    @classmethod
    def because(cls, cell: str, state: CellState) -> NoTrialsError:
        """The cell of this name is not diagnosing."""
        return cls(
            f"cell {cell} is {state}: its machine takes no trials;"
            " `seatrial gate bisect RUN` begins a search on a machine that waits for them"
        )


class TrialStore(Protocol):
    """More executions of failed tests on the same machine, with one thing changed.

    Each method is one transaction.
    """

    def ask(self, attempt_id: str, ask: TrialAsk, *, at: datetime) -> Sitting:
        """Store what is to be tried; the same key of an attempt is stored once.

        Raises NoTrialsError where the cell is not diagnosing, as nobody would try it.
        """
        ...

    def begin(self, sitting_id: str, *, at: datetime) -> None:
        """From ASKED to RUNNING; nothing when past."""
        ...

    def end(
        self,
        sitting_id: str,
        *,
        at: datetime,
        outcomes: Sequence[Mapping[str, str]] = (),
        trouble: str = "",
        evidence: str = "",
    ) -> None:
        """To ENDED, with what came of it; nothing when there."""
        ...

    def of_attempt(self, attempt_id: str) -> tuple[Sitting, ...]:
        """In order."""
        ...

    def of_run(self, run_id: str) -> Mapping[str, tuple[Trial, ...]]:
        """What ran, in order, by the cell's name; cells without any are left out."""
        ...

    def dismiss(self, attempt_id: str, *, at: datetime) -> None:
        """Nobody asks for more trials of the attempt."""
        ...

    def is_dismissed(self, attempt_id: str) -> bool:
        """Whether nobody asks for more."""
        ...

    def add_second(self, run_id: str, second: str) -> str:
        """Note the run that repeats this one's failures on another machine; the first stands."""
        ...

    def second_of(self, run_id: str) -> str | None:
        """The run that repeats this one's failures on another machine."""
        ...
