"""The tests of a session without ``-v``: counted by letters, named only where they went wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from orchestrator.adapters.dialects.pytest_text_lines import (
    LETTERS,
    OUTCOMES,
    SUBTESTS,
    NodeLine,
)
from orchestrator.domain.outcome import TestOutcome
from orchestrator.domain.parsed_results import ParsedProblem, ParsedTest, ParsedUnnamedTests
from orchestrator.domain.units import plural

NAMED_LIMIT = 50_000
_BEFORE_TEARDOWN = ("passed", "skipped", "xfailed", "xpassed")


@dataclass(slots=True)
class _Named:
    """A test of the short summary; it has a line there for each report of a kind."""

    outcomes: list[TestOutcome] = field(default_factory=list)
    message: str = ""
    is_by_subtest: bool = True
    """Only its subtests are told; its own report is not among them."""

    @property
    def errors_beside(self) -> int:
        """Its errors that the file counts beside another report of the same test."""
        errors = self.outcomes.count(TestOutcome.ERROR)
        return errors if errors < len(self.outcomes) else max(errors - 1, 0)


@dataclass(slots=True)
class CountedTests:
    """Tests that have no lines of their own."""

    letters: Counter[str] = field(default_factory=Counter)
    """Reports by their outcome's word."""
    extra: Counter[str] = field(default_factory=Counter)
    """Reports beside the one that decides, as far as the summary names them."""
    _named: dict[str, _Named] = field(default_factory=dict)
    _told: Counter[str] = field(default_factory=Counter)
    _doubled: int = 0
    """Errors of named tests that have another report, too."""

    def count(self, letters: str) -> None:
        """A row of letters."""
        for letter, outcome in LETTERS.items():
            self.letters[outcome.word] += letters.count(letter)

    def name(self, line: NodeLine, message: str) -> Iterator[ParsedTest]:
        """A line of the short summary."""
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
        """Say that tests may be counted twice, where nothing tells setups from teardowns."""
        known = sum(test.errors_beside for test in self._named.values())
        unsure = errors - known - self._doubled
        if unsure > 0:
            yield ParsedProblem(
                "warning",
                f"{plural(unsure, 'error')} may be of a teardown, whose test pytest counts as"
                " passed too: without tracebacks and the number of tests nothing tells; run it"
                " without -q or --tb=no",
            )

    def finish(
        self,
        counts: Mapping[str, int],
        *,
        teardowns: int | None,
        total: int | None,
        aside: Counter[str],
    ) -> Iterator[ParsedTest | ParsedUnnamedTests]:
        """The named tests, and how many others there are.

        Args:
            counts: The reports by outcome, of the footer or of the letters.
            teardowns: Errors of tests that have another report as well; None: nothing tells.
            total: Tests, as announced; it tells of errors at teardown where nothing else does.
            aside: Tests that are told elsewhere: modules that could not be collected.
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
        rest.subtract(self._told)
        rest.subtract(aside)
        unnamed = {word: number for word, number in rest.items() if number > 0}
        if unnamed:
            yield ParsedUnnamedTests(unnamed)

    def _hide(self, number: int, counts: Mapping[str, int]) -> None:
        """Tests that had another report before their error at teardown: mostly they passed."""
        for word in _BEFORE_TEARDOWN:
            known = self.extra[word] + self._told[word]
            taken = min(number, max(counts.get(word, 0) - known, 0))
            self.extra[word] += taken
            number -= taken

    def _tests(self) -> Iterator[ParsedTest]:
        named, self._named = self._named, {}
        for nodeid, test in named.items():
            worst = max(test.outcomes)
            self.extra.update(outcome.word for outcome in test.outcomes)
            self.extra[worst.word] -= 1
            self._doubled += test.errors_beside
            if test.is_by_subtest:
                self.extra["passed"] += 1
            self._told[worst.word] += 1
            yield ParsedTest(nodeid, worst, message=test.message)
