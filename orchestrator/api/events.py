"""Server-sent events of a run: resumable and complete, without a thread per client."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
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
HEARTBEAT_S = 4
"""Heartbeat interval, below idle timeouts of common clients (5 s) and proxies (15 s and more)."""
RETRY_MS = 1000
END = "end"
_EXAMPLE = 'id: 7\nevent: cell\ndata: {"number": 7, "kind": "cell", "cell": "local-cpu"}\n\n'

router = APIRouter(tags=["runs"], route_class=secured(Scope.READ), dependencies=[Security(bearer)])


@dataclass(slots=True)
class RunNews:
    """The newest state of a run, shared by all of its streams."""

    number: int = 0
    """Number of the newest event."""
    is_finished: bool = False
    read_at: float = -math.inf
    """Time of the event loop's clock."""
    is_reading: bool = False
    streams: int = 0


class Streams:
    """The open event streams.

    Those of one run share their looks at the database: a hundred watchers cost as much as one,
    until something happens.
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
        """Count an open stream of a run."""
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

    The stream ends within a heartbeat where its token or session is revoked, expires or signs out.
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
) -> AsyncIterator[ServerSentEvent]:
    """Stream events numbered above `after`; send `end` once the run finishes.

    The stream ends without it where `is_allowed`, asked once a heartbeat, says no.
    """
    with streams.of(run_id) as news:
        yield ServerSentEvent(comment="here", retry=RETRY_MS)
        checked_at = anyio.current_time()
        while not streams.closing:
            if anyio.current_time() - checked_at >= HEARTBEAT_S:
                if not await run_in_threadpool(is_allowed):
                    return
                checked_at = anyio.current_time()
            if await _refresh_position(context, run_id, news, after):
                run, items = await run_in_threadpool(_look, context, run_id, after)
                for item in items:
                    after = item.number
                    yield _event(item)
                if items:
                    continue
                if run.state is RunState.FINISHED:
                    yield _end(run, after)
                    return
            await anyio.sleep(POLL_S)


async def _refresh_position(context: Context, run_id: str, news: RunNews, after: int) -> bool:
    """Whether there are new events; uses what another stream has just read."""
    if not news.is_reading and anyio.current_time() - news.read_at >= POLL_S / 2:
        news.is_reading = True
        try:
            found = await run_in_threadpool(_newest, context, run_id)
            news.number, news.is_finished = found
            news.read_at = anyio.current_time()
        finally:
            news.is_reading = False
    return news.is_finished or news.number > after


def _newest(context: Context, run_id: str) -> tuple[int, bool]:
    """Return the newest event's number, and whether the run is finished."""
    run = find_run(context.stores, run_id)
    return context.stores.run_events.last(run_id), run.state is RunState.FINISHED


def _look(context: Context, run_id: str, after: int) -> tuple[Run, list[RunEvent]]:
    """Read the run before its events, so that its state is never newer than these."""
    run = find_run(context.stores, run_id)
    return run, context.stores.run_events.after(run_id, after)


def _event(item: RunEvent) -> ServerSentEvent:
    cell = item.cell or item.data.get("cell", "")
    pointer = {**item.data, "number": item.number, "kind": item.kind, "cell": cell}
    return ServerSentEvent(json.dumps(pointer), id=str(item.number), event=item.kind)


def _end(run: Run, number: int) -> ServerSentEvent:
    told = {"number": number, "kind": END, "cell": "", "outcome": run.outcome}
    return ServerSentEvent(json.dumps(told), event=END)
