"""The tests of one pytest session, put together from the lines that speak of them.

A test has one line for each report that pytest counts: a test that passed and then failed to tear
down has two, each failed subtest has one. Its outcome is the worst of them, so a failed subtest
fails its test; a skipped subtest says nothing about it. All lines of a test follow one another,
or those of its worker do, so that one test per worker is all that is remembered.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from orchestrator.adapters.result_parsers.pytest_text_lines import (
    OUTCOMES,
    RERUN,
    SUBTESTS,
    NodeLine,
)
from orchestrator.domain.outcome import TestOutcome
from orchestrator.domain.parsed_results import ParsedTest

OPEN_LIMIT = 4_096
"""Tests that are begun and not ended; more are no workers' any longer."""
FAILED_LIMIT = 50_000
"""Failures that are remembered until their section comes."""
MODULES_LIMIT = 10_000
WORKERS_LIMIT = 1_024
_BAD = {TestOutcome.FAILED: "failed", TestOutcome.ERROR: "error"}


@dataclass(slots=True)
class _Held:
    """A test that may have more lines."""

    nodeid: str
    outcome: TestOutcome | None = None
    reason: str = ""
    message: str = ""
    duration_s: float | None = None
    earlier: list[TestOutcome] = field(default_factory=list)


@dataclass(slots=True)
class Failures:
    """Node ids of what went wrong, in the order in which pytest tells of it again."""

    failed: deque[str] = field(default_factory=lambda: deque(maxlen=FAILED_LIMIT))
    errors: deque[str] = field(default_factory=lambda: deque(maxlen=FAILED_LIMIT))

    def named(self, name: str, *, is_error: bool) -> str:
        """The node id that a section's title means, once; the title itself where none fits."""
        waiting = self.errors if is_error else self.failed
        for place, nodeid in zip(range(64), waiting, strict=False):
            if domain(nodeid) == name:
                del waiting[place]
                return nodeid
        return name


