from __future__ import annotations

from dataclasses import fields
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.domain.cell import run_outcome
from orchestrator.domain.outcome import EXIT_CODES, Counts, Outcome, TestOutcome, worst

NUMBERS = st.integers(0, 1000)
COUNTS = st.builds(Counts, **{field.name: NUMBERS for field in fields(Counts)})
ORDER = [
    Outcome.PASSED, Outcome.NOT_AVAILABLE, Outcome.CANCELLED, Outcome.ERRORED, Outcome.TIMED_OUT,
    Outcome.FAILED,
]  # fmt: skip


@given(COUNTS)
def test_the_pass_rate_is_of_what_was_judged(counts: Counts) -> None:
    judged = counts.passed + counts.failed + counts.error
    assert counts.pass_rate == (Fraction(counts.passed, judged) if judged else None)


@given(COUNTS, COUNTS)
def test_counts_add_up(a: Counts, b: Counts) -> None:
    assert (a + b).collected == a.collected + b.collected
    assert (a + b).bad == a.bad + b.bad
    assert Counts(**a.as_dict()) == a


def test_every_test_outcome_is_counted_by_its_word() -> None:
    counts = Counts.from_tally(dict.fromkeys(TestOutcome, 1))
    assert set(counts.as_dict().values()) == {1}


@given(st.lists(st.sampled_from(ORDER), min_size=1))
def test_the_worst_is_the_most_severe(outcomes: list[Outcome]) -> None:
    assert worst(outcomes) is max(outcomes, key=ORDER.index)
    assert worst([*outcomes, Outcome.NOT_RUN]) is worst(outcomes)
    assert run_outcome([(outcome, False) for outcome in outcomes]) is worst(outcomes)


def test_nothing_has_no_worst() -> None:
    assert worst([]) is None
    assert worst([Outcome.NOT_RUN]) is None


def test_an_optional_platform_counts_only_where_it_was_available() -> None:
    missing, passed = Outcome.NOT_AVAILABLE, Outcome.PASSED
    assert run_outcome([(missing, True), (passed, False)]) is passed
    assert run_outcome([(missing, False), (passed, False)]) is missing
    assert run_outcome([(missing, True), (missing, True)]) is missing
    assert run_outcome([(Outcome.FAILED, True), (passed, False)]) is Outcome.FAILED


def test_every_outcome_of_a_run_has_its_exit_code() -> None:
    assert set(EXIT_CODES) == set(Outcome) - {Outcome.NOT_RUN}
    assert [outcome for outcome, code in EXIT_CODES.items() if code == 0] == [Outcome.PASSED]


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        (Counts(), ""),
        (Counts(skipped=29), "no test passed: 29 skipped"),
        (
            Counts(skipped=1, xfailed=2, xpassed=3),
            "no test passed: 1 skipped, 2 failed as expected, 3 passed unexpectedly",
        ),
        (Counts(passed=1, skipped=29), ""),
        (Counts(failed=1, skipped=29), ""),
        (Counts(missing=1, skipped=29), ""),
    ],
)
def test_tests_that_were_all_passed_over_are_said_to_be(counts: Counts, said: str) -> None:
    assert counts.nothing_passed == said
