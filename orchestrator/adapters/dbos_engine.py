"""The durable engine, on DBOS; no other module imports it."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from dbos import DBOS, DBOSConfig, SetWorkflowID, WorkflowSerializationFormat

from orchestrator.adapters.step_log import step_of
from orchestrator.adapters.wakeups import Wakeups
from orchestrator.application.ports.engine import Body, Durable, Look, NotServedError, NotYet, Value

Flow = Callable[[Durable, str], Awaitable[None]]
T = TypeVar("T")

FLOW_VERSION = "cells-v3"
"""Increment when the order of a flow's steps changes: flows of another version are not resumed."""

_APP_NAME = "seatrial"
_SCHEMA = "engine"
_SQLITE = "sqlite:///"
_BUSY_S = 10.0
_PAGES_AT_ONCE = 1_000
"""Free database pages that are returned to the disk in one step."""
_CUT_TIMEOUT_MS = 500
"""Milliseconds that the truncation of the write-ahead log waits for readers."""
_PENDING = "PENDING"
_ENDED = ["SUCCESS", "ERROR", "CANCELLED", "MAX_RECOVERY_ATTEMPTS_EXCEEDED"]
_AT_ONCE = 200
"""Number of flows whose records are deleted in one batch."""
_THREADS = 16
"""Number of threads that run the bodies of steps."""

logger = logging.getLogger(__name__)


class _AbandonedError(BaseException):
    """Ends this execution as if its process had crashed: the engine records no result."""


class DbosEngine:
    """Runs one flow per cell; the cell's id is the flow's id.

    Flows may be entered again at any time, because their steps read the present state from the
    store. A flow that the engine lost is therefore started again instead of being replayed.
    """

    def __init__(
        self,
        flow: Flow,
        *,
        url: str,
        executor_id: str,
        stranded_s: float = 30.0,
        wakeups: Wakeups | None = None,
    ) -> None:
        """Configure the engine; `launch` opens its database.

        Args:
            flow: The flow of a cell.
            url: URL of the engine's own database file, or of a Postgres database, where the engine
                has a schema of its own.
            executor_id: Fixed on SQLite, where one process owns the home; unique per process on
                Postgres.
            stranded_s: Seconds that a flow may have no executor before it is started again.
            wakeups: Ends the wait between two polls early.
        """
        self._executor_id = executor_id
        is_file = url.startswith(_SQLITE)
        self._file = Path(url.removeprefix(_SQLITE)) if is_file else None
        self._flows = _Flows(stranded_s)
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="step")
        config: DBOSConfig = {
            "name": _APP_NAME,
            "system_database_url": url,
            "application_version": FLOW_VERSION,
            "executor_id": executor_id,
            "dbos_system_schema": _SCHEMA,
            "log_level": "ERROR",
            "console_log_level": "ERROR",
            "enable_otlp": False,
        }
        self._dbos = DBOS(config=config)
        durable = _DbosDurable(self._pool, wakeups or Wakeups())
        flows = self._flows

        @DBOS.workflow(
            name="cell",
            serialization_type=WorkflowSerializationFormat.PORTABLE,
            max_recovery_attempts=1_000_000,
        )
        async def cell(key: str) -> None:
            with flows.running(key):
                await self._run(flow, durable, key)

        self._cell = cell

    async def _run(self, flow: Flow, durable: Durable, key: str) -> None:
        try:
            await flow(durable, key)
        except NotServedError as error:
            logger.warning("cell %s: no project of this process has it", key)
            if self._file is None:
                raise  # a controller that serves the project starts it anew
            raise _AbandonedError(key) from error  # the home's next process resumes it

    def launch(self) -> None:
        """Open the database and resume the unfinished flows of this executor."""
        DBOS.launch()

    def start(self, cell_id: str) -> None:
        """Start the cell's flow, unless an executor runs it.

        Repeated calls for an unfinished cell also restart a flow without an executor: one that
        ended too early, or one whose execution was abandoned.
        """
        if self._flows.runs(cell_id):
            return
        status = DBOS.get_workflow_status(cell_id)
        if status is None:
            self._begin(cell_id)
        elif status.status == _PENDING and status.executor_id != self._executor_id:
            self._flows.note_executor(cell_id)
        elif self._flows.is_stranded(cell_id):
            logger.error(
                "cell %s: no process runs its flow (%s); it is started again",
                cell_id,
                status.status,
            )
            DBOS.delete_workflow(cell_id)
            self._begin(cell_id)

    def _begin(self, cell_id: str) -> None:
        with SetWorkflowID(cell_id):
            DBOS.start_workflow(self._cell, cell_id)

    def executors(self) -> set[str]:
        """Return the ids of executors with pending flows, alive or dead."""
        pending = DBOS.list_workflows(status=_PENDING, load_input=False, load_output=False)
        return {status.executor_id for status in pending if status.executor_id}

    def take_over(self, executor_id: str) -> list[str]:
        """Resume the unfinished flows of a dead executor here; return their cells."""
        pending = DBOS.list_workflows(
            status=_PENDING, executor_id=executor_id, load_input=False, load_output=False
        )
        cells = [status.workflow_id for status in pending]
        if cells:
            DBOS.resume_workflows(cells)
        return cells

    def forget(
        self, before: datetime, is_over: Callable[[list[str]], set[str]], *, dry: bool
    ) -> Iterator[int]:
        """Delete the records of flows that ended before a time; yield how many, batch by batch.

        Args:
            before: The time.
            is_over: Returns the cells among the given ones that are over for good. A flow whose
                cell is not over is kept, because it is needed to start the cell's flow again.
            dry: Only count the flows.
        """
        skipped = 0
        while True:
            ended = DBOS.list_workflows(
                status=_ENDED,
                completed_before=before.isoformat(),
                limit=_AT_ONCE,
                offset=skipped,
                load_input=False,
                load_output=False,
            )
            cells = [status.workflow_id for status in ended]
            over = is_over(cells) if cells else set()
            if over and not dry:
                DBOS.delete_workflows(sorted(over))
            skipped += len(cells) if dry else len(cells) - len(over)
            yield len(over)
            if len(cells) < _AT_ONCE:
                break
        if not dry and self._file is not None:
            _shrink(self._file)

    def destroy(self) -> None:
        """Shut the engine down, in tests only; a controller ends its process instead."""
        DBOS.destroy(destroy_registry=True)
        self._pool.shutdown(wait=False, cancel_futures=True)


