"""Change points of series: where, how much, and when they prove nothing."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.adapters.statistics import FLOOR, SIDE, StepDetector

DETECTOR = StepDetector()


def series(*levels: tuple[int, float], noise: float = 0.01, seed: int = 1) -> list[float]:
    """So many values on each level."""
    logs = np.concatenate([np.full(count, np.log(level)) for count, level in levels])
    return np.exp(logs + noise * np.random.default_rng(seed).standard_normal(len(logs))).tolist()


def places(values, environments=()):
    return [change.index for change in DETECTOR.detect(values, environments).changes]


def test_a_step_that_stays_is_told_of_with_its_levels():
    trend = DETECTOR.detect(series((40, 100.0), (12, 105.0)))
    (change,) = trend.changes
    assert change.index == 40
    assert (change.before, change.after) == (
        pytest.approx(100, rel=0.01),
        pytest.approx(105, rel=0.01),
    )
    assert change.change == pytest.approx(0.05, abs=0.01)
    assert change.p <= 0.01
    assert not trend.is_noisy


def test_steps_up_and_down_are_all_found():
    assert places(series((30, 100.0), (15, 110.0), (20, 95.0), (15, 100.0))) == [30, 45, 65]


def test_one_and_two_bad_nights_are_no_step():
    for bad in (1, 2):
        values = series((60, 100.0))
        values[30 : 30 + bad] = [150.0] * bad
        values[-bad:] = [150.0] * bad
        assert places(values) == []


def test_a_step_is_seen_after_three_nights_where_it_is_large():
    assert places(series((60, 100.0), (3, 120.0))) == [60]
    assert places(series((60, 100.0), (2, 120.0))) == []


def test_a_certain_step_below_the_floor_is_not_told_of():
    assert places(series((60, 100.0), (60, 101.5), noise=0.001)) == []
    assert places(series((60, 100.0), (60, 103.0), noise=0.001)) == [60]


def test_a_metric_without_noise_steps_exactly():
    trend = DETECTOR.detect([512.0] * 10 + [540.0] * 4)
    assert [change.index for change in trend.changes] == [10]
    assert trend.autocorrelation == 0.0
    assert not trend.is_noisy


@pytest.mark.parametrize("values", [[], [1.0], [1.0, 2.0] * 3, [7.0] * 40])
def test_few_values_and_constant_ones_have_no_step(values):
    assert places(values) == []


def test_a_series_that_wanders_is_called_noisy():
    steps = np.random.default_rng(3).standard_normal(80)
    walk = np.exp(0.02 * np.cumsum(steps) / 3).tolist()
    trend = DETECTOR.detect(walk)
    assert trend.is_noisy
    assert trend.autocorrelation is not None
    assert trend.autocorrelation > 0.4
    assert "wanders by itself" in trend.doubts[0]


def test_a_step_alone_is_no_wandering():
    trend = DETECTOR.detect(series((40, 100.0), (40, 120.0)))
    assert trend.autocorrelation is not None
    assert abs(trend.autocorrelation) < 0.26
    assert trend.doubts == ()


@pytest.mark.parametrize(("since", "doubted"), [(40, True), (42, True), (38, True), (30, False)])
def test_an_environment_that_changed_at_the_step_is_a_doubt(since, doubted):
    values = series((40, 100.0), (12, 110.0))
    environments = ["a"] * since + ["b"] * (52 - since)
    trend = DETECTOR.detect(values, environments)
    (change,) = trend.changes
    assert (change.environment_changed, trend.is_noisy) == (doubted, doubted)
    assert any("changed at the change point" in doubt for doubt in trend.doubts) == doubted


def test_an_environment_that_nobody_knows_is_no_doubt():
    values = series((40, 100.0), (12, 110.0))
    assert not DETECTOR.detect(values, [""] * 52).is_noisy
    assert not DETECTOR.detect(values, ["a"] * 39 + [""] * 3 + ["a"] * 10).is_noisy


def test_values_without_ratios_are_not_judged():
    for bad in (0.0, -1.0, float("nan"), float("inf")):
        trend = DETECTOR.detect([*series((20, 100.0)), bad])
        assert (trend.changes, trend.autocorrelation) == ((), None)
        assert "not positive" in trend.doubts[0]


def test_every_value_has_one_environment():
    with pytest.raises(ValueError, match="1 environments of 2 values"):
        DETECTOR.detect([1.0, 2.0], ["a"])


@given(st.lists(st.floats(0.1, 10.0), max_size=60), st.floats(1e-3, 1e3))
def test_any_series_has_an_answer_and_the_unit_is_not_in_it(values, scale):
    trend = DETECTOR.detect(values)
    index = [change.index for change in trend.changes]
    edges = [0, *index, len(values)]
    assert index == sorted(set(index))
    assert all(after - before >= SIDE for before, after in pairwise(edges)) or not index
    assert all(0 < change.p <= 0.01 for change in trend.changes)
    assert trend == DETECTOR.detect(values)
    scaled = DETECTOR.detect([value * scale for value in values])
    assert [change.index for change in scaled.changes] == index


@given(st.floats(0.03, 0.5), st.integers(5, 30), st.integers(5, 30))
def test_what_is_reported_is_beyond_the_floor(step, before, after):
    values = [1.0] * before + [1.0 + step] * after
    for change in DETECTOR.detect(values).changes:
        assert abs(change.change) >= FLOOR
