"""The durable engine, on DBOS: the only module that knows it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from dbos import DBOS, DBOSConfig, SetWorkflowID, WorkflowSerializationFormat

from orchestrator.application.ports.engine import Body, Durable, Look, NotYet, Value

Flow = Callable[[Durable, str], Awaitable[None]]
T = TypeVar("T")

FLOW_VERSION = "cells-v1"
"""Bump when the order of a flow's steps changes: work of another version is not resumed."""

_APP_NAME = "seatrial"
_SCHEMA = "engine"
_DEAD_ENDS = {"ERROR", "CANCELLED", "MAX_RECOVERY_ATTEMPTS_EXCEEDED"}

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DbosSettings:
    """Where the engine keeps its records, and who executes."""

    url: str
    """Of its own database file, or of a Postgres database where it has a schema of its own."""
    executor_id: str
    """Fixed on SQLite, where one process owns the home; unique per process life on Postgres."""
    threads: int = 16
    """Bodies that may run at once."""


class DbosEngine:
    """Runs one flow per cell; the cell's id is the flow's."""

    def __init__(self, settings: DbosSettings, flow: Flow) -> None:
        self._pool = ThreadPoolExecutor(settings.threads, thread_name_prefix="step")
        config: DBOSConfig = {
            "name": _APP_NAME,
            "system_database_url": settings.url,
            "application_version": FLOW_VERSION,
            "executor_id": settings.executor_id,
            "dbos_system_schema": _SCHEMA,
            "log_level": "ERROR",
            "console_log_level": "ERROR",
            "enable_otlp": False,
        }
        self._dbos = DBOS(config=config)
        durable = _DbosDurable(self._pool)

        @DBOS.workflow(
            name="cell",
            serialization_type=WorkflowSerializationFormat.PORTABLE,
            max_recovery_attempts=1_000_000,
        )
        async def cell(key: str) -> None:
            await flow(durable, key)

        self._cell = cell

    def launch(self) -> None:
        """Open the records and resume what this executor left unfinished."""
        DBOS.launch()

    def start(self, cell_id: str) -> None:
        """Begin the cell's flow, or take it up again where it ended before the cell was done."""
        status = DBOS.get_workflow_status(cell_id)
        if status is None:
            with SetWorkflowID(cell_id):
                DBOS.start_workflow(self._cell, cell_id)
        elif status.status in _DEAD_ENDS:
            logger.error("cell %s: its flow ended as %s; resuming it", cell_id, status.status)
            DBOS.resume_workflow(cell_id)

    def take_over(self, executor_id: str) -> list[str]:
        """Resume here what a dead executor left unfinished; return the cells."""
        pending = DBOS.list_workflows(
            status="PENDING", executor_id=executor_id, load_input=False, load_output=False
        )
        cells = [status.workflow_id for status in pending]
        if cells:
            DBOS.resume_workflows(cells)
        return cells

    def destroy(self) -> None:
        """End it, for tests only: a controller ends its process instead."""
        DBOS.destroy(destroy_registry=True)
        self._pool.shutdown(wait=False, cancel_futures=True)


class _DbosDurable:
    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self._pool = pool

    async def once(self, name: str, body: Body, *args: str) -> Value:
        async def run() -> Value:
            return await self._in_pool(body, *args)

        return await DBOS.run_step_async({"name": name}, run)

    async def until(self, name: str, look: Look, *args: str, every_s: float) -> Value:
        async def run() -> Value:
            while True:
                answer = await self._in_pool(look, *args)
                if not isinstance(answer, NotYet):
                    return answer
                await asyncio.sleep(every_s)

        return await DBOS.run_step_async({"name": name}, run)

    async def _in_pool(self, body: Callable[..., T], *args: str) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, body, *args)
