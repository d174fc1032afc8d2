"""Cancel a run: a row that every look reads."""

from __future__ import annotations

from orchestrator.application.context import Context
from orchestrator.application.describe_run import find_run
from orchestrator.domain.cell import Run, RunState


def cancel_run(context: Context, run_id: str) -> Run:
    """Ask for it; finished tests are kept and machines go home. A finished run stays as it is.

    Raises RunMissingError.
    """
    run = find_run(context.stores, run_id)
    if run.state is RunState.RUNNING and run.cancel_requested_at is None:
        context.stores.runs.request_cancel(run_id, at=context.clock.now())
    return find_run(context.stores, run_id)
