"""Assembles the tests of one pytest session from their lines.

A test has one line for each report that pytest counts: a test that passed and then failed in its
teardown has two, and each failed subtest has one. Its outcome is the worst of them, so a failed
subtest fails its test; a skipped subtest does not change it. All lines of a test are adjacent in
its worker's output, so only one test per worker is kept.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from orchestrator.adapters.result_parsers.pytest_text_lines import (
    OUTCOMES,
    RERUNS,
    SUBTESTS,
    AnnouncedTests,
    NodeLine,
)
from orchestrator.domain.outcome import TestOutcome
from orchestrator.domain.parsed_results import ParsedTest

OPEN_LIMIT = 4_096
"""Maximum number of begun tests without an end; more cannot belong to running workers."""
FAILED_LIMIT = 50_000
"""Maximum number of failures that are kept until their section is read."""
MODULES_LIMIT = 10_000
WORKERS_LIMIT = 1_024
_BAD = {TestOutcome.FAILED: "failed", TestOutcome.ERROR: "error"}


@dataclass(slots=True)
class Failures:
    """Node ids of failures and errors, in the order of pytest's failure sections."""

    failed: deque[str] = field(default_factory=lambda: deque(maxlen=FAILED_LIMIT))
    errors: deque[str] = field(default_factory=lambda: deque(maxlen=FAILED_LIMIT))

    def named(self, name: str, *, is_error: bool) -> str:
        """Remove and return the node id that fits a section's title; the title if none fits."""
        waiting = self.errors if is_error else self.failed
        for place, nodeid in zip(range(64), waiting, strict=False):
            if domain(nodeid) == name:
                del waiting[place]
                return nodeid
        return name