@dataclass(slots=True)
class Tests:
    """The tests that have lines of their own."""

    __test__ = False

    seen: Counter[str] = field(default_factory=Counter)
    """Tests by their outcome's word, with those that are still held."""
    extra: Counter[str] = field(default_factory=Counter)
    """Reports that pytest counts beside the one that decides, by the outcome's word."""
    modules: set[str] = field(default_factory=set)
    failures: Failures = field(default_factory=Failures)
    _bad: set[str] = field(default_factory=set)
    """Tests that failed, and have a line that says so."""
    _parts: set[str] = field(default_factory=set)
    """Tests with a failed subtest that has a line."""
    _held: dict[str, _Held] = field(default_factory=dict)
    _open: dict[str, None] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """Tests that were named with an outcome."""
        return self.seen.total()

    def begin(self, nodeid: str) -> Iterator[ParsedTest]:
        """A test is said to have begun on some worker."""
        self._open[nodeid] = None
        if len(self._open) > OPEN_LIMIT:
            oldest = next(iter(self._open))
            del self._open[oldest]
            yield ParsedTest(oldest, TestOutcome.MISSING)

    def knows(self, nodeid: str, worker: str) -> bool:
        """Whether the test was said to have begun, or is the worker's last one."""
        held = self._held.get(worker)
        return nodeid in self._open or (held is not None and held.nodeid == nodeid)

    def report(self, line: NodeLine) -> Iterator[ParsedTest]:
        """One line that says how a test, or a part of it, went."""
        self._open.pop(line.nodeid, None)
        held = self._held.get(line.worker)
        if held is None or held.nodeid != line.nodeid:
            if held is not None:
                yield _told(held)
            elif len(self._held) >= WORKERS_LIMIT:
                yield from self.flush()
            held = self._held[line.worker] = _Held(line.nodeid)
            self._remember(line.nodeid)
        if line.word == RERUN:
            self._again(held)
        elif line.word in SUBTESTS:
            self._part(held, SUBTESTS[line.word])
        else:
            self._whole(held, line)

    def subtest_failed(self, nodeid: str, message: str) -> Iterator[ParsedTest]:
        """A failed subtest in the short summary; where its line was captured, it is news."""
        if nodeid in self._parts:
            return
        if nodeid in self._bad or len(self._bad) >= FAILED_LIMIT:
            self.extra["failed"] += 1
            return
        self._bad.add(nodeid)
        self.seen["passed"] -= 1
        self.seen["failed"] += 1
        self.extra["passed"] += 1
        yield ParsedTest(nodeid, TestOutcome.FAILED, message=message or "a subtest failed")

    def crashed(self, nodeid: str, *, reason: str, message: str) -> Iterator[ParsedTest]:
        """The test that ran when everything ended."""
        yield from self.flush()
        self.seen["error"] += 1
        yield ParsedTest(nodeid, TestOutcome.ERROR, reason=reason, message=message)

    def flush(self) -> Iterator[ParsedTest]:
        """Nothing more comes of the tests that are held."""
        held, self._held = self._held, {}
        yield from map(_told, held.values())

    def finish(self) -> Iterator[ParsedTest]:
        """Nothing more comes at all: what has begun has no end."""
        yield from self.flush()
        begun, self._open = self._open, {}
        for nodeid in begun:
            yield ParsedTest(nodeid, TestOutcome.MISSING)

    def _whole(self, held: _Held, line: NodeLine) -> None:
        outcome, before = OUTCOMES[line.word], held.outcome
        reason = line.reason
        if outcome is TestOutcome.ERROR:
            reason = "setup" if before is None else "teardown"
        self._count(held, outcome)
        if before is None or outcome > before:
            held.reason = reason
        held.duration_s = line.duration_s if line.duration_s is not None else held.duration_s

    def _part(self, held: _Held, outcome: TestOutcome) -> None:
        if outcome is TestOutcome.FAILED:
            self._count(held, outcome)
            held.message = held.message or "a subtest failed"
            if len(self._parts) < FAILED_LIMIT:
                self._parts.add(held.nodeid)
        elif outcome is not TestOutcome.PASSED:
            self.extra[outcome.word] += 1

    def _count(self, held: _Held, outcome: TestOutcome) -> None:
        before = held.outcome
        if outcome in _BAD:
            bad = self.failures.errors if outcome is TestOutcome.ERROR else self.failures.failed
            bad.append(held.nodeid)
            if outcome is TestOutcome.FAILED and len(self._bad) < FAILED_LIMIT:
                self._bad.add(held.nodeid)
        if before is None:
            held.outcome = outcome
            self.seen[outcome.word] += 1
            return
        held.outcome = max(before, outcome)
        self.extra[min(before, outcome).word] += 1
        self.seen[before.word] -= 1
        self.seen[held.outcome.word] += 1

    def _again(self, held: _Held) -> None:
        """It is run again; what it did before counts no longer."""
        held.earlier.append(TestOutcome.FAILED)
        if held.outcome is not None:
            self.seen[held.outcome.word] -= 1
            self.extra[held.outcome.word] += 1
            held.outcome, held.message = None, ""

    def _remember(self, nodeid: str) -> None:
        if len(self.modules) < MODULES_LIMIT:
            self.modules.add(nodeid.partition("::")[0])


def domain(nodeid: str) -> str:
    """The part of a node id that a section's title has: ``Class.name[params]``."""
    path, found, rest = nodeid.partition("::")
    if not found:
        return path
    name, bracket, params = rest.partition("[")
    return name.replace("::", ".") + bracket + params


def _told(held: _Held) -> ParsedTest:
    outcome = held.outcome if held.outcome is not None else TestOutcome.MISSING
    return ParsedTest(
        held.nodeid,
        outcome,
        duration_s=held.duration_s,
        reason=held.reason,
        message=held.message,
        earlier=tuple(held.earlier),
    )
