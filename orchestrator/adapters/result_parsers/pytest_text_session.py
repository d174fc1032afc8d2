"""Parses the terminal output of one pytest session by lines, with details of its failures."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto

from orchestrator.adapters.result_parsers import pytest_text_lines as grammar
from orchestrator.adapters.result_parsers.pytest_text_doubts import SessionDoubts
from orchestrator.adapters.result_parsers.pytest_text_lines import (
    LETTERS,
    OUTCOMES,
    SUBTESTS,
    AnnouncedTests,
    NodeLine,
    PytestFooter,
    without_subtest,
)
from orchestrator.adapters.result_parsers.pytest_text_tests import Failures, ListedTests
from orchestrator.domain.outcome import TestOutcome
from orchestrator.domain.parsed_results import (
    ParsedDetail,
    ParsedItem,
    ParsedProblem,
    ParsedSubtests,
    ParsedTally,
    ParsedTest,
    ParsedUnnamedTests,
)
from orchestrator.domain.units import plural

TEXT_LIMIT = 65_536
"""Maximum characters of a text; the middle of a longer one is dropped."""
_TAIL_LINES = 40
MESSAGE_LIMIT = 500
CUT_MARK = "...[cut]..."
_PHASE = re.compile(r"ERROR (?:at (setup|teardown|call) of|(collecting)) (.+)")
_CRASHED = re.compile(r"worker '(gw\d{1,5})' crashed while running '(.+)'")
_CAPTURED = re.compile(r"-{3,200} (?:Captured|generated|coverage|live log) ")
_PLACE = re.compile(r"\S.*:\d+: \w+$")
_ONLY_SUM = re.compile(r"contains \d{1,9} failed subtests?")


@dataclass(slots=True)
class Detail:
    """The text of one section, line by line."""

    title: str
    is_printed: bool = False
    """Whether the next lines were printed by the test."""
    _lines: list[str] = field(default_factory=list)
    _tail: list[str] = field(default_factory=list)
    _size: int = 0
    _message: str = ""
    _first: str = ""
    _last: str = ""
    _node: str = ""

    def add(self, line: str) -> None:
        """Add the next line of the section."""
        if not self.is_printed:
            self.is_printed = _CAPTURED.match(line) is not None
        if not self.is_printed:
            self._look_at(line)
        if self._size + len(line) < TEXT_LIMIT:
            self._lines.append(line)
            self._size += len(line) + 1
            return
        self._size = TEXT_LIMIT
        self._tail.append(line[:MESSAGE_LIMIT])
        if len(self._tail) > 2 * _TAIL_LINES:
            del self._tail[:_TAIL_LINES]

    def parsed(self, failures: Failures, *, is_error: bool) -> ParsedDetail | None:
        """Return the failure's details; None if another section has better ones."""
        name, phase = _named(self.title)
        message = self._detail_text()
        if _ONLY_SUM.fullmatch(message):
            failures.named(name, is_error=is_error)
            return None
        if not phase or phase != "collection":
            name = self._node or failures.named(name, is_error=is_error)
        return ParsedDetail(name, message=message[:MESSAGE_LIMIT], text=self._text(), phase=phase)

    def _look_at(self, line: str) -> None:
        if not self._message and line.startswith("E "):
            self._message = line[1:].strip()
        if line.startswith("worker '"):
            crashed = _CRASHED.fullmatch(line)
            self._node = crashed[2] if crashed else self._node
        if line and not line.isspace() and not line.startswith("[gw"):
            self._first = self._first or line[:MESSAGE_LIMIT].strip()
            self._last = line[:MESSAGE_LIMIT].strip()

    def _detail_text(self) -> str:
        if self._message:
            return self._message
        is_end = self._first.startswith("Traceback") or _PLACE.fullmatch(self._last)
        return self._last if is_end else self._first

    def _text(self) -> str:
        tail = [CUT_MARK, *self._tail[-_TAIL_LINES:]] if self._tail else []
        return "\n".join([*self._lines, *tail]).rstrip()


