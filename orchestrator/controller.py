"""The controller: the process that runs cells and answers on a socket.

The process can be ended at any time, because its state is in the database. The cells' flows release
machines, and the next controller continues the flows.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator, MutableMapping, Sequence
from dataclasses import dataclass, field
from socket import socket
from typing import Any, Protocol

import uvicorn

from orchestrator.application.ports.clock import Clock
from orchestrator.store.errors import StoreError
from orchestrator.store.stores import Stores

logger = logging.getLogger(__name__)

IDLE_S = 30.0
"""Seconds of idleness after which a background controller ends."""
HURRY = signal.SIGUSR1
"""Signal to a background controller to end as soon as it is idle, since `serve` wants its home."""
LAST_LOOK_S = 10.0
"""Idle seconds after which the janitor makes its second-last sweep."""
PUMP_S = 1.0
RESUME_S = 30.0
"""Interval of resuming interrupted ingestions."""
FIRE_S = 2.0
"""Interval of polling schedules."""
DELIVER_S = 2.0
"""Interval of polling the outbox."""
SWEEP_S = 180.0
"""Interval of the janitor's sweeps."""
PRUNE_S = 20.0
"""Interval of checking whether a prune is due or unfinished."""
RENEW_S = 60.0
"""Interval of checking whether a certificate was renewed."""
BEAT_S = 5.0
GRACE_S = 30.0
"""Seconds without heartbeat after which a controller is dead, and its cells are taken over."""
SURE_AFTER = 3
"""Consecutive polls that must find a controller dead before its cells are taken over. After a
database outage, a living controller needs a moment for its heartbeat.
"""

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]


class Cells(Protocol):
    """Engine that runs cells."""

    def launch(self) -> None:
        """Resume unfinished cells."""
        ...

    def start(self, cell_id: str) -> None:
        """Start or resume a cell, unless it is running."""
        ...

    def executors(self) -> set[str]:
        """Return the ids of all executors that cells have had, dead or alive."""
        ...

    def take_over(self, executor_id: str) -> list[str]:
        """Resume a dead executor's cells; return their ids."""
        ...


@dataclass(frozen=True, slots=True)
class Listener:
    """An application with the sockets on which it is served."""

    application: Application
    sockets: list[socket]
    """Bound sockets; the server closes them."""
    close_streams: Callable[[], None]
    """Ends event streams, which would keep the server from stopping."""
    server: Callable[[Application], uvicorn.Server]
    """Makes the server of an application."""
    renew: Callable[[], None] | None = None
    """Loads a renewed certificate; None for plain HTTP."""


