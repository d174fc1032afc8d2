"""How often a watched run is polled."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from orchestrator.cli.watching.poll_threads import Follower
from orchestrator.client.errors import RefusalError
from orchestrator.client.seatrial import Seatrial
from orchestrator.client.transport import Answer
from orchestrator.domain.run_record import RunResponse
from tests.unit.cli import runs

EVENTS = 50
FIRST = Answer(runs.typical(), RunResponse)


class FakeFeed(Seatrial):
    """A feed that has its events at once, and the end with the last one."""

    def __init__(self) -> None:
        """It has no connection."""

    @contextmanager
    def stream(self, _path: str, *, headers: Mapping[str, str]) -> Iterator[Any]:
        assert headers["Accept"] == "text/event-stream"
        yield self

    def iter_lines(self) -> Iterator[str]:
        for number in range(EVENTS):
            yield from (f"id: {number}", "event: cell", "data: {}", "")
        yield from ("event: end", "data: {}", "")

    def close(self) -> None:
        """Nothing is open."""


class FakeController(Seatrial):
    """Answers what is asked of a finished run, and counts it."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def get(self, path: str, **_query: object) -> Any:
        self.asked.append(path)
        if path.endswith("/tests"):
            return {"items": [], "next": None}
        return runs.typical() | {"state": "finished", "outcome": "passed"}

    def close(self) -> None:
        """Nothing is open."""


class LateController(FakeController):
    """Is behind a proxy that reaches it at the third look only."""

    def get(self, path: str, **query: object) -> Any:
        if len(self.asked) < 2:
            self.asked.append(path)
            raise RefusalError(502, ["the proxy does not reach it: 502 and text/html"])
        return super().get(path, **query)


def test_a_proxy_that_does_not_reach_the_controller_is_waited_for() -> None:
    wake, looks = threading.Event(), LateController()
    follower = Follower(FakeFeed(), looks, FIRST, wake, with_log=False)
    follower.start()
    while not follower.watched.run.is_finished:
        assert wake.wait(30)
        wake.clear()
        follower.look()
    assert follower.fault is None
    assert len(looks.asked) > 2


def test_events_that_come_together_are_one_poll_and_the_end_is_not_waited_for() -> None:
    wake, looks = threading.Event(), FakeController()
    follower = Follower(FakeFeed(), looks, FIRST, wake, with_log=False)
    follower.start()
    assert wake.wait(30)
    assert follower.look().run.is_finished
    assert looks.asked.count(f"/runs/{FIRST.record.id}") == 1
    assert not [path for path in looks.asked if path.endswith("/log")]