def _named(title: str) -> tuple[str, str]:
    found = _PHASE.fullmatch(title)
    if found is None:
        return without_subtest(title.removeprefix("[doctest] ")), ""
    if found[2]:
        return found[3], "collection"
    phase = found[1] if found[1] != "call" else ""
    return found[3].removeprefix("[doctest] "), phase


NAMED_LIMIT = 50_000
_BEFORE_TEARDOWN = ("passed", "skipped", "xfailed", "xpassed")


@dataclass(slots=True)
class _Named:
    """A test of the short summary, which has one line per report."""

    outcomes: list[TestOutcome] = field(default_factory=list)
    message: str = ""
    is_by_subtest: bool = True
    """Whether all reports are of subtests, so that the test's own report is missing."""

    @property
    def errors_with_failures(self) -> int:
        """Return the number of its errors that are counted beside another report of the test."""
        errors = self.outcomes.count(TestOutcome.ERROR)
        return errors if errors < len(self.outcomes) else max(errors - 1, 0)


@dataclass(slots=True)
class CountedTests:
    """Tests without separate lines."""

    letters: Counter[str] = field(default_factory=Counter)
    """Number of reports by outcome."""
    extra: Counter[str] = field(default_factory=Counter)
    """Number of additional reports of tests that the summary names, without the deciding ones."""
    _named: dict[str, _Named] = field(default_factory=dict)
    _settled_statements: Counter[str] = field(default_factory=Counter)
    _doubled: int = 0
    """Number of errors of named tests that also have another report."""

    def count(self, letters: str) -> None:
        """Count the letters of a row."""
        for letter, outcome in LETTERS.items():
            self.letters[outcome.word] += letters.count(letter)

    def name(self, line: NodeLine, message: str) -> Iterator[ParsedTest]:
        """Read a line of the short summary."""
        outcome = OUTCOMES.get(line.word) or SUBTESTS.get(line.word)
        is_part = line.word in SUBTESTS
        if outcome is None or (is_part and outcome is not TestOutcome.FAILED):
            return
        if len(self._named) >= NAMED_LIMIT:
            yield from self._tests()
        named = self._named.setdefault(line.nodeid, _Named())
        named.outcomes.append(outcome)
        named.message = named.message or message
        named.is_by_subtest = named.is_by_subtest and is_part

    def doubts(self, errors: int) -> Iterator[ParsedProblem]:
        """Yield a warning if errors may be teardown errors, whose tests would be counted twice."""
        known = sum(test.errors_with_failures for test in self._named.values())
        unsure = errors - known - self._doubled
        if unsure > 0:
            yield ParsedProblem(
                "warning",
                f"{plural(unsure, 'error')} may come from teardowns of tests that pytest also"
                " counts as passed; this log cannot tell, as it has neither tracebacks nor the"
                " number of tests: run without -q or --tb=no",
            )

    def finish(
        self,
        counts: Mapping[str, int],
        *,
        teardowns: int | None,
        total: int | None,
        aside: Counter[str],
    ) -> Iterator[ParsedTest | ParsedUnnamedTests]:
        """Yield the named tests and the number of the other tests.

        Args:
            counts: The reports by outcome, of the footer or of the letters.
            teardowns: Errors of tests that have another report as well; None if unknown.
            total: Announced number of tests, which reveals teardown errors if `teardowns` is None.
            aside: Tests that are reported elsewhere: modules that could not be collected.
        """
        yield from self._tests()
        if teardowns is not None:
            hidden = teardowns - self._doubled
        elif total is not None:
            hidden = min(sum(counts.values()) - total - self.extra.total(), counts.get("error", 0))
        else:
            hidden = 0
        self._hide(max(hidden, 0), counts)
        rest = Counter(dict(counts))
        rest.subtract(self.extra)
        rest.subtract(self._settled_statements)
        rest.subtract(aside)
        unnamed = {word: number for word, number in rest.items() if number > 0}
        if unnamed:
            yield ParsedUnnamedTests(unnamed)

    def _hide(self, number: int, counts: Mapping[str, int]) -> None:
        """Move the earlier reports of tests with a teardown error to `extra`; most passed."""
        for word in _BEFORE_TEARDOWN:
            known = self.extra[word] + self._settled_statements[word]
            taken = min(number, max(counts.get(word, 0) - known, 0))
            self.extra[word] += taken
            number -= taken

    def _tests(self) -> Iterator[ParsedTest]:
        named, self._named = self._named, {}
        for nodeid, test in named.items():
            worst = max(test.outcomes)
            self.extra.update(outcome.word for outcome in test.outcomes)
            self.extra[worst.word] -= 1
            self._doubled += test.errors_with_failures
            if test.is_by_subtest:
                self.extra["passed"] += 1
            self._settled_statements[worst.word] += 1
            yield ParsedTest(nodeid, worst, message=test.message)


