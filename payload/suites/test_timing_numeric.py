"""The bench core on clocks and samples with known times and ratios."""

from __future__ import annotations

import math
import random
import statistics
import time

import pytest
import torch

from suites.numerics import Clock
from torchbridge.timing import (
    Comparison,
    Spread,
    attained,
    compare,
    median_interval,
    timed,
    warm_up,
)

CPU = torch.device("cpu")


@pytest.fixture
def clock() -> Clock:
    """Return a clock that does not start at zero."""
    return Clock(100.0)


class TestTimed:
    @pytest.mark.parametrize("seconds", [0.0, 1e-6, 0.25, 3600.0])
    def test_exactly_what_the_work_takes(self, clock, seconds):
        assert timed(clock.work(seconds), CPU, clock=clock) == pytest.approx(seconds, abs=1e-12)

    def test_by_the_real_clock(self):
        assert timed(lambda: time.sleep(0.02), CPU) >= 0.02


class TestWarmUp:
    @pytest.mark.parametrize(
        ("seconds", "calls"),
        [
            ((1.0,), 3),
            ((9.0, 1.0), 4),
            ((9.0, 5.0, 2.0, 1.0), 6),
            ((1.0, 1.1, 1.05), 3),  # within a tenth of the least
            ((1.0, 1.11, 1.0, 1.0, 1.0), 5),
            ((1.0, 0.5, 1.0, 0.5, 0.5), 6),
            ((0.0,), 3),
        ],
    )
    def test_until_steady(self, clock, seconds, calls):
        assert warm_up(clock.work(*seconds), CPU, budget_s=100.0, clock=clock) == calls

    @pytest.mark.parametrize(("budget_s", "calls"), [(0.5, 2), (6.0, 3), (14.9, 4), (15.1, 5)])
    def test_budget_ends_what_never_settles(self, clock, budget_s, calls):
        doubling = clock.work(1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
        assert warm_up(doubling, CPU, budget_s=budget_s, clock=clock) == calls
        assert clock.now == 100.0 + 2.0**calls - 1

    @pytest.mark.parametrize(("budget_s", "at_least"), [(0.0, 1), (0.0, 7), (99.0, 4), (99.0, 6)])
    def test_at_least_so_often(self, clock, budget_s, at_least):
        limits = {"budget_s": budget_s, "at_least": at_least, "clock": clock}
        assert warm_up(clock.work(1.0), CPU, **limits) == at_least


class TestCompare:
    def run(self, clock, subject, baseline, **settings) -> Comparison:
        settings = {"device": CPU, "clock": clock, "budget_s": 1e9} | settings
        return compare(subject, baseline, **settings)

    def test_samples_belong_to_their_arms(self, clock):
        result = self.run(clock, clock.work(1, 4, 2, 8), clock.work(10, 40, 20, 80), quads=2)
        assert (result.subject_s, result.baseline_s) == ((1, 4, 2, 8), (10, 40, 20, 80))
        assert (result.ratio.median, result.ratio.quads) == (pytest.approx(10), 2)

    @pytest.mark.parametrize(("budget_s", "quads"), [(0, 3), (20, 4), (60, 11), (999, 20)])
    def test_budget(self, clock, budget_s, quads):
        arms = clock.work(1.0), clock.work(2.0)  # six seconds a quad
        result = self.run(clock, *arms, quads=20, at_least=3, budget_s=budget_s)
        assert result.ratio.quads == quads


class TestMedianInterval:
    @pytest.mark.parametrize(
        ("count", "confidence", "ends"),
        [(6, 0.95, (1, 6)), (8, 0.99, (1, 8)), (9, 0.95, (2, 8)), (20, 0.95, (6, 15))],
    )
    def test_known_ranks(self, count, confidence, ends):
        values = random.Random(count).sample(range(1, count + 1), count)
        assert median_interval(values, confidence) == ends

    @pytest.mark.parametrize("count", [1, 2, 5, 7, 30, 301, 2000])
    def test_sure_enough_and_no_wider_than_needed(self, count):
        for confidence in (0.8, 0.95, 0.99):
            low, high = median_interval(range(count), confidence)
            assert low == count - 1 - high
            inside = [math.comb(count, k) for k in range(low + 1, count - low)]
            assert sum(inside) / 2**count == pytest.approx(attained(count, confidence))
            narrower = sum(inside[1:-1]) / 2**count
            assert low == 0 or attained(count, confidence) >= confidence - 1e-9
            assert narrower < confidence or len(inside) <= 2

    def test_holds_the_median(self):
        rng = random.Random(9)
        for count in range(1, 40):
            values = [rng.lognormvariate(0, 1) for _ in range(count)]
            low, high = median_interval(values)
            assert low <= statistics.median(values) <= high

    @pytest.mark.parametrize(("values", "confidence"), [([], 0.95), ([1.0], 0.0), ([1.0], 1.0)])
    def test_what_makes_no_sense(self, values, confidence):
        with pytest.raises(ValueError, match="no interval"):
            median_interval(values, confidence)


class TestSpread:
    @pytest.mark.parametrize(
        ("samples", "expected"),
        [
            ([1, 2, 3, 4, 5, 6, 7, 8, 9], (5, 3, 7)),
            ([1, 2, 3, 4], (2.5, 1.75, 3.25)),
            ([1.0, 1.0, 1.0, 1.0, 1000.0], (1, 1, 1)),  # a mean would be 200.8
            ([2.0, 1.0], (1.5, 1.25, 1.75)),
            ([-3.0], (-3, -3, -3)),
        ],
    )
    def test_known(self, samples, expected):
        spread = Spread.from_samples(samples)
        assert (spread.median, spread.low, spread.high) == expected

    def test_nothing_has_no_spread(self):
        with pytest.raises(statistics.StatisticsError):
            Spread.from_samples([])
