"""The phases of a cell's life, as spans of time and as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from orchestrator.dashboard.charts import Picture, Shape
from orchestrator.domain.cell import CellState, Run
from orchestrator.domain.run_record import CellRecord
from orchestrator.domain.units import duration

PHASES = tuple(state for state in CellState if state is not CellState.DONE)
_WIDTH, _HEIGHT = 400, 14
_THINNEST = 1.5


@dataclass(frozen=True, slots=True)
class Phase:
    """One stay in a state."""

    state: CellState
    begin: datetime
    end: datetime
    attempt: int
    is_over: bool = True

    @property
    def seconds(self) -> float:
        """How long it was."""
        return max(0.0, (self.end - self.begin).total_seconds())


def phases(cell: CellRecord, run: Run, now: datetime) -> tuple[Phase, ...]:
    """Every stay of the cell in a state, in their order; the last one may go on."""
    found: list[Phase] = []
    state, since, attempt = CellState.QUEUED, run.created_at, 1
    for step in cell.transitions:
        found.append(Phase(state, since, step.at, max(attempt, step.attempt)))
        state, since, attempt = CellState(step.target), step.at, step.attempt
    if state is not CellState.DONE:
        found.append(Phase(state, since, max(now, since), attempt, is_over=False))
    return tuple(found)


def spent(stays: Sequence[Phase]) -> dict[CellState, float]:
    """Seconds by state, of all attempts together."""
    total: dict[CellState, float] = {}
    for stay in stays:
        total[stay.state] = total.get(stay.state, 0.0) + stay.seconds
    return total


def drawn(stays: Sequence[Phase], begin: datetime, end: datetime) -> Picture:
    """The stays as boxes between two times."""
    whole = max((end - begin).total_seconds(), 0.001)
    shapes = []
    for stay in stays:
        left = _WIDTH * max(0.0, (stay.begin - begin).total_seconds()) / whole
        width = max(_THINNEST, _WIDTH * stay.seconds / whole)
        left = min(left, _WIDTH - width)
        shapes.append(_box(stay, left, width))
    return Picture(_WIDTH, _HEIGHT, tuple(shapes), "timeline")


def told(stays: Sequence[Phase]) -> str:
    """The same in words: ``queued 0.2s, placing 1.1s, running 12s so far``."""
    parts = []
    for stay in stays:
        said = f"{stay.state} {duration(stay.seconds)}"
        parts.append(said if stay.is_over else f"{said} so far")
    return ", ".join(parts)


def _box(stay: Phase, left: float, width: float) -> Shape:
    # A queue is thin: nothing happens in it. What has a machine stands full.
    is_thin = stay.state is CellState.QUEUED
    top, height = (_HEIGHT / 2 - 1.5, 3.0) if is_thin else (0.0, float(_HEIGHT))
    places = (("x", left), ("y", top), ("width", width), ("height", height))
    tone = f"phase-{stay.state}" + ("" if stay.is_over else " going")
    return Shape("rect", tone, tuple((name, f"{value:.2f}") for name, value in places))
