"""QUEUED: waits until the run may use another machine."""

from __future__ import annotations

from datetime import timedelta

from orchestrator.application.cell.finishing import cell_outcome
from orchestrator.application.cell.flow_context import FlowDeps
from orchestrator.application.cell.reuse_decision import reuse_before_renting
from orchestrator.application.ports.engine import NOT_YET, NotYet, Value
from orchestrator.domain.cell import Attempt, Cause, CellState
from orchestrator.domain.outcome import Outcome, Reason


def poll_admission(deps: FlowDeps, cell_id: str) -> Value | NotYet:
    """Open the next attempt when there is capacity; return its id, or None if the cell is done.

    A cell on a rented platform whose jobs all reuse earlier evidence is done without an attempt.
    """
    cells = deps.stores.cells
    now = cells.status(cell_id)
    if now.cell.state is CellState.DONE:
        return None
    if now.last is not None and now.last.closed_at is None:
        return now.last.id
    if now.run.cancel_requested_at is not None:
        cause = Cause(Outcome.CANCELLED, Reason.CANCELLED, "cancelled while it was queued")
        outcome = cell_outcome(deps, now.cell, now.spec, cause)
        cells.conclude(cell_id, outcome, at=deps.clock.now())
        return None
    if now.last is not None and _is_too_soon(deps, now.last):
        return NOT_YET
    if now.last is None and reuse_before_renting(deps, now):
        cells.conclude(cell_id, cell_outcome(deps, now.cell, now.spec, None), at=deps.clock.now())
        return None
    attempt_id = f"{cell_id}-{now.last.number + 1 if now.last else 1}"
    limit = now.spec.matrix.limits.max_parallel
    admitted = cells.admit(cell_id, attempt_id, max_parallel=limit, at=deps.clock.now())
    return attempt_id if admitted else NOT_YET


def _is_too_soon(deps: FlowDeps, last: Attempt) -> bool:
    """Whether the back-off after the last attempt is not over yet."""
    if last.cause is None or last.closed_at is None:
        return False
    wait_s = deps.timings.retry_after_s.get(last.cause.reason, 0.0)
    return deps.clock.now() - last.closed_at < timedelta(seconds=wait_s)
