"""Progress output: redrawn in place on a terminal, otherwise line by line."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from operator import itemgetter
from types import TracebackType
from typing import Protocol

from rich.console import Console
from rich.live import Live

from orchestrator.cli.failure_logs import BadTest
from orchestrator.cli.safe_text import one_line
from orchestrator.cli.view.failures import blamed
from orchestrator.cli.view.glyphs import outcome_words, word
from orchestrator.cli.view.live_run import picture, summary
from orchestrator.cli.view.rows import job_left_s, job_seconds, reported, since
from orchestrator.cli.watching.poll_threads import WatchedRun
from orchestrator.domain.outcome import Counts
from orchestrator.domain.run_record import CellRecord, JobRecord, RunResponse
from orchestrator.domain.units import duration, elapsed
from orchestrator.domain.vocabulary import TEST_OUTCOMES, term

PULSE_S = 60.0
"""Seconds between lines that show an unchanged run as a sign of life."""


@dataclass(slots=True)
class PlainTeller:
    """Creates the lines about changes of a run, each change once."""

    _cells: dict[str, CellRecord] = field(default_factory=dict)
    _state: str = ""
    _printed_at: datetime | None = None
    _cancelling: bool = False

    def tell(self, run: RunResponse, now: datetime, bad: Sequence[BadTest] = ()) -> list[str]:
        """Return lines for changes since the last call, each with the time since the launch.

        `bad` are failing tests that were not told yet; each follows the start of its job.

        Of a run that was over before the first call, each line has the time of its event.
        """
        news = list(self._news(run, now, bad))
        self._cells = {cell.id: cell for cell in run.cells}
        if not news and since(self._printed_at, now) >= PULSE_S:
            news = [(now, line) for cell in run.cells for line in _pulse(cell, now)]
        if self._printed_at is None and run.is_finished:
            news.sort(key=itemgetter(0))
        else:
            news = [(now, line) for _, line in news]
        if news or self._printed_at is None:
            self._printed_at = now
        return [f"{elapsed(since(run.created_at, at)):>8}  {line}" for at, line in news]

    def _news(
        self, run: RunResponse, now: datetime, bad: Sequence[BadTest]
    ) -> Iterator[tuple[datetime, str]]:
        """Yield changes with the time of their event."""
        if run.cancel_requested_at is not None and not self._cancelling:
            self._cancelling = True
            yield run.cancel_requested_at, "run: cancel requested"
        for cell in run.cells:
            before = self._cells.get(cell.id)
            mine = [one for one in bad if one.cell == cell.id]
            yield from _job_news(cell, before, now, mine)
            entered = cell.entered_at or now
            yield from ((entered, line) for line in _cell_news(cell, before))
            yield from ((entered, line) for line in _kept(cell, before, run))
        if run.is_finished and self._state != run.state:
            retried = sum(cell.passed_on_retry for cell in run.cells)
            figures = counts_in_words(run.counts, retried=retried)
            yield run.finished_at or now, f"run: {outcome_words(run, figures)}"
        self._state = run.state


def counts_in_words(counts: Counts, *, retried: int = 0) -> str:
    """Return ``48 passed, 1 of them flaky, 2 failed``; empty without collected tests.

    Without a passed or failed test the text is like ``no test passed: 2 skipped``.
    """
    if counts.nothing_passed:
        return counts.nothing_passed
    figures = counts.as_dict()
    told = {name: term(name).counted(figures[name]) for name in TEST_OUTCOMES if figures[name]}
    if retried:
        told["passed"] += f", {retried} of them flaky"
    return ", ".join(told.values())


def _figures(counts: Counts | None, retried: int = 0) -> str:
    words = counts_in_words(counts, retried=retried) if counts else ""
    return f" ({words})" if words else ""


def _kept(cell: CellRecord, before: CellRecord | None, run: RunResponse) -> Iterator[str]:
    """Return the line about a held machine."""
    if cell.kept_until is None or (before is not None and before.kept_until is not None):
        return
    name, run_id = one_line(cell.id), one_line(run.id)
    yield (
        f"{name}: its machine is kept until {cell.kept_until:%H:%M:%S} UTC; "
        f"`seatrial ssh {run_id} {name}` opens a shell, `seatrial cancel {run_id}` releases it"
    )


def _cell_news(cell: CellRecord, before: CellRecord | None) -> Iterator[str]:
    name = one_line(cell.id)
    if cell.simulated and not (before is not None and before.simulated):
        yield f"{name}: SIMULATED: no gate accepts this"
    if before is not None and cell.attempt > before.attempt > 0:
        yield f"{name}: attempt {cell.attempt}"
    if before is not None and cell.state == before.state:
        return
    if not cell.is_done:
        yield f"{name}: {word(cell.state)}"
        return
    why = one_line(cell.why)
    said = f": {why}" if why and (cell.outcome != "passed" or cell.reason == "reused") else ""
    figures = _figures(cell.counts, cell.passed_on_retry)
    yield f"{name}: {word(cell.outcome or cell.state)}{said}{figures}"


def _job_news(
    cell: CellRecord, before: CellRecord | None, now: datetime, bad: Sequence[BadTest]
) -> Iterator[tuple[datetime, str]]:
    known = {job.id: job for job in before.jobs} if before else {}
    for job in cell.jobs:
        old = known.get(job.id)
        name = f"{one_line(cell.id)} {one_line(job.id)}"
        started = job.started_at or cell.entered_at or now
        if job.reuse and not job.reused_from and not (old and old.reuse):
            yield started, f"{name}: not reused: {one_line(job.reuse)}"
        if job.is_running and not (old and old.is_running):
            yield started, f"{name}: started"
        ended = started + timedelta(seconds=job_seconds(job, now) or 0)
        yield from ((ended, str(one)) for one in bad if one.test.job == job.id)
        if job.outcome is not None and (old is None or old.outcome is None):
            yield ended, f"{name}: {_ended(job, now)}"


def _ended(job: JobRecord, now: datetime) -> str:
    line = word(job.outcome or "")
    if job.reused_from:
        return f"{line}{_figures(job.counts, job.passed_on_retry)}, reused: {one_line(job.reuse)}"
    seconds = job_seconds(job, now)
    if seconds is not None:
        line += f" in {duration(seconds)}"
    line += _figures(job.counts, job.passed_on_retry)
    if job.why and job.outcome != "passed":
        line += f": {one_line(job.why)}"
    return f"{line}; degraded: {one_line(job.degraded)}" if job.degraded else line


def _pulse(cell: CellRecord, now: datetime) -> Iterator[str]:
    """Return the state of a running cell."""
    if cell.is_done or cell.state == "queued":
        return
    running = [job for job in cell.jobs if job.is_running]
    if not running:
        yield f"{one_line(cell.id)}: still {word(cell.state)}"
    for job in running:
        line = f"{one_line(cell.id)} {one_line(job.id)}: "
        if job.counts is not None and job.counts.collected:
            line += f"{reported(job.counts)} of {job.counts.collected} tests"
        else:
            line += "running"
        left_s, silence = job_left_s(job, now), job.silence(now)
        if silence:
            line += f", {silence}" + (f", in {one_line(job.current)}" if job.current else "")
        yield line + (f", ~{elapsed(left_s)} left" if left_s is not None else "")


MOST_AT_END = 20


class Display(AbstractContextManager["Display"], Protocol):
    """Displays a run's progress."""

    tick_s: float
    """Maximum seconds between two calls of `show`."""

    def show(self, watched: WatchedRun, now: datetime, note: str) -> None:
        """Display the present state."""
        ...

    def finish(self, watched: WatchedRun, now: datetime) -> None:
        """Print the final lines after the display was closed."""
        ...


