"""What the history of a test says of its reliability."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.domain.flaky import ResultPoint, counted, flaky_evidence, wilson_lower
from orchestrator.domain.outcome import TestOutcome

WORDS = {"p": TestOutcome.PASSED, "f": TestOutcome.FAILED, "e": TestOutcome.ERROR}
WORDS |= {"s": TestOutcome.SKIPPED, "m": TestOutcome.MISSING}


def history(results, platform="l4", build="same", earlier=()):
    return [
        ResultPoint(f"r{i}", "1.0", build, platform, WORDS[letter], earlier)
        for i, letter in enumerate(results)
    ]


def test_passing_on_retry_in_the_same_cell_is_certain():
    found = flaky_evidence(history("p", earlier=(TestOutcome.FAILED, TestOutcome.ERROR)))
    assert (found.passed_on_retry, found.is_certain) == (1, True)
    again = flaky_evidence(history("f", earlier=(TestOutcome.FAILED,)))
    assert (again.passed_on_retry, again.is_certain) == (0, False)


@pytest.mark.parametrize(
    ("results", "flips", "failures", "rate"),
    [
        ("pppp", 0, 0, Fraction(0)), ("pfpfp", 4, 2, Fraction(1)), ("pffp", 2, 2, Fraction(2, 3)),
        ("ppfffpp", 0, 0, Fraction(0)), ("ppfefpfp", 2, 1, Fraction(1, 2)),
        ("psmpfsp", 2, 1, Fraction(2, 3)), ("ffff", 0, 0, None), ("p", 0, 0, None),
        ("", 0, 0, None),
    ],
)  # fmt: skip
def test_flips_count_and_breaks_do_not(results, flips, failures, rate):
    found = flaky_evidence(history(results))
    found_rate = Fraction(found.flips, found.chances) if found.chances else None
    assert (found.flips, found.failures, found_rate) == (flips, failures, rate)


def test_platforms_are_weighed_apart():
    both = [go for pair in zip(history("ppp"), history("fff", "tpu"), strict=True) for go in pair]
    found = flaky_evidence(both)
    assert (found.flips, found.failures, found.results, found.mixed_builds) == (0, 0, 3, 0)


def _passed(go):
    return go.outcome is TestOutcome.PASSED


def test_a_test_that_never_passed_on_a_platform_is_no_flake_there():
    never = flaky_evidence([*history("ff"), *history("ppp", "tpu"), *history("e", "a10g")])
    assert (never.failures, never.results, never.min_failure_rate) == (0, 3, 0.0)
    goes = counted([*history("ff"), *history("pfp", "tpu"), *history("ppfffp", "a10g")])
    assert sorted((go.platform, go.outcome.word) for go in goes if not _passed(go)) == [
        ("tpu", "failed")
    ]
    once = flaky_evidence(history("ffp"))
    assert (once.failures, once.results) == (2, 3)
    assert once.min_failure_rate > 0


def test_both_with_one_build_on_one_platform():
    found = flaky_evidence(history("pfp"))
    assert (found.mixed_builds, found.flips, found.failures) == (1, 2, 1)


def test_a_test_that_another_build_mended_is_no_flake():
    goes = [*history("pp", build="a"), *history("f", build="broken"), *history("pp", build="b")]
    found = flaky_evidence(goes)
    assert (found.mixed_builds, found.flips, found.failures, found.results) == (0, 0, 0, 4)
    assert found.min_failure_rate == 0.0


def test_the_lower_bound_ranks_much_evidence_above_little():
    assert wilson_lower(1, 10) == pytest.approx(0.01788, abs=1e-4)
    assert wilson_lower(10, 100) > wilson_lower(1, 10) > wilson_lower(1, 100) > 0
    assert wilson_lower(0, 10) == wilson_lower(0, 0) == 0.0


@given(st.integers(0, 500), st.integers(0, 500))
def test_the_bound_is_below_the_rate(hits, more):
    of = hits + more
    bound = wilson_lower(hits, of)
    assert 0 <= bound <= (hits / of if of else 0) + 1e-12


@given(st.text("pfesm", max_size=60))
def test_any_history_can_be_weighed(results):
    found = flaky_evidence(history(results))
    assert 0 <= found.failures <= found.results
    assert found.flips <= found.chances
