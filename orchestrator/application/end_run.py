"""Cancels a run, or ends one whose cells are all done and publishes its reports."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Protocol

from orchestrator.application.context import Context
from orchestrator.application.describe_run import evidence_of, find_run
from orchestrator.application.ports.clock import Clock
from orchestrator.application.quarantine import settle_after
from orchestrator.domain.cell import Cell, CellState, Run, RunState, run_outcome
from orchestrator.domain.outcome import Outcome
from orchestrator.domain.run_record import Evidence
from orchestrator.store.stores import Stores


def cancel_run(context: Context, run_id: str) -> Run:
    """Request the end of a run: finished tests are kept, its machines are given back.

    Raises RunMissingError.
    """
    find_run(context.stores, run_id)
    return context.stores.runs.request_cancel(run_id, at=context.clock.now())


logger = logging.getLogger(__name__)


class RunFinalizer(Protocol):
    """What it takes; the faces' context has it, and so has the world of cells."""

    @property
    def stores(self) -> Stores:
        """What is stored."""
        ...

    @property
    def clock(self) -> Clock:
        """What time it is."""
        ...

    @property
    def publish(self) -> Callable[[Evidence], Path]:
        """Writes a run's reports down."""
        ...


def end_run(ender: RunFinalizer, run_id: str) -> bool:
    """End it, unless a cell of it is at work; whether it is over.

    The caller holds the run's lock, so that reports are written in the order of what they tell.
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
        if _ended(ender, run_id, cells):
            settle_after(stores, run_id, at=ender.clock.now())
            return True


def _ended(ender: RunFinalizer, run_id: str, cells: Sequence[Cell]) -> bool:
    stores = ender.stores
    optional = [stores.cells.plan(cell.id).platform.optional for cell in cells]
    outcomes = [cell.outcome or Outcome.ERRORED for cell in cells]
    outcome = run_outcome(list(zip(outcomes, optional, strict=True)))
    at = max((cell.entered_at for cell in cells if cell.entered_at), default=ender.clock.now())
    _publish(ender, run_id, outcome, at=at)
    return stores.runs.finish(run_id, outcome, cells=len(cells), at=at)


def _publish(ender: RunFinalizer, run_id: str, outcome: Outcome, *, at: datetime) -> None:
    """Write the reports down; they can be rendered again at any time, so a failure is only told."""
    try:
        evidence = evidence_of(ender.stores, run_id, at=ender.clock.now())
        run = replace(evidence.record.run, state=RunState.FINISHED, outcome=outcome, finished_at=at)
        ender.publish(replace(evidence, record=replace(evidence.record, run=run)))
    except Exception as error:
        logger.exception("run %s: its reports could not be written", run_id)
        ender.stores.run_events.add(run_id, "report", {"notice": f"not published: {error}"})
    else:
        ender.stores.run_events.add(run_id, "report", {"published": True})
