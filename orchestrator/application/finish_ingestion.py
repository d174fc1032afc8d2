"""Finishes an ingestion from what is stored: at once, or after a controller was killed."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import replace

from orchestrator.application.context import Context
from orchestrator.application.end_run import end_run
from orchestrator.application.job_outcomes import judge_jobs
from orchestrator.domain.blobs import BlobMissingError
from orchestrator.domain.cell import Cause, Cell, CellState, RunState
from orchestrator.domain.derive_outcomes import JobVerdict, judge_cell
from orchestrator.domain.event_facts import fold
from orchestrator.domain.evidence import read_events
from orchestrator.domain.outcome import Outcome, Reason
from orchestrator.store.errors import StoreError
from orchestrator.store.ingests import StartedIngest

RAW_EVENTS = "events.jsonl"
CHUNK_BYTES = 4 * 1024 * 1024

logger = logging.getLogger(__name__)


def finish_ingestion(context: Context, begun: StartedIngest) -> None:
    """Store the remaining events, derive the outcome, publish, and end the run. Idempotent."""
    with context.locks.of(begun.run_id):
        run = context.stores.runs.get(begun.run_id)
        if run is None or run.state is not RunState.INGESTING:
            return
        cell = context.stores.cells.get(begun.cell_id)
        if cell.state is not CellState.DONE:
            _finish_cell(context, cell, begun.attempt_id)
        end_run(context, begun.run_id)


def resume_ingestions(context: Context) -> None:
    """Finish every interrupted ingestion."""
    for begun, _ in context.stores.ingests.unfinished():
        try:
            finish_ingestion(context, begun)
        except StoreError:
            raise
        except Exception:
            logger.exception("the ingestion of run %s could not be ended", begun.run_id)


def _finish_cell(context: Context, cell: Cell, attempt_id: str) -> None:
    stores, at = context.stores, context.clock.now()
    try:
        _append(context, cell, attempt_id)
        stores.evidence.settle(cell.id, [])
        cause = _cause_of(context, cell)
    except StoreError:
        raise
    except Exception as error:
        logger.exception("cell %s: its evidence cannot be stored", cell.id)
        said = f"its evidence cannot be stored: {type(error).__name__}: {error}"
        cause = Cause(Outcome.ERRORED, Reason.CONTROLLER, said)
    stores.cells.enter(cell.id, CellState.RELEASING, at=at)
    stores.cells.conclude(cell.id, cause, at=at)


def _append(context: Context, cell: Cell, attempt_id: str) -> None:
    """Store the remaining events, in whole lines."""
    stores = context.stores
    kept = {one.name: one.digest for one in stores.results.artifacts(cell.id)}
    if RAW_EVENTS not in kept:
        raise BlobMissingError("the events of the cell are not stored")
    digest = kept[RAW_EVENTS]
    while not _append_rest(context, digest, attempt_id):
        pass


def _append_rest(context: Context, digest: str, attempt_id: str) -> bool:
    """Continue from the stored position; False if another process continued meanwhile."""
    evidence = context.stores.evidence
    have = evidence.position(attempt_id)
    for chunk in _whole_lines(_after(context.blobs.open(digest), have.events_bytes)):
        events, used = read_events(chunk, after_seq=have.seq)
        now = evidence.append(
            attempt_id, have, at=context.clock.now(), events=chunk[:used], facts=fold(events)
        )
        if now is None:
            return False
        have = now
    return True


def _after(chunks: Iterable[bytes], offset: int) -> Iterator[bytes]:
    left = offset
    for chunk in chunks:
        if left >= len(chunk):
            left -= len(chunk)
            continue
        yield chunk[left:]
        left = 0


def _whole_lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    waiting = bytearray()
    for chunk in chunks:
        waiting += chunk
        if len(waiting) < CHUNK_BYTES:
            continue
        used = waiting.rfind(b"\n") + 1
        if used:
            yield bytes(waiting[:used])
            del waiting[:used]
    if waiting:
        yield bytes(waiting)


def _cause_of(context: Context, cell: Cell) -> Cause:
    stores = context.stores
    stated = stores.cells.attempts(cell.id)[-1].cause
    over = replace(cell, state=CellState.DONE)
    jobs = judge_jobs(stores, over, stores.runs.spec(cell.run_id))
    verdicts = [
        JobVerdict(job.id, job.outcome or Outcome.NOT_RUN, job.reason, job.detail) for job in jobs
    ]
    return judge_cell(verdicts, stated)
