"""The test of pairs: what it must never depend on, and what it does with strange samples."""

from __future__ import annotations

import math
from dataclasses import astuple

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from orchestrator.adapters.statistics import PairedStatistics, _scale
from orchestrator.domain.gate.performance import POWER, PairedComparison

STATISTICS = PairedStatistics()
TURN = st.floats(0.5, 2.0)
PAIRS = st.lists(st.tuples(TURN, TURN), min_size=3, max_size=40)


def compare(subject, baseline, *, direction="lower", margin=0.03, alpha=0.01) -> PairedComparison:
    return STATISTICS.compare(subject, baseline, direction=direction, margin=margin, alpha=alpha)


def turns(pairs: int = 20, *, slower: float = 0.0, noise: float = 0.01, seed: int = 1):
    """Both arms of a benchmark whose subject is so much slower."""
    logs = noise * np.random.default_rng(seed).standard_normal((2, pairs))
    return (np.exp(logs[0]) * (1 + slower)).tolist(), np.exp(logs[1]).tolist()


def arms(pairs):
    return [one for one, _ in pairs], [other for _, other in pairs]


def same(one: PairedComparison, other: PairedComparison, *, digits: int = 10) -> None:
    """Equal in so many digits."""
    assert astuple(one) == pytest.approx(astuple(other), rel=10.0**-digits, abs=10.0**-digits)


@given(PAIRS)
def test_what_is_slower_with_times_is_slower_with_rates(pairs):
    subject, baseline = arms(pairs)
    rates = [1 / one for one in subject], [1 / other for other in baseline]
    same(compare(subject, baseline), compare(*rates, direction="higher"), digits=7)


@given(PAIRS)
def test_exchanging_the_arms_turns_the_answer_round(pairs):
    subject, baseline = arms(pairs)
    there, back = compare(subject, baseline), compare(baseline, subject)
    assert math.log1p(there.slowdown) == pytest.approx(-math.log1p(back.slowdown), abs=1e-9)
    assert 1 + there.low == pytest.approx(1 / (1 + back.high), rel=1e-6, abs=1e-9)


@given(PAIRS, st.floats(1e-6, 1e6))
def test_the_unit_makes_no_difference(pairs, scale):
    subject, baseline = arms(pairs)
    scaled = [one * scale for one in subject], [other * scale for other in baseline]
    same(compare(subject, baseline), compare(*scaled), digits=7)


@given(PAIRS, st.floats(0, 0.5))
def test_being_slower_is_never_less_evidence_of_being_slower(pairs, slower):
    subject, baseline = arms(pairs)
    before = compare(subject, baseline)
    since = compare([one * (1 + slower) for one in subject], baseline)
    assert since.p <= before.p + 1e-9
    assert since.slowdown >= before.slowdown - 1e-9
    assert since.low >= before.low - 1e-9


def test_wild_pairs_say_nothing_and_break_nothing():
    found = compare([2.0, 1.0, 1.0], [0.5, 1.0, 2.0], alpha=0.0005)
    assert found.low < 0 < found.high
    assert found.detectable > 1_000


@given(PAIRS, st.sampled_from([0.1, 0.01, 0.0005]))
@example([(2.0, 0.5), (1.0, 1.0), (1.0, 2.0)], 0.0005)
def test_the_interval_and_the_p_say_the_same(pairs, alpha):
    found = compare(*arms(pairs), alpha=alpha)
    assert found.low <= found.slowdown <= found.high
    assume(abs(found.p - alpha) > 1e-9)
    assert (found.low > 0.03) == (found.p < alpha)


@given(PAIRS)
def test_a_margin_that_is_wider_is_never_easier_to_exceed(pairs):
    subject, baseline = arms(pairs)
    assert compare(subject, baseline, margin=0.05).p >= compare(subject, baseline).p - 1e-12


