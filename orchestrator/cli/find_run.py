"""Runs and cells by what a person typed: an id, the beginning of one, or ``latest``."""

from __future__ import annotations

from urllib.parse import quote

from orchestrator.cli.client import Client, Json
from orchestrator.cli.errors import CliError
from orchestrator.cli.responses import Cell, Run, read
from orchestrator.domain.problems import nearest


def find_run(client: Client, name: str) -> tuple[Json, Run]:
    """The run as the controller says it, and as a value. Raises CliError."""
    shown = client.get(run_path(name))
    return shown, read(Run, shown)


def run_path(name: str) -> str:
    """The run's route, by its id, the beginning of one, or ``latest``. Raises CliError."""
    if not name.strip():
        raise CliError("name a run: its id, the beginning of one, or `latest`")
    if "/" in name:
        raise CliError(f"there is no run {name!r}; `seatrial runs` lists them")
    return f"/runs/{quote(name, safe='')}"


def find_cells(run: Run, name: str | None) -> list[Cell]:
    """The named cell, or all of them, in matrix order. Raises CliError."""
    if name is None:
        return list(run.cells)
    found = [cell for cell in run.cells if cell.id == name]
    if not found:
        near = nearest(name, [cell.id for cell in run.cells])
        raise CliError(f"run {run.id} has no cell {name!r}{near}")
    return found


def cell_path(run: Run, cell: Cell) -> str:
    """The cell's route."""
    return f"/runs/{run.id}/cells/{quote(cell.id, safe='')}"
