"""Where progress is written: redrawn in place on a terminal, else line by line."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime
from types import TracebackType
from typing import Protocol

from rich.console import Console
from rich.live import Live

from orchestrator.cli.view.blame import blamed
from orchestrator.cli.view.live_run import picture, summary
from orchestrator.cli.view.remaining_time import since
from orchestrator.cli.watching.failing_tests import BadTest
from orchestrator.cli.watching.plain_progress import PlainTeller
from orchestrator.cli.watching.poll_threads import WatchedRun
from orchestrator.domain.units import elapsed

TOLD_AT_END = 20


class Display(AbstractContextManager["Display"], Protocol):
    """Shows a run while it goes on."""

    tick_s: float
    """How often `show` is to be called at least."""

    def show(self, watched: WatchedRun, now: datetime, note: str) -> None:
        """Show what is known."""
        ...

    def finish(self, watched: WatchedRun, now: datetime) -> None:
        """Leave behind what a person wants to keep; after the context was left."""
        ...


class LiveDisplay:
    """A full screen of its own, so that neither a resize nor a scroll can tear it."""

    tick_s = 0.125

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(
            console=console,
            screen=True,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
            vertical_overflow="crop",
        )
        self._drawn: tuple[object, ...] = ()

    def __enter__(self) -> LiveDisplay:
        self._live.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.__exit__(kind, error, trace)

    def show(self, watched: WatchedRun, now: datetime, note: str) -> None:
        """Redraw, if a second has passed or anything else is new."""
        size = self._console.size
        fresh = (watched, int(now.timestamp()), size, note)
        if fresh == self._drawn:
            return
        self._drawn = fresh
        heard = {notice.about: notice.text for notice in watched.notices}
        image = picture(
            watched.run,
            watched.tail,
            now=now,
            width=size.width,
            height=size.height,
            note=note,
            heard=heard,
        )
        self._live.update(image, refresh=True)

    def finish(self, watched: WatchedRun, now: datetime) -> None:
        """The whole run as it stands, and the tests that failed."""
        self._console.print(summary(watched.run, now=now, width=self._console.width))
        for line in bad_lines(watched.bad):
            self._console.print(line, markup=False, highlight=False, soft_wrap=True, style="red")
        answers = blamed(watched.run)
        if answers is not None:
            self._console.print(answers)


class PlainDisplay:
    """A line for everything that happens."""

    tick_s = 0.5

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._teller = PlainTeller()
        self._told = 0
        self._heard = 0
        self._trouble = ""

    def __enter__(self) -> PlainDisplay:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Nothing is to be undone."""

    def show(self, watched: WatchedRun, now: datetime, note: str) -> None:
        """Write what is new."""
        for test in watched.bad[self._told :]:
            self._say(f"{'':>8}  {test}")
        self._told = len(watched.bad)
        for notice in watched.notices[self._heard :]:
            self._say(f"{elapsed(since(watched.run.created_at, now)):>8}  {notice}")
        self._heard = len(watched.notices)
        for line in self._teller.tell(watched.run, now):
            self._say(line)
        if watched.trouble != self._trouble:
            self._trouble = watched.trouble
            self._say(f"{'':>8}  {watched.trouble or 'connected again'}")

    def finish(self, watched: WatchedRun, now: datetime) -> None:
        """Everything was told already."""


def bad_lines(bad: tuple[BadTest, ...]) -> list[str]:
    """The tests that failed, at most so many."""
    lines = [f"  {test}" for test in bad[:TOLD_AT_END]]
    if len(bad) > TOLD_AT_END:
        lines.append(f"  … and {len(bad) - TOLD_AT_END} more; the report names them all")
    return lines
