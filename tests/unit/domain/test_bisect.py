"""Halving between good and bad."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.domain.bisect import (
    FoundRevisions,
    InconclusiveSearch,
    RevisionResult,
    TryRevision,
    answer_of,
    next_step,
)

Tell = Callable[[int], RevisionResult]


def walked(
    places: int, tell: Tell
) -> tuple[FoundRevisions | InconclusiveSearch, list[TryRevision]]:
    """Search to the end; the last revision is known to fail."""
    answers = {places - 1: [RevisionResult.BAD]}
    tries: list[TryRevision] = []
    while isinstance(step := next_step(places, answers), TryRevision):
        tries.append(step)
        assert len(tries) <= 4 * places, "it comes to an end"
        answers.setdefault(step.place, []).append(tell(step.place))
    return step, tries


def breaks_at(place: int) -> Tell:
    return lambda asked: RevisionResult.BAD if asked >= place else RevisionResult.GOOD


@given(st.data(), st.integers(2, 300))
def test_any_commit_is_found(data, places):
    broken = data.draw(st.integers(1, places - 1))
    found, tries = walked(places, breaks_at(broken))
    assert found == FoundRevisions(broken - 1, broken)
    halves = [step for step in tries if step.why == "halve"]
    assert len(halves) <= math.ceil(math.log2(places - 1))


@given(st.data(), st.integers(2, 120))
def test_with_revisions_that_do_not_build_the_range_still_holds_the_commit(data, places):
    broken = data.draw(st.integers(1, places - 1))
    inner = st.integers(1, places - 2) if places > 2 else st.nothing()
    skipped = data.draw(st.sets(inner)) if places > 2 else set()

    def tell(asked: int) -> RevisionResult:
        return RevisionResult.SKIP if asked in skipped else breaks_at(broken)(asked)

    found, tries = walked(places, tell)
    assert isinstance(found, FoundRevisions)
    assert found.last_good < broken <= found.first_bad
    assert set(range(found.last_good + 1, found.first_bad)) <= skipped
    assert found.is_exact or skipped
    asked = [step.place for step in tries if step.why == "halve"]
    assert len(asked) == len(set(asked))


def test_both_that_decide_are_asked_twice():
    _, tries = walked(65, breaks_at(20))
    assert [step.place for step in tries if step.why == "confirm"] == [19, 20]


def test_an_answer_that_cannot_be_repeated_decides_nothing():
    asked: list[int] = []

    def tell(place: int) -> RevisionResult:
        asked.append(place)
        return RevisionResult.SKIP if asked.count(place) > 1 else breaks_at(5)(place)

    found, tries = walked(9, tell)
    assert isinstance(found, InconclusiveSearch)
    assert "could not be tried again" in found.reason
    assert [step.why for step in tries].count("confirm") == 2


def test_a_revision_that_answers_both_ways_ends_it():
    told = iter([RevisionResult.GOOD, RevisionResult.BAD, RevisionResult.GOOD, RevisionResult.GOOD])
    found, _ = walked(3, lambda place: next(told))
    assert isinstance(found, InconclusiveSearch)
    assert "flaky" in found.reason


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (RevisionResult.BAD, "fails here too"),
        (RevisionResult.SKIP, "could not be tried"),
        (RevisionResult.FLAKY, "flaky"),
    ],
)
def test_a_first_revision_that_does_not_pass_is_no_ground_to_begin_from(answer, said):
    found, tries = walked(9, lambda place: answer)
    assert isinstance(found, InconclusiveSearch)
    assert said in found.reason
    assert [step.why for step in tries] == ["check"]


def test_a_last_revision_that_passes_now():
    found = next_step(3, {0: [RevisionResult.GOOD], 2: [RevisionResult.GOOD]})
    assert isinstance(found, InconclusiveSearch)


@pytest.mark.parametrize(
    ("times", "answer"),
    [
        ([{"a": "passed"}, {"a": "passed"}], RevisionResult.GOOD),
        ([{"a": "failed"}, {"a": "error"}], RevisionResult.BAD),
        ([{"a": "failed", "b": "passed"}] * 2, RevisionResult.BAD),
        ([{"a": "passed"}, {"a": "failed"}], RevisionResult.FLAKY),
        ([{"a": "absent"}] * 2, RevisionResult.SKIP),
        ([{"a": "passed", "b": "skipped"}] * 2, RevisionResult.SKIP),
        ([], RevisionResult.SKIP),
    ],
)
def test_what_a_revision_says(times, answer):
    assert answer_of(times) is answer
