"""Server-sent events of a run: resumable and complete, without a thread per client."""

from __future__ import annotations

import contextlib
import json
import math
from bisect import bisect_right
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated

import anyio
from fastapi import APIRouter, Header, Query, Request, Security
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.concurrency import run_in_threadpool

from orchestrator.api.dependencies import LARGEST, ContextDep, RunId
from orchestrator.api.security import bearer, secured, stays_allowed
from orchestrator.application.context import Context
from orchestrator.application.describe_run import find_run
from orchestrator.domain.caller_identity import Scope
from orchestrator.domain.cell import Run, RunEvent, RunState

POLL_S = 0.3
RECENT = 1_000
"""Minimum number of newest events of a run that are kept encoded while the run has streams."""
HEARTBEAT_S = 4
"""Heartbeat interval, below idle timeouts of common clients (5 s) and proxies (15 s and more)."""
RETRY_MS = 1000
END = "end"
_EXAMPLE = 'id: 7\nevent: cell\ndata: {"number": 7, "kind": "cell", "cell": "local-cpu"}\n\n'

router = APIRouter(tags=["runs"], route_class=secured(Scope.READ), dependencies=[Security(bearer)])


@dataclass(slots=True)
class RunNews:
    """The newest events of a run, read and encoded once for all of its streams."""

    base: int | None = None
    """Number of the event before the first of `recent`; None before the first look."""
    recent: list[bytes] = field(default_factory=list)
    """Encoded events."""
    numbers: list[int] = field(default_factory=list)
    """Numbers of the events in `recent`; pruned events are left out."""
    finished: Run | None = None
    """The run, once it is finished and `recent` has its last event."""
    read_at: float = -math.inf
    """Time of the last read, by the event loop's clock."""
    is_reading: bool = False
    streams: int = 0

    @property
    def number(self) -> int:
        """Number of the newest event that was read."""
        return self.numbers[-1] if self.numbers else self.base or 0

    def add(self, items: Sequence[RunEvent]) -> None:
        """Add newer events, and forget the oldest ones beyond the limit."""
        self.recent.extend(map(_event, items))
        self.numbers.extend(item.number for item in items)
        surplus = len(self.recent) - RECENT
        if surplus > RECENT:
            self.base = self.numbers[surplus - 1]
            del self.recent[:surplus], self.numbers[:surplus]

    def since(self, after: int) -> bytes | None:
        """Return the encoded events numbered above `after`; None if some of them are forgotten."""
        if self.base is None:
            return b""
        if after < self.base:
            return None
        return b"".join(self.recent[bisect_right(self.numbers, after) :])


class Streams:
    """The open event streams.

    The streams of one run share its database reads and their results.
    """

    def __init__(self) -> None:
        self.open = 0
        self._closing = False
        self._news: dict[str, RunNews] = {}

    @property
    def closing(self) -> bool:
        """Whether the streams were asked to end."""
        return self._closing

    def close(self) -> None:
        """End every stream within one poll, so that a stopping server does not wait for clients."""
        self._closing = True

    @contextlib.contextmanager
    def of(self, run_id: str) -> Iterator[RunNews]:
        """Count an open stream of a run while the block runs, and yield the run's news."""
        news = self._news.setdefault(run_id, RunNews())
        self.open += 1
        news.streams += 1
        try:
            yield news
        finally:
            self.open -= 1
            news.streams -= 1
            if not news.streams:
                self._news.pop(run_id, None)


@router.get(
    "/runs/{run_id}/events",
    response_class=EventSourceResponse,
    responses={
        200: {
            "description": "Numbered pointers to what is new; the last event is `end`",
            "content": {"text/event-stream": {"example": _EXAMPLE}},
        }
    },
)
async def stream_events(
    context: ContextDep,
    run_id: RunId,
    request: Request,
    after: Annotated[int, Query(ge=0, le=LARGEST, description="The last number seen")] = 0,
    last_event_id: Annotated[
        int | None, Header(ge=0, le=LARGEST, description="The same, and stronger")
    ] = None,
) -> EventSourceResponse:
    """Stream a run's events until it is finished and everything was sent.

    The stream ends within a heartbeat after its token or session is revoked, expires or signs out.
    """
    seen = after if last_event_id is None else last_event_id
    return EventSourceResponse(
        follow(context, run_id, seen, request.app.state.streams, stays_allowed(request)),
        ping=HEARTBEAT_S,
        ping_message_factory=lambda: ServerSentEvent(comment="heartbeat"),
        sep="\n",
    )


async def follow(
    context: Context, run_id: str, after: int, streams: Streams, is_allowed: Callable[[], bool]
) -> AsyncIterator[ServerSentEvent | bytes]:
    """Stream events numbered above `after`; send `end` once the run finishes.

    The stream ends without `end` if `is_allowed`, called once per heartbeat, returns False.
    """
    with streams.of(run_id) as news:
        yield ServerSentEvent(comment="here", retry=RETRY_MS)
        checked_at = anyio.current_time()
        while not streams.closing:
            if anyio.current_time() - checked_at >= HEARTBEAT_S:
                if not await run_in_threadpool(is_allowed):
                    return
                checked_at = anyio.current_time()
            await _refresh(context, run_id, news)
            found = news.since(after)
            if found is None:
                _, items = await run_in_threadpool(_look, context, run_id, after)
                yield b"".join(map(_event, items))
                after = items[-1].number if items else news.number
                continue
            if found:
                yield found
                after = news.number
                continue
            if news.finished is not None:
                yield _end(news.finished, after)
                return
            await anyio.sleep(POLL_S)


async def _refresh(context: Context, run_id: str, news: RunNews) -> None:
    """Read new events, unless another stream is reading them or has just read them."""
    if news.is_reading or anyio.current_time() - news.read_at < POLL_S / 2:
        return
    news.is_reading = True
    try:
        if news.base is None:
            news.base = await run_in_threadpool(context.stores.run_events.last, run_id)
        run, items = await run_in_threadpool(_look, context, run_id, news.number)
        news.add(items)
        if run.state is RunState.FINISHED and not items:
            news.finished = run
        news.read_at = anyio.current_time() if not items else -math.inf
    finally:
        news.is_reading = False


def _look(context: Context, run_id: str, after: int) -> tuple[Run, list[RunEvent]]:
    """Read the run before its events, so that its state is never newer than the events."""
    run = find_run(context.stores, run_id)
    return run, context.stores.run_events.after(run_id, after)


def _event(item: RunEvent) -> bytes:
    cell = item.cell or item.data.get("cell", "")
    pointer = {**item.data, "number": item.number, "kind": item.kind, "cell": cell}
    data, number = json.dumps(pointer), str(item.number)
    return ServerSentEvent(data, id=number, event=item.kind, sep="\n").encode()


def _end(run: Run, number: int) -> bytes:
    told = {"number": number, "kind": END, "cell": "", "outcome": run.outcome}
    return ServerSentEvent(json.dumps(told), event=END, sep="\n").encode()
