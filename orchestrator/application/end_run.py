"""Requests cancellation of runs; ends those whose cells are done, and publishes their reports."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from orchestrator.application.context import Context, Render
from orchestrator.application.describe_run import evidence_of_record, find_run
from orchestrator.application.ports.blobs import Blobs
from orchestrator.application.ports.clock import Clock
from orchestrator.application.quarantine import settle_after
from orchestrator.domain.cell import Cell, CellState, Run, RunState, run_outcome
from orchestrator.domain.outcome import Outcome
from orchestrator.domain.run_record import Evidence
from orchestrator.store.stores import Stores


def cancel_run(context: Context, run_id: str) -> Run:
    """Request cancellation of a run: finished tests are kept, machines are released.

    Raises RunMissingError.
    """
    find_run(context.stores, run_id)
    return context.stores.runs.request_cancel(run_id, at=context.clock.now())


class ReportRefusedError(ValueError):
    """The report was refused: it needs a cell, or contradicts its evidence; the text says why."""


Draw = Callable[[str, Evidence, str | None], Mapping[str, str]]
"""Draws the plots of (kind, evidence, cell): SVG by path beside the document."""

WriteTree = Callable[[str, Mapping[str, Iterable[bytes]]], Path]
"""Writes files by relative path into a run's report folder atomically; returns the folder."""

SUMMARY = "SUMMARY.md"


def publish_report(
    evidence: Evidence, *, render: Render, draw: Draw, blobs: Blobs, write_tree: WriteTree
) -> Path:
    """Render the run's summary and a report per cell; return the summary's path."""
    summary = render("summary", evidence, None, "md")
    files: dict[str, Iterable[bytes]] = {SUMMARY: [summary.encode()]}
    files |= _plots(draw("summary", evidence, None), "")
    for cell in evidence.record.cells:
        page = render("platform", evidence, cell.id, "md")
        files[f"{cell.id}/{SUMMARY}"] = [page.encode()]
        files |= _plots(draw("platform", evidence, cell.id), f"{cell.id}/")
        for artifact in cell.artifacts:
            if artifact.pruned_at is not None:
                continue
            files[f"{cell.id}/{artifact.name}"] = blobs.open(artifact.digest)
    return write_tree(evidence.record.run.id, files) / SUMMARY


def _plots(drawn: Mapping[str, str], folder: str) -> dict[str, Iterable[bytes]]:
    return {f"{folder}{path}": [svg.encode()] for path, svg in drawn.items()}


logger = logging.getLogger(__name__)


class RunFinalizer(Protocol):
    """Dependencies of ending a run; part of the contexts of operations and of the flow."""

    @property
    def stores(self) -> Stores:
        """The stores."""
        ...

    @property
    def clock(self) -> Clock:
        """The clock."""
        ...

    @property
    def publish(self) -> Callable[[Evidence], Path]:
        """Writes a run's reports."""
        ...


def end_run(ender: RunFinalizer, run_id: str) -> bool:
    """End the run, unless one of its cells is unfinished; return whether it is finished.

    The caller holds the run's lock, so that a report with less is never written after one with
    more.
    Another process may end the same run, and open it for one more cell, while we publish: the
    store then refuses our end, and we look again. A cell at work is left to whoever finishes it.
    """
    stores = ender.stores
    while True:
        cells = stores.cells.of_run(run_id)
        if any(cell.state is not CellState.DONE for cell in cells):
            return False
        run = stores.runs.get(run_id)
        if run is None or run.state is RunState.FINISHED:
            return True
        if _ended(ender, run, cells):
            settle_after(stores, run_id, at=ender.clock.now())
            return True


def _ended(ender: RunFinalizer, run: Run, cells: Sequence[Cell]) -> bool:
    stores = ender.stores
    plans = stores.cells.plans(run.id)
    outcome = run_outcome(
        [(cell.outcome or Outcome.ERRORED, plans[cell.id].platform.optional) for cell in cells]
    )
    at = max((cell.entered_at for cell in cells if cell.entered_at), default=ender.clock.now())
    over = replace(run, state=RunState.FINISHED, outcome=outcome, finished_at=at)
    _publish(ender, over, cells)
    return stores.runs.finish(run.id, outcome, cells=len(cells), at=at)


def _publish(ender: RunFinalizer, run: Run, cells: Sequence[Cell]) -> None:
    """Publish the reports; a failure is only logged, since reports can be rendered at any time."""
    try:
        ender.publish(evidence_of_record(ender.stores, run, cells, at=ender.clock.now()))
    except Exception as error:
        logger.exception("run %s: its reports could not be written", run.id)
        ender.stores.run_events.add(run.id, "report", {"notice": f"not published: {error}"})
    else:
        ender.stores.run_events.add(run.id, "report", {"published": True})