class LiveDisplay:
    """A full-screen display, robust against resizing and scrolling."""

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
        """Redraw if a second has passed or anything has changed."""
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
        """Print the whole run and its failed tests."""
        self._console.print(summary(watched.run, now=now, width=self._console.width))
        for line in bad_lines(watched.bad):
            self._console.print(line, markup=False, highlight=False, soft_wrap=True, style="red")
        answers = blamed(watched.run)
        if answers is not None:
            self._console.print(answers)


class PlainDisplay:
    """A display with one line per change."""

    tick_s = 0.5

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._teller = PlainTeller()
        self._printed = 0
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
        """Do nothing."""

    def show(self, watched: WatchedRun, now: datetime, note: str) -> None:
        """Print changes."""
        for notice in watched.notices[self._heard :]:
            self._say(f"{elapsed(since(watched.run.created_at, now)):>8}  {notice}")
        self._heard = len(watched.notices)
        for line in self._teller.tell(watched.run, now, watched.bad[self._printed :]):
            self._say(line)
        self._printed = len(watched.bad)
        if watched.trouble != self._trouble:
            self._trouble = watched.trouble
            self._say(f"{'':>8}  {watched.trouble or 'connected again'}")

    def finish(self, watched: WatchedRun, now: datetime) -> None:
        """Do nothing: everything was printed already."""


def bad_lines(bad: tuple[BadTest, ...]) -> list[str]:
    """Return lines of failed tests, up to a limit."""
    lines = [f"  {test}" for test in bad[:MOST_AT_END]]
    if len(bad) > MOST_AT_END:
        lines.append(f"  … and {len(bad) - MOST_AT_END} more; the report names them all")
    return lines
