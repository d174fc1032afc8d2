"""From the names in an address to what they stand for."""

from __future__ import annotations

import re

from orchestrator.dashboard.responses import Asked, PageMissingError
from orchestrator.domain.cell import Cell, Run

_RUN = re.compile(r"[0-9A-Za-z-]{1,64}")


def run_of(asked: Asked, name: str) -> Run:
    """The run of an id, of the beginning of one, or of ``latest``. Raises PageMissingError."""
    runs = asked.context.stores.runs
    found = runs.get(name) if _RUN.fullmatch(name) else None
    if found is not None:
        return found
    matches = runs.find(name) if _RUN.fullmatch(name) else ()
    if len(matches) > 1:
        raise PageMissingError(
            f"{name!r} is the beginning of {', '.join(matches)}: write more of it"
        )
    found = runs.get(matches[0]) if matches else None
    if found is None:
        raise PageMissingError(f"there is no run {name!r}; /runs lists them")
    return found


def cell_of(asked: Asked, run: Run, name: str) -> Cell:
    """The cell of a run by its name. Raises PageMissingError."""
    cells = asked.context.stores.cells.of_run(run.id)
    found = next((cell for cell in cells if cell.name == name), None)
    if found is None:
        names = ", ".join(cell.name for cell in cells)
        raise PageMissingError(f"run {run.id} has no cell {name!r}; it has {names}")
    return found