@dataclass(slots=True)
class Controller:
    """Serves and runs cells until it is stopped or, with `until_idle`, until it is idle."""

    identity: str
    stores: Stores
    clock: Clock
    listeners: list[Listener]
    cells: Cells | None
    """Engine of the cells; None serves without running cells."""
    until_idle: bool
    ready: Callable[[], None]
    """Called once all listeners answer."""
    sweep: Callable[[], object]
    """The janitor's sweep."""
    leave: Callable[[], object] = lambda: None
    """The janitor's last sweep, when an idle controller ends."""
    resume: Callable[[], None] = lambda: None
    """Finishes interrupted ingestions, also those that another controller began."""
    fire: Callable[[], None] = lambda: None
    """Fires due schedules, and advances open firings."""
    deliver: Callable[[], None] = lambda: None
    """Sends queued deliveries."""
    prune: Callable[[], None] = lambda: None
    """Prunes by policy, where that is due."""
    shared: bool = False
    """Whether other controllers may use the database."""
    further: Sequence[Controller] = ()
    """Controllers of the process's further projects; they share its engine, and stop with it."""
    _is_hurried: bool = False
    """Whether a successor waits, so that the controller ends as soon as it is idle."""
    _suspects: dict[str, int] = field(default_factory=dict)
    """Number of consecutive polls that found a controller dead, by its id."""
    _requests: int = 0
    _last_live: float = 0.0
    _servers: list[uvicorn.Server] = field(default_factory=list)
    _stop: asyncio.Event = field(default_factory=asyncio.Event)

    def run(self) -> None:
        """Resume unfinished work, and serve until stopped or idle."""
        if self.cells is not None:
            if self.shared:
                self.stores.controllers.beat(self.identity)
            self.cells.launch()
            self.pump()
        asyncio.run(self._serve())

    def pump(self) -> None:
        """Start every unfinished cell, and every finished cell whose run must still be ended."""
        if self.cells is None:
            return
        for cell_id in (*self.stores.cells.unfinished(), *self.stores.cells.awaiting_run_end()):
            try:
                self.cells.start(cell_id)
            except Exception:
                logger.exception("cell %s could not be started; it is tried again", cell_id)

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop.set)
        if self.until_idle:
            loop.add_signal_handler(HURRY, self._hurry)
        self._last_live = loop.time()
        self._servers = [one.server(self._counted(one.application)) for one in self.listeners]
        tasks = [
            asyncio.create_task(server.serve(sockets=listener.sockets))
            for listener, server in zip(self.listeners, self._servers, strict=True)
        ]
        tasks += [
            asyncio.create_task(self._every(RENEW_S, listener.renew))
            for listener in self.listeners
            if listener.renew is not None
        ]
        for project in (self, *self.further):
            tasks += [asyncio.create_task(one) for one in project.rounds(self._stop)]
        if self.cells is not None and self.shared:
            tasks.append(asyncio.create_task(self._every(BEAT_S, self._beat)))
            tasks.append(asyncio.create_task(self._every(BEAT_S, self.adopt)))
        watch = asyncio.create_task(self._watch())
        if await self._have_started(tasks):
            self.ready()
        await asyncio.wait([*tasks, watch], return_when=asyncio.FIRST_COMPLETED)
        self._raise_failures(tasks)
        for listener, server in zip(self.listeners, self._servers, strict=True):
            listener.close_streams()
            server.should_exit = True
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.gather(*tasks[: len(self._servers)]), timeout=3)

    def rounds(self, stop: asyncio.Event) -> Iterator[Coroutine[Any, Any, None]]:
        """Yield the periodic tasks of a project, which run until `stop` is set."""
        self._stop = stop
        yield self._every(PUMP_S, self.pump)
        yield self._every(RESUME_S, self.resume)
        if self.cells is not None:
            yield self._every(SWEEP_S, self._sweep)
            yield self._every(FIRE_S, self.fire)
            yield self._every(DELIVER_S, self.deliver)
            yield self._every(PRUNE_S, self.prune, later=True)

    def _raise_failures(self, tasks: list[asyncio.Task[None]]) -> None:
        for task in tasks:
            if task.done() and not task.cancelled() and task.exception() is not None:
                raise task.exception() or RuntimeError

    async def _have_started(self, tasks: list[asyncio.Task[None]]) -> bool:
        """Wait until all listeners answer; return False on a stop or a failed start."""
        while not all(server.started for server in self._servers):
            if self._stop.is_set() or any(task.done() for task in tasks):
                return False
            await asyncio.sleep(0.02)
        return True

    async def _watch(self) -> None:
        """Wait until the controller is stopped or, with `until_idle`, idle for long enough."""
        has_looked = False
        while not self._stop.is_set():
            idle_s = await self._idle_s()
            if not idle_s:
                has_looked = False
            if self.until_idle and idle_s > LAST_LOOK_S and not has_looked:
                has_looked = True
                await self._once(self._sweep)
            if self.until_idle and idle_s > self._patience_s():
                await self._once(self.leave)
                if await self._idle_s() > self._patience_s():
                    return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), timeout=0.5)

    def _hurry(self) -> None:
        """End at the next poll that finds the controller idle."""
        self._is_hurried = True

    def _patience_s(self) -> float:
        return 0.0 if self._is_hurried else IDLE_S

    async def _idle_s(self) -> float:
        """Return the seconds without activity; 0 while there is any."""
        now = asyncio.get_running_loop().time()
        if await asyncio.to_thread(self._is_live):
            self._last_live = now
        return max(0.0, now - self._last_live)

    def _is_live(self) -> bool:
        """Whether a request or a run is unfinished; a database error counts as active."""
        try:
            return bool(self._requests or self.stores.runs.unfinished())
        except StoreError:
            return True

    async def _every(
        self, seconds: float, work: Callable[[], object], *, later: bool = False
    ) -> None:
        """Do the work periodically until stopped; with `later`, wait before the first time too."""
        if later:
            await asyncio.sleep(seconds)
        while not self._stop.is_set():
            await self._once(work)
            await asyncio.sleep(seconds)

    async def _once(self, work: Callable[[], object]) -> None:
        try:
            await asyncio.to_thread(work)
        except StoreError as error:
            logger.warning("%s waits for the store: %s", _name(work), error)
        except Exception:
            logger.exception("%s failed; it is tried again", _name(work))

    def _sweep(self) -> None:
        """Run a sweep; unreachable providers are retried at the next one."""
        self.sweep()

    def _beat(self) -> None:
        """Store a heartbeat."""
        self.stores.controllers.beat(self.identity)

    def adopt(self) -> None:
        """Take over the cells of controllers that are certainly dead.

        An executor that never sent a heartbeat counts as dead.
        """
        if self.cells is None:
            return
        controllers = self.stores.controllers
        earlier, self._suspects = self._suspects, {}
        controllers.note(self.cells.executors())
        dead = [one for one in controllers.dead(grace_s=GRACE_S) if one != self.identity]
        suspects = {one: earlier.get(one, 0) + 1 for one in dead}
        for one in dead:
            if suspects[one] >= SURE_AFTER and controllers.claim(one, grace_s=GRACE_S):
                taken = self.cells.take_over(one)
                controllers.leave(one)
                logger.warning("controller %s is dead; took over %s", one, taken or "nothing")
        self._suspects = suspects

    def _counted(self, application: Application) -> Application:
        """Count running requests, so that a controller in use is not idle."""

        async def counted(scope: Scope, receive: Receive, send: Send) -> None:
            self._requests += 1
            try:
                await application(scope, receive, send)
            finally:
                self._requests -= 1
                self._last_live = asyncio.get_running_loop().time()

        return counted


def _name(work: Callable[[], object]) -> str:
    operation = getattr(work, "func", work)
    return getattr(operation, "__name__", repr(operation))


def end_process(status: int) -> None:
    """End the process at once, without notifying the engine's flows."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
