"""Cancel a run: a row that every look reads."""

from __future__ import annotations

from orchestrator.application.context import Context
from orchestrator.application.describe_run import find_run
from orchestrator.domain.cell import Run


def cancel_run(context: Context, run_id: str) -> Run:
    """Ask for it; finished tests are kept and machines go home. A finished run stays as it is.

    Raises RunMissingError.
    """
    find_run(context.stores, run_id)
    return context.stores.runs.request_cancel(run_id, at=context.clock.now())