@dataclass(slots=True)
class ListedTests:
    """Tests with separate lines."""

    __test__ = False

    seen: Counter[str] = field(default_factory=Counter)
    """Number of tests by outcome, including those that are still held."""
    extra: Counter[str] = field(default_factory=Counter)
    """Number of additional reports by outcome, without the deciding report of each test."""
    modules: set[str] = field(default_factory=set)
    failures: Failures = field(default_factory=Failures)
    _bad: set[str] = field(default_factory=set)
    """Failed tests with a line for the failure."""
    _parts: set[str] = field(default_factory=set)
    """Tests with a failed subtest that has a line."""
    _held: dict[str, ParsedTest] = field(default_factory=dict)
    """The last test of each worker, which may have more lines; MISSING before its outcome."""
    _open: dict[str, None] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """Return the number of named tests with an outcome."""
        return self.seen.total()

    def begin(self, nodeid: str) -> Iterator[ParsedTest]:
        """Note that a test has begun on some worker."""
        self._open[nodeid] = None
        if len(self._open) > OPEN_LIMIT:
            oldest = next(iter(self._open))
            del self._open[oldest]
            yield ParsedTest(oldest, TestOutcome.MISSING)

    def knows(self, nodeid: str, worker: str) -> bool:
        """Return whether the test has begun, or is the worker's last one."""
        held = self._held.get(worker)
        return nodeid in self._open or (held is not None and held.nodeid == nodeid)

    def report(self, line: NodeLine) -> Iterator[ParsedTest]:
        """Read one line with the outcome of a test or of a part of it."""
        self._open.pop(line.nodeid, None)
        held = self._held.get(line.worker)
        if held is None or held.nodeid != line.nodeid:
            if held is not None:
                yield held
            elif len(self._held) >= WORKERS_LIMIT:
                yield from self.flush()
            held = ParsedTest(line.nodeid, TestOutcome.MISSING)
            self._remember(line.nodeid)
        if line.word in RERUNS:
            held = self._again(held)
        elif line.word in SUBTESTS:
            held = self._part(held, SUBTESTS[line.word])
        else:
            held = self._whole(held, line)
        self._held[line.worker] = held

    def subtest_failed(self, nodeid: str, message: str) -> Iterator[ParsedTest]:
        """Read a failed subtest of the short summary; it is new if its own line was captured."""
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

    def settle_subtests(self, announced: AnnouncedTests | None, skipped: int) -> int:
        """Count the skipped subtests without a line as extra; return the number of all such parts.

        pytest prints none for a unittest subtest while it captures output, and sums it up.

        Args:
            announced: Tests that the session said it would run.
            skipped: Number of skipped reports of the sum, without modules.
        """
        if announced is not None and self.total == announced.items:
            self.extra["skipped"] += max(skipped - self.seen["skipped"] - self.extra["skipped"], 0)
        return self.extra["skipped"] + self.extra["passed"]

    def crashed(self, nodeid: str, *, reason: str, message: str) -> Iterator[ParsedTest]:
        """Yield the test that ran when the process ended."""
        yield from self.flush()
        self.seen["error"] += 1
        yield ParsedTest(nodeid, TestOutcome.ERROR, reason=reason, message=message)

    def flush(self) -> Iterator[ParsedTest]:
        """Yield the held tests; no more lines of theirs follow."""
        held, self._held = self._held, {}
        yield from held.values()

    def finish(self) -> Iterator[ParsedTest]:
        """Yield the held tests, and the begun tests without an end as missing."""
        yield from self.flush()
        begun, self._open = self._open, {}
        for nodeid in begun:
            yield ParsedTest(nodeid, TestOutcome.MISSING)

    def _whole(self, held: ParsedTest, line: NodeLine) -> ParsedTest:
        outcome, before = OUTCOMES[line.word], held.outcome
        reason = line.reason
        if outcome is TestOutcome.ERROR:
            reason = "setup" if before is TestOutcome.MISSING else "teardown"
        return replace(
            held,
            outcome=self._count(held, outcome),
            reason=reason if outcome > before else held.reason,
            duration_s=line.duration_s if line.duration_s is not None else held.duration_s,
        )

    def _part(self, held: ParsedTest, outcome: TestOutcome) -> ParsedTest:
        if outcome is TestOutcome.FAILED:
            if len(self._parts) < FAILED_LIMIT:
                self._parts.add(held.nodeid)
            message = held.message or "a subtest failed"
            return replace(held, outcome=self._count(held, outcome), message=message)
        if outcome is not TestOutcome.PASSED:
            self.extra[outcome.word] += 1
        return held

    def _count(self, held: ParsedTest, outcome: TestOutcome) -> TestOutcome:
        """Count a report, and return the test's outcome with it: the worst of its reports."""
        before = held.outcome
        if outcome in _BAD:
            bad = self.failures.errors if outcome is TestOutcome.ERROR else self.failures.failed
            bad.append(held.nodeid)
            if outcome is TestOutcome.FAILED and len(self._bad) < FAILED_LIMIT:
                self._bad.add(held.nodeid)
        worst = max(before, outcome)
        if before is not TestOutcome.MISSING:
            self.extra[min(before, outcome).word] += 1
            self.seen[before.word] -= 1
        self.seen[worst.word] += 1
        return worst

    def _again(self, held: ParsedTest) -> ParsedTest:
        """Reset the test for a rerun; its earlier outcome no longer counts."""
        if held.outcome is not TestOutcome.MISSING:
            self.seen[held.outcome.word] -= 1
            self.extra[held.outcome.word] += 1
            held = replace(held, outcome=TestOutcome.MISSING, message="")
        return replace(held, earlier=(*held.earlier, TestOutcome.FAILED))

    def _remember(self, nodeid: str) -> None:
        if len(self.modules) < MODULES_LIMIT:
            self.modules.add(nodeid.partition("::")[0])


def domain(nodeid: str) -> str:
    """Return the part of a node id that a section's title has: ``Class.name[params]``."""
    path, found, rest = nodeid.partition("::")
    if not found:
        return path
    name, bracket, params = rest.partition("[")
    return name.replace("::", ".") + bracket + params