WIDTH = 80
FATAL = "Fatal Python error: "
_INTERNAL = "INTERNALERROR>"
_TIMEOUT = re.compile(r"\+{3,400} Timeout \+{3,400}$")
_DURATIONS = re.compile(r"slowest (?:\d{1,9} )?(?:test )?durations")
_BAD_WORDS = ("FAILED", "ERROR")


class _Place(Enum):
    ITEMS = auto()
    ERRORS = auto()
    FAILURES = auto()
    PASSES = auto()
    SUMMARY = auto()
    OTHER = auto()


_SECTIONS = {
    "ERRORS": _Place.ERRORS,
    "FAILURES": _Place.FAILURES,
    "PASSES": _Place.PASSES,
    "XPASSES": _Place.PASSES,
    "XFAILURES": _Place.PASSES,
    "short test summary info": _Place.SUMMARY,
    "warnings summary": _Place.OTHER,
    "warnings summary (final)": _Place.OTHER,
}
_DETAILS = frozenset({_Place.ERRORS, _Place.FAILURES, _Place.PASSES})


@dataclass(slots=True)
class _Pending:
    """A test that has begun; its output comes before its outcome."""

    nodeid: str
    outcome: NodeLine | None = None
    word: str = ""
    """Outcome word glued to printed text; used only without a better one."""


