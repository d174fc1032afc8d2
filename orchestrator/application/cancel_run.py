"""Requests cancellation of a run; the flow of each cell acts on it."""

from __future__ import annotations

from orchestrator.application.context import Context
from orchestrator.application.describe_run import find_run
from orchestrator.domain.cell import Run


def cancel_run(context: Context, run_id: str) -> Run:
    """Request cancellation of a run: finished tests are kept, machines are released.

    Raises RunMissingError.
    """
    find_run(context.stores, run_id)
    return context.stores.runs.request_cancel(run_id, at=context.clock.now())
