"""The flow of a cell: idempotent steps in one straight line, independent of the engine.

A flow that owns a machine has no `finally`: the release is the step after the attempt, whatever
the attempt's outcome. A cancel is a stored row: every poll reads it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from orchestrator.application.cell import (
    collecting,
    diagnosing,
    finishing,
    launching,
    placing,
    preparing,
    queueing,
    releasing,
    running,
)
from orchestrator.application.cell.flow_context import GO, FlowDeps
from orchestrator.application.ports.engine import NOT_YET, Durable, Look, NotYet, Value
from orchestrator.store.errors import StoreError

CellLook = Callable[[FlowDeps, str], Value | NotYet]

logger = logging.getLogger(__name__)


async def run_cell(deps: FlowDeps, do: Durable, cell_id: str) -> None:
    """Make attempts until no other may follow, release every machine, and finish the run."""
    while True:
        admit = _patient(deps, queueing.poll_admission)
        attempt = await do.until("admit", admit, cell_id, every_s=0.5)
        if not isinstance(attempt, str):
            break
        await _work(deps, do, attempt)
        collect = _patient(deps, collecting.poll_collection)
        await do.until("collect", collect, attempt, every_s=0.5)
        diagnose = _patient(deps, diagnosing.poll_diagnosis)
        await do.until("diagnose", diagnose, attempt, every_s=0.5)
        release = _patient(deps, releasing.poll_release)
        await do.until("release", release, attempt, every_s=0.5)
        close = _patient(deps, finishing.poll_close)
        if await do.until("close", close, attempt, every_s=1.0) == finishing.DONE:
            break
    await do.until("finish", _patient(deps, finishing.poll_finish), cell_id, every_s=1.0)


async def _work(deps: FlowDeps, do: Durable, attempt: str) -> None:
    """Place, boot, prepare and run; stop at the first phase that cannot continue."""
    place = _blamed(deps, placing.poll_placement)
    if await do.until("place", place, attempt, every_s=1.0) != GO:
        return
    boot = _blamed(deps, launching.poll_boot)
    if await do.until("boot", boot, attempt, every_s=1.0) != GO:
        return
    prepare = _blamed(deps, preparing.poll_preparation)
    if await do.until("prepare", prepare, attempt, every_s=2.0) != GO:
        return
    await do.until("watch", _blamed(deps, running.poll_run), attempt, every_s=0.5)


def _blamed(deps: FlowDeps, look: CellLook) -> Look:
    """Wrap a poll: any other error ends the attempt, and its machine is released."""

    def blamed(deps: FlowDeps, attempt: str) -> Value | NotYet:
        try:
            return look(deps, attempt)
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the machine is released
            return releasing.record_bug(deps, attempt, error)

    return _patient(deps, blamed)


def _patient(deps: FlowDeps, look: CellLook) -> Look:
    """Wrap a poll: repeat it while the database is unreachable.

    It re-raises only LookupErrors of the store: the engine records an error that leaves a step, and
    replays it for ever.
    """

    def looked(key: str) -> Value | NotYet:
        try:
            answer = look(deps, key)
        except StoreError as error:
            if isinstance(error, LookupError):
                raise
            if deps.contact_log.remember(key, str(error)):
                logger.warning("%s: the store cannot be used now: %s", key, error)
            return NOT_YET
        except Exception as error:
            if deps.contact_log.remember(key, repr(error)):
                logger.exception("%s: this poll failed; it is repeated", key)
            return NOT_YET
        deps.contact_log.messages.pop(key, None)
        return answer

    return looked