def _shrink(file: Path) -> None:
    """Return the free pages of a SQLite file to the disk in batches, then truncate its log."""
    with closing(sqlite3.connect(file, timeout=_BUSY_S, isolation_level=None)) as connection:
        left = -1
        while left:
            [before] = connection.execute("PRAGMA freelist_count").fetchone()
            # A script is stepped to its end; `execute` would stop after one page.
            connection.executescript(f"PRAGMA incremental_vacuum({_PAGES_AT_ONCE})")
            [left] = connection.execute("PRAGMA freelist_count").fetchone()
            if left == before:
                break
        # Not done while somebody reads or writes: the next prune does it.
        connection.execute(f"PRAGMA busy_timeout={_CUT_TIMEOUT_MS}")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


class _Flows:
    """The flows that run in this process, and the time since when each other flow is idle."""

    def __init__(self, stranded_s: float) -> None:
        self._stranded_s = stranded_s
        self._lock = threading.Lock()
        self._running: Counter[str] = Counter()
        self._idle_since: dict[str, float] = {}

    @contextmanager
    def running(self, cell_id: str) -> Iterator[None]:
        """Count the flow as running inside the context."""
        self.note_executor(cell_id)
        with self._lock:
            self._running[cell_id] += 1
        try:
            yield
        finally:
            with self._lock:
                self._running -= Counter([cell_id])

    def runs(self, cell_id: str) -> bool:
        """Return whether the flow runs in this process."""
        with self._lock:
            return self._running[cell_id] > 0

    def is_stranded(self, cell_id: str) -> bool:
        """Return whether the flow was seen idle for long enough, this check included."""
        now = time.monotonic()
        with self._lock:
            return now - self._idle_since.setdefault(cell_id, now) >= self._stranded_s

    def note_executor(self, cell_id: str) -> None:
        """Note that the flow has an executor."""
        with self._lock:
            self._idle_since.pop(cell_id, None)


class _DbosDurable:
    def __init__(self, pool: ThreadPoolExecutor, wakeups: Wakeups) -> None:
        self._pool = pool
        self._wakeups = wakeups

    async def once(self, name: str, body: Body, *args: str) -> Value:
        async def run() -> Value:
            return await self._in_pool(body, *args)

        return await self._step(name, run)

    async def until(self, name: str, look: Look, *args: str, every_s: float) -> Value:
        key = args[0] if args else name

        async def run() -> Value:
            while True:
                answer = await self._in_pool(look, *args)
                if not isinstance(answer, NotYet):
                    self._wakeups.disarm(key)
                    return answer
                await self._wakeups.wait(key, every_s)

        return await self._step(name, run)

    async def _step(self, name: str, run: Callable[[], Awaitable[Value]]) -> Value:
        """Run one step; distinguish an error of its body from an error of the engine's database.

        The flow may handle the first. After the second, for instance on a full disk, no further
        step of the flow could be recorded either.
        """
        raised: list[Exception] = []

        async def kept() -> Value:
            try:
                return await run()
            except Exception as error:
                raised.append(error)
                raise

        try:
            return await DBOS.run_step_async({"name": name}, kept)
        except Exception as error:
            if error in raised:
                raise
            logger.error("step %s could not be recorded: %s", name, error)
            raise _AbandonedError(name) from error

    async def _in_pool(self, body: Callable[..., T], *args: str) -> T:
        def step() -> T:
            with step_of(args[0] if args else ""):
                return body(*args)

        return await asyncio.get_running_loop().run_in_executor(self._pool, step)
