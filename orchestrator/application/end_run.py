"""Requests cancellation of runs; ends runs whose cells are done, and publishes their reports."""

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
from orchestrator.domain.cell import Cell, Run, RunSpec, RunState, run_outcome
from orchestrator.domain.matrix import CellPlan
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
        """Return the stores."""
        ...

    @property
    def clock(self) -> Clock:
        """Return the clock."""
        ...

    @property
    def publish(self) -> Callable[[Evidence], Path]:
        """Return the function that writes a run's reports."""
        ...


def end_run(ender: RunFinalizer, run_id: str) -> bool:
    """End the run, unless one of its cells is unfinished; return whether it is finished.

    The caller holds the run's lock, so that an older report is never written after a newer one.
    While this publishes, another process may end the same run and add a cell to it. Then the store
    refuses to end the run, and this reads the run again. If a cell is unfinished, the process that
    finishes the cell ends the run.
    """
    stores = ender.stores
    while True:
        cells = stores.cells.concluded(run_id)
        launched = stores.runs.launched(run_id) if cells else None
        if launched is None:
            return False
        run, spec = launched
        if run.state is RunState.FINISHED:
            return True
        if _ended(ender, run, spec, cells):
            settle_after(stores, spec.manifest.name, at=ender.clock.now())
            return True


def _ended(
    ender: RunFinalizer, run: Run, spec: RunSpec, cells: Sequence[tuple[Cell, CellPlan]]
) -> bool:
    """Publish the reports and finish the run; return whether this call finished it."""
    outcome = run_outcome(
        [(cell.outcome or Outcome.ERRORED, plan.platform.optional) for cell, plan in cells]
    )
    entered = (cell.entered_at for cell, _ in cells if cell.entered_at)
    at = max(entered, default=ender.clock.now())
    over = replace(run, state=RunState.FINISHED, outcome=outcome, finished_at=at)
    report = _publish(ender, over, spec, [cell for cell, _ in cells])
    return ender.stores.runs.finish(run.id, outcome, cells=len(cells), at=at, report=report)


def _publish(
    ender: RunFinalizer, run: Run, spec: RunSpec, cells: Sequence[Cell]
) -> Mapping[str, object]:
    """Publish the reports, and return the data of the run event about them.

    A failure is only logged, since reports can be rendered at any time.
    """
    try:
        ender.publish(evidence_of_record(ender.stores, run, cells, spec, at=ender.clock.now()))
    except Exception as error:
        logger.exception("run %s: its reports could not be written", run.id)
        return {"notice": f"not published: {error}"}
    return {"published": True}
