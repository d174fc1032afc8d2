"""Bisection: finds the revision that broke tests, between a passing and a failing one.

Revision 0 is expected to pass; the last revision is known to fail. The search halves the range
between the two, and leaves out revisions that cannot be built. It repeats the tests at the two
revisions that decide. It stops without a result if one revision both passes and fails.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from orchestrator.domain.retests import tally_words

CONFIRMED = 2
"""Number of equal results that each of the two deciding revisions needs."""


class RevisionResult(StrEnum):
    """Result of the tests at one revision."""

    GOOD = "good"
    BAD = "bad"
    SKIP = "skip"
    """The revision cannot be built, or does not have these tests."""
    FLAKY = "flaky"
    """The tests pass and fail at the same revision."""


Answers = Mapping[int, Sequence[RevisionResult]]
"""Results by the position of the revision, from 0, in the order of arrival."""


@dataclass(frozen=True, slots=True)
class BisectRange:
    """The revisions and tests of a bisection."""

    url: str
    """URL of the repository."""
    good: str
    """Revision of the last passing run; empty if there is none."""
    good_run: str
    bad: str
    tests: tuple[str, ...]
    """Keys of the failing tests."""


@dataclass(frozen=True, slots=True)
class TryRevision:
    """The step to run the tests at one revision."""

    place: int
    why: str
    """``check``: whether revision 0 passes; ``halve``: halve the range; ``confirm``: repeat a
    result."""


@dataclass(frozen=True, slots=True)
class FoundRevisions:
    """The result of the search: the last passing and the first failing revision.

    Revisions between the two could not be tested.
    """

    last_good: int
    first_bad: int

    @property
    def is_exact(self) -> bool:
        """Whether the two revisions are neighbours, so that exactly one change is to blame."""
        return self.first_bad - self.last_good == 1


@dataclass(frozen=True, slots=True)
class InconclusiveSearch:
    """The end of a search without a result."""

    reason: str


def next_step(places: int, answers: Answers) -> TryRevision | FoundRevisions | InconclusiveSearch:
    """Return the next step of the search.

    Args:
        places: Number of revisions, with the good and the bad one; at least 2.
        answers: The known results. Those of the last revision may be missing.
    """
    odd = [place for place, said in answers.items() if _is_torn(said)]
    if odd:
        return InconclusiveSearch(
            f"revision {odd[0]} both fails and passes: these tests are flaky there"
        )
    if 0 not in answers:
        return TryRevision(0, "check")
    if RevisionResult.GOOD not in answers[0]:
        return InconclusiveSearch(_no_ground(answers[0]))
    if places - 1 in answers and RevisionResult.GOOD in answers[places - 1]:
        return InconclusiveSearch("the last revision passes now: nothing is broken there any more")
    return _search(places, answers)


def _no_ground(results: Sequence[RevisionResult]) -> str:
    if RevisionResult.BAD in results:
        return "the first revision fails here too: no revision between is to blame"
    return "the first revision could not be tried, so there is nothing to begin from"


def _search(places: int, answers: Answers) -> TryRevision | FoundRevisions | InconclusiveSearch:
    good, bad = _bounds(places, answers)
    between = [
        place for place in range(good + 1, bad) if RevisionResult.SKIP not in answers.get(place, ())
    ]
    if between:
        middle = (good + bad) / 2
        return TryRevision(min(between, key=lambda place: (abs(place - middle), place)), "halve")
    for place in (good, bad):
        said = answers.get(place, ())
        if len([answer for answer in said if answer is not RevisionResult.SKIP]) < CONFIRMED:
            if said.count(RevisionResult.SKIP) >= CONFIRMED:
                return InconclusiveSearch(
                    f"revision {place}, which decides, could not be tried again"
                )
            return TryRevision(place, "confirm")
    return FoundRevisions(good, bad)


def _bounds(places: int, answers: Answers) -> tuple[int, int]:
    """Return the positions of the first failing revision and of the last passing one before it."""
    bad = min((p for p, said in answers.items() if RevisionResult.BAD in said), default=places - 1)
    good = max(p for p, said in answers.items() if RevisionResult.GOOD in said and p < bad)
    return good, bad


def _is_torn(results: Sequence[RevisionResult]) -> bool:
    return RevisionResult.FLAKY in results or (
        RevisionResult.GOOD in results and RevisionResult.BAD in results
    )


def answer_of(outcomes: Sequence[Mapping[str, str]]) -> RevisionResult:
    """Return the result of a revision from the outcomes of its tests; one mapping per repetition.

    The revision is bad if a test fails every time, and good if every test passes every time.
    """
    words: dict[str, list[str]] = {}
    for time in outcomes:
        for key, word in time.items():
            words.setdefault(key, []).append(word)
    tallies = [tally_words(each) for each in words.values()]
    if any(found.always_failed(1) for found in tallies):
        return RevisionResult.BAD
    if any(found.passed and found.failed for found in tallies):
        return RevisionResult.FLAKY
    if tallies and all(found.always_passed(1) for found in tallies):
        return RevisionResult.GOOD
    return RevisionResult.SKIP
