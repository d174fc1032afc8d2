"""An engine in memory: it replays flows, crashes at planned steps, and checks the steps' order."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from orchestrator.application.ports.engine import NOT_YET, Body, Durable, Look, NotYet, Value

Flow = Callable[[Durable, str], Awaitable[None]]

LOOK_LIMIT = 3_000


class SimulatedCrashError(BaseException):
    """A simulated crash of the process; no code of the flow may catch it."""


class ChangedFlowError(AssertionError):
    """A replay requested other steps than were recorded."""


@dataclass(slots=True)
class StepLog:
    """The recorded steps of one flow."""

    answers: list[tuple[str, Value]] = field(default_factory=list)
    finished: bool = False


class MemoryEngine:
    """Runs flows to their end in the calling thread.

    Args:
        flow: The flow.
        tick: Called with the seconds to wait between two polls, instead of sleeping.
    """

    def __init__(self, flow: Flow, *, tick: Callable[[float], None]) -> None:
        self._flow = flow
        self._tick = tick
        self.step_logs: dict[str, StepLog] = {}
        self.crash_before: int | None = None
        self.crash_after: int | None = None

    def start(self, cell_id: str) -> None:
        """Register the cell; `run` runs its flow."""
        self.step_logs.setdefault(cell_id, StepLog())

    def run(self, cell_id: str) -> None:
        """Run one flow to its end. Raises SimulatedCrashError at a planned crash."""
        step_log = self.step_logs.setdefault(cell_id, StepLog())
        if not step_log.finished:
            asyncio.run(self._enter(step_log, cell_id))
            step_log.finished = True

    async def _enter(self, step_log: StepLog, cell_id: str) -> None:
        await self._flow(_MemoryDurable(self, step_log, self._tick), cell_id)


class _MemoryDurable:
    def __init__(
        self, engine: MemoryEngine, step_log: StepLog, tick: Callable[[float], None]
    ) -> None:
        self._engine = engine
        self._step_log = step_log
        self._tick = tick
        self._next = 0

    async def once(self, name: str, body: Body, *args: str) -> Value:
        return self._step(name, lambda: body(*args))

    async def until(self, name: str, look: Look, *args: str, every_s: float) -> Value:
        return self._step(name, lambda: self._wait(name, look, args, every_s))

    def _wait(self, name: str, look: Look, args: tuple[str, ...], every_s: float) -> Value:
        for _ in range(LOOK_LIMIT):
            answer = look(*args)
            if not isinstance(answer, NotYet):
                return answer
            self._tick(every_s)
        raise AssertionError(f"{name} answered {NOT_YET} {LOOK_LIMIT} times")

    def _step(self, name: str, run: Callable[[], Value]) -> Value:
        position = self._next
        self._next += 1
        if position < len(self._step_log.answers):
            recorded, answer = self._step_log.answers[position]
            if recorded != name:
                raise ChangedFlowError(f"step {position} was {recorded!r} and is now {name!r}")
            return answer
        if self._engine.crash_before == position:
            self._engine.crash_before = None
            raise SimulatedCrashError(f"before step {position}, {name}")
        answer = run()
        if self._engine.crash_after == position:
            self._engine.crash_after = None
            raise SimulatedCrashError(f"after step {position}, {name}")
        self._step_log.answers.append((name, answer))
        return answer