@dataclass(slots=True)
class PytestSession:
    """The state of one session after the lines read so far."""

    width: int = WIDTH
    outside: bool = False
    """Whether the last line is outside of tracebacks and no result."""
    stopped: str = ""
    internal: str = ""
    refused: str = ""
    fatal: str = ""
    """The message of a fatal error; a session with a sum did not end by it."""
    is_hung: bool = False
    doubts: SessionDoubts = field(default_factory=SessionDoubts)
    tests: ListedTests = field(default_factory=ListedTests)
    _place: _Place = _Place.ITEMS
    _announced: AnnouncedTests | None = None
    _is_shared: bool = False
    _is_unmarked: bool = False
    _pending: _Pending | None = None
    _unlined: CountedTests = field(default_factory=CountedTests)
    _detail: Detail | None = None
    _details: int = 0
    _teardowns: int = 0
    _broken: int = 0
    _is_broken_reported: bool = False
    _skipped: int = 0
    """Number of named modules that were skipped as a whole."""
    _parts: int = 0

    @property
    def is_empty(self) -> bool:
        """Return whether no test was announced to run."""
        return self._announced is not None and not self._announced.items

    @property
    def is_printed(self) -> bool:
        """Return whether the last line was printed by a test."""
        return self._detail is not None and self._detail.is_printed

    def see(self, line: str) -> Iterator[ParsedItem]:
        """Read the next line."""
        self.outside = False
        if line.startswith(_INTERNAL):
            self.internal = line[len(_INTERNAL) :].strip() or self.internal
            return
        if self._notices(line):
            return
        if self._pending is None and self._place not in _DETAILS:
            self.doubts.see(line)
        place = self._section(line)
        if place is not None:
            yield from self._leave()
            self._place = place
        elif self._place is _Place.ITEMS:
            yield from self._item(self._living(line))
        elif self._place is _Place.SUMMARY:
            yield from self._summary(line)
        elif self._place in _DETAILS:
            yield from self._traceback(line)
        else:
            self.outside = True

    def text(self, line: str) -> None:
        """Read a line of a test's captured output."""
        self.outside = False
        if self._detail is not None:
            self._detail.add(line)

    def finish(self, footer: PytestFooter | None) -> Iterator[ParsedItem]:
        """Yield the rest of the session, with or without its sum."""
        yield from self._leave()
        yield from self.tests.finish()
        counts = footer.counts if footer is not None else None
        if self.tests.total:
            extra = self.tests.extra
            skipped = self._modules_skipped(counts)
            if skipped > self._skipped:
                yield ParsedUnnamedTests({"skipped": skipped - self._skipped})
            summed = (counts or {}).get("skipped", 0) - skipped
            self._parts = self.tests.settle_subtests(self._announced, summed)
        else:
            yield from self._others(counts)
            extra = self._unlined.extra
        yield from self._tallies(footer, extra)
        yield from self._problems()

    def _notices(self, line: str) -> bool:
        if line.startswith("!") and not self.is_printed:
            title = grammar.banner(line, "!")
            if title is not None and len(line) >= self.width - 1:
                self.stopped = title[:MESSAGE_LIMIT]
                return True
        is_idle = self._place is _Place.ITEMS and self._pending is None and not self.tests.total
        if is_idle and line.startswith("ERROR: "):
            self.refused = line[7 : MESSAGE_LIMIT + 7]
            return True
        return False

    def _section(self, line: str) -> _Place | None:
        """Return the section of a title; None if the line is no title."""
        title = grammar.banner(line, "=")
        if title is None or len(line.rstrip()) < self.width - 1:
            return None
        if title in _SECTIONS:
            return _SECTIONS[title]
        is_other = self._place is not _Place.ITEMS and not self.is_printed
        return _Place.OTHER if is_other or _DURATIONS.fullmatch(title) else None

    def _living(self, line: str) -> str:
        """Return the line without a fatal error message in it, which is kept in `fatal`."""
        at = line.find(FATAL)
        if at >= 0:
            self.fatal = line[at : at + MESSAGE_LIMIT]
            return line[:at]
        found = _TIMEOUT.search(line) if "+ Timeout +" in line else None
        if found is not None:
            self.fatal, self.is_hung = "the time limit of pytest-timeout was reached", True
            return line[: found.start()]
        return line

    def _item(self, line: str) -> Iterator[ParsedItem]:
        if not line:
            return
        node = grammar.worker_line(line) or grammar.node_line(line)
        if node is not None and self._take_mark(node):
            yield from self._node(node, line)
        elif self._pending is not None:
            yield from self._printed(self._pending, line)
        else:
            self._before(line)

    def _take_mark(self, node: NodeLine) -> bool:
        """Return whether pytest itself wrote the line.

        In a session without progress marks a line with one was printed by a test.
        """
        if node.word and not self.tests.total:
            self._is_unmarked = not node.is_marked
        return not (self._is_unmarked and node.is_marked and not node.worker)

    def _node(self, node: NodeLine, line: str) -> Iterator[ParsedItem]:
        if node.worker:
            self._is_shared = True
            node = self._of_worker(node)
        same = self._pending is not None and self._pending.nodeid == node.nodeid
        if not node.word and self._is_shared:
            yield from self.tests.begin(grammar.begun_alone(line))
            return
        if not node.word and same:
            return
        yield from self._settled(is_silent=same)
        if node.word:
            yield from self.tests.report(node)
        else:
            printed = line[len(node.nodeid) :].strip()
            self._pending = _Pending(node.nodeid, word=grammar.glued_outcome(printed))

    def _of_worker(self, node: NodeLine) -> NodeLine:
        """Return the line of a known test, without text that another worker wrote before it."""
        if self.tests.knows(node.nodeid, node.worker):
            return node
        nodeid = grammar.unglued(node.nodeid)
        is_known = self.tests.knows(nodeid, node.worker)
        return replace(node, nodeid=nodeid) if is_known else node

    def _printed(self, pending: _Pending, line: str) -> Iterator[ParsedItem]:
        """Read a line that a running test printed, or its outcome."""
        alone = grammar.lone_outcome(line)
        if alone is None:
            pending.word = grammar.glued_outcome(line) or pending.word
            self.outside = True
            return
        node = NodeLine(pending.nodeid, alone.word, alone.reason, duration_s=alone.duration_s)
        if alone.word not in grammar.SUBTESTS and not alone.is_marked:
            pending.outcome = node
            return
        yield from self.tests.report(node)
        if alone.word not in grammar.SUBTESTS:
            self._pending = None

    def _settled(self, *, is_silent: bool = False) -> Iterator[ParsedItem]:
        """Yield the running test with the outcome that was seen, or without one."""
        pending, self._pending = self._pending, None
        if pending is None:
            return
        node = pending.outcome
        self._is_unmarked = self._is_unmarked or node is not None
        if node is None and pending.word:
            node = NodeLine(pending.nodeid, pending.word)
        if node is not None:
            yield from self.tests.report(node)
        elif self.fatal:
            reason = "hung" if self.is_hung else "crashed"
            yield from self.tests.crashed(pending.nodeid, reason=reason, message=self.fatal)
        elif not is_silent:
            yield ParsedTest(pending.nodeid, TestOutcome.MISSING)

    def _before(self, line: str) -> None:
        """Read a line before the first section: an announcement, letters, or other text."""
        announced = grammar.collected(line)
        if announced is not None:
            self._announced = announced
            self._is_shared = self._is_shared or not line.startswith("coll")
            return
        letters = grammar.lettered(line) if not self.tests.total else None
        if letters is not None:
            self._unlined.count(letters[1])
            return
        self.outside = True

    def _traceback(self, line: str) -> Iterator[ParsedItem]:
        title = grammar.banner(line, "_") if line.startswith("_") else None
        if title is not None and len(line.rstrip()) >= self.width - 1:
            yield from self._settled_statements()
            self._detail = Detail(title)
        elif self._detail is not None:
            self._detail.add(line)

    def _settled_statements(self) -> Iterator[ParsedItem]:
        detail, self._detail = self._detail, None
        if detail is None or self._place is _Place.PASSES:
            return
        told = detail.parsed(self.tests.failures, is_error=self._place is _Place.ERRORS)
        if told is None:
            return
        self._details += 1
        self._teardowns += told.phase == "teardown"
        if told.phase != "collection":
            yield told
            return
        self._broken, self._is_broken_reported = self._broken + 1, True
        yield _broken(told.name, told.message, told.text)

    def _summary(self, line: str) -> Iterator[ParsedItem]:
        if (skips := grammar.summed_skips(line)) is not None:
            yield from self._skips(*skips)
        elif (found := grammar.summary_line(line)) is not None:
            yield from self._summed(*found)

    def _skips(self, number: int, path: str, reason: str) -> Iterator[ParsedItem]:
        """Yield a module without tests that was skipped as a whole."""
        of_modules = self._announced.skipped if self._announced else 0
        is_left = number == 1 and (self._is_shared or self._skipped < of_modules)
        if is_left and self.tests.total and path not in self.tests.modules:
            self._skipped += 1
            yield ParsedTest(path, TestOutcome.SKIPPED, reason=reason)

    def _summed(self, node: NodeLine, message: str) -> Iterator[ParsedItem]:
        message = message[:MESSAGE_LIMIT]
        if node.word in _BAD_WORDS:
            self.doubts.failed_name = self.doubts.failed_name or node.nodeid
        if node.word == "ERROR" and "::" not in node.nodeid:
            if not self._is_broken_reported:
                self._broken += 1
                yield _broken(node.nodeid, message, "")
        elif not self.tests.total:
            yield from self._unlined.name(node, message)
        elif grammar.SUBTESTS.get(node.word) is TestOutcome.FAILED:
            yield from self.tests.subtest_failed(node.nodeid, message)
        elif not self._details and message and node.word in _BAD_WORDS:
            yield ParsedDetail(node.nodeid, message=message)

    def _leave(self) -> Iterator[ParsedItem]:
        """Yield the results of the sections read so far."""
        yield from self._settled_statements()
        yield from self._settled()
        yield from self.tests.flush()

    def _others(self, counts: dict[str, int] | None) -> Iterator[ParsedItem]:
        """Yield counted tests that have no line of their own."""
        broken = Counter({"error": self._broken})
        if counts is None:
            letters = dict(self._unlined.letters)
            yield from self._unlined.finish(letters, teardowns=0, total=None, aside=Counter())
            return
        teardowns = self._teardowns if self._details else None
        total = self._total(self._announced, counts) if self._announced is not None else None
        if teardowns is None and total is None:
            yield from self._unlined.doubts(counts.get("error", 0) - self._broken)
        yield from self._unlined.finish(counts, teardowns=teardowns, total=total, aside=broken)

    def _modules_skipped(self, counts: dict[str, int] | None) -> int:
        """Return the number of skipped modules; with xdist it is derived from the sum."""
        if not self._is_shared:
            return self._announced.skipped if self._announced else 0
        of_tests = self.tests.seen if self.tests.total else self._unlined.letters
        extra = self.tests.extra["skipped"]
        unseen = 0  # tests whose letters were lost in the output of others
        if self._announced is not None and not self.tests.total and not self.stopped:
            unseen = max(self._announced.items - of_tests.total(), 0)
        return max((counts or {}).get("skipped", 0) - of_tests["skipped"] - extra - unseen, 0)

    def _total(self, announced: AnnouncedTests, counts: dict[str, int] | None) -> int:
        errors = self._broken if self._is_shared else announced.errors
        return announced.items + errors + self._modules_skipped(counts)

    def _tallies(self, footer: PytestFooter | None, extra: Counter[str]) -> Iterator[ParsedItem]:
        counts = footer.counts if footer is not None else None
        if self._announced is not None:
            yield ParsedTally("collected", self._total(self._announced, counts))
        if footer is None:
            return
        if footer.collected is not None:
            if self._announced is None:
                yield ParsedTally("collected", footer.collected, duration_s=footer.duration_s)
            return
        tests = {word: max(n - extra[word], 0) for word, n in footer.counts.items()}
        tests = {word: n for word, n in tests.items() if n}
        yield ParsedTally("footer", sum(tests.values()), tests, footer.duration_s, footer.warnings)
        if footer.subtests or self._parts:
            yield ParsedSubtests(footer.subtests + self._parts)

    def _problems(self) -> Iterator[ParsedProblem]:
        if self.internal:
            yield ParsedProblem("error", f"pytest failed inside itself: {self.internal}")
        if self.refused:
            yield ParsedProblem("error", f"pytest refused: {self.refused}")
        if self.stopped:
            yield ParsedProblem("warning", f"pytest stopped early: {self.stopped}")


def _broken(name: str, message: str, text: str) -> ParsedTest:
    """Return a module that could not be collected, as one test with an error."""
    return ParsedTest(name, TestOutcome.ERROR, reason="collection", message=message, text=text)