@given(PAIRS, st.floats(-0.02, 0.02))
def test_a_steady_drift_changes_no_estimate(pairs, per_turn):
    """Over blocks of subject, baseline, baseline, subject it cancels."""
    pairs = pairs[: len(pairs) // 2 * 2]
    assume(len(pairs) >= 4)
    place = np.arange(2 * len(pairs)) % 4
    drift = np.exp(per_turn * np.arange(2 * len(pairs)))
    subject, baseline = (np.array(arm) for arm in arms(pairs))
    drifted = subject * drift[(place == 0) | (place == 3)], baseline * drift[np.isin(place, (1, 2))]
    same(
        compare(subject.tolist(), baseline.tolist()),
        compare(*map(np.ndarray.tolist, drifted)),
        digits=6,
    )


def test_a_drift_would_hide_a_slow_down_from_a_plain_test():
    subject, baseline = turns(slower=0.05)
    drift = np.where(np.arange(20) % 2 == 0, -0.03, 0.03)  # of 3 % a turn
    drifted = (np.array(subject) * np.exp(-drift)).tolist()
    assert compare(drifted, baseline).p < 1e-5


def test_outliers_cost_little():
    subject, baseline = turns(30, slower=0.05)
    clean = compare(subject, baseline)
    for at, factor in ((3, 1.5), (11, 1.3), (20, 1.2)):
        baseline[at] *= factor
    spoilt = compare(subject, baseline)
    assert spoilt.slowdown == pytest.approx(clean.slowdown, abs=0.003)
    assert spoilt.detectable < clean.detectable + 0.005
    assert spoilt.p < 1e-5


@pytest.mark.parametrize("pairs", [4, 5, 8, 30])
def test_the_spread_of_few_pairs_is_not_underestimated(pairs):
    drawn = np.random.default_rng(1).normal(size=(500, pairs))
    spread = np.mean([_scale(one, float(np.median(one))) for one in drawn])
    assert 1.0 < spread < 1.25  # of a distribution with the standard deviation 1


def test_a_metric_without_noise_is_exact():
    same_ratio = compare([103.0] * 5, [100.0] * 5)
    assert (same_ratio.p, same_ratio.low, same_ratio.high) == (
        1.0,
        same_ratio.slowdown,
        same_ratio.slowdown,
    )
    assert same_ratio.slowdown == pytest.approx(0.03)
    slower = compare([103.1] * 5, [100.0] * 5)
    assert (slower.p, slower.detectable) == (0.0, pytest.approx(0.03))


def test_a_coarse_clock_is_no_metric_without_noise():
    subject, baseline = [1.0] * 18 + [1.1, 1.2], [1.0] * 20
    found = compare(subject, baseline)
    assert found.low < found.slowdown < found.high
    assert found.p > 0.01


@pytest.mark.parametrize(
    ("subject", "baseline", "says"),
    [
        ([1.0, 1.0], [1.0, 1.0], "2 pairs of turns; nothing can be said of fewer than 3"),
        ([], [], "0 pairs"),
        ([1.0, 1.0, 1.0], [1.0, 1.0], "3 turns of the subject, 2 of the baseline"),
        ([1.0, 0.0, 1.0], [1.0, 1.0, 1.0], "1 of 6 turns measured no positive number"),
        ([1.0, 1.0, 1.0], [1.0, -1.0, math.nan], "2 of 6 turns"),
        ([1.0, math.inf, 1.0], [1.0, 1.0, 1.0], "1 of 6 turns"),
    ],
)
def test_samples_that_say_nothing_are_refused(subject, baseline, says):
    with pytest.raises(ValueError, match=says):
        compare(subject, baseline)


def test_what_cannot_be_asked_is_refused():
    subject, baseline = turns(5)
    with pytest.raises(ValueError, match="higher or lower, not 'up'"):
        compare(subject, baseline, direction="up")
    with pytest.raises(ValueError, match="a margin of -1"):
        compare(subject, baseline, margin=-1)
    with pytest.raises(ValueError, match="an alpha of 0"):
        compare(subject, baseline, alpha=0)


def test_three_pairs_say_next_to_nothing():
    found = compare(*turns(3, slower=0.05))
    assert found.p > 0.01
    assert found.detectable > 0.2


def test_the_detectable_effect_is_found_as_often_as_it_says():
    found, pairs = 0, 12
    detectable = np.median([compare(*turns(pairs, seed=seed)).detectable for seed in range(400)])
    for seed in range(400):
        found += compare(*turns(pairs, slower=float(detectable), seed=1000 + seed)).p <= 0.01
    assert found / 400 == pytest.approx(POWER, abs=0.03)


def test_p_is_uniform_where_nothing_is_slower_than_the_margin():
    p = [compare(*turns(14, slower=0.03, seed=seed)).p for seed in range(2000)]
    for level in (0.01, 0.05, 0.2, 0.5):
        spread = 4 * math.sqrt(level * (1 - level) / len(p))
        assert np.mean(np.array(p) <= level) == pytest.approx(level, abs=spread)


def test_adjusting_is_benjamini_and_hochberg():
    assert STATISTICS.adjusted([]) == ()
    assert STATISTICS.adjusted([0.01, 0.04, 0.03]) == pytest.approx((0.03, 0.04, 0.04))
    assert STATISTICS.adjusted([0.02]) == (0.02,)


def test_the_same_samples_give_the_same_answer():
    one, other = PairedStatistics(), PairedStatistics()
    subject, baseline = turns(25, slower=0.02)
    asked = {"direction": "lower", "margin": 0.03, "alpha": 0.01}
    assert one.compare(subject, baseline, **asked) == other.compare(subject, baseline, **asked)
