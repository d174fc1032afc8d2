"""The interval of the ratio has its claimed coverage on noise with a known ratio; and its limits.

Each function of noise returns logarithms of factors of the times, in chronological order. The
true ratio is 1.1. Coverage is counted over many experiments.
"""

from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pytest

from torchbridge.bench.outcome import Sample
from torchbridge.bench.run import Limits
from torchbridge.timing import QUAD, SWAPPED, Ratio, attained, order, quad_ratios

TRUTH = 1.1
EXPERIMENTS = 1500


def arms_in_order(quads: int) -> list[str]:
    """Return the arm of each sample."""
    return [arm for quad in range(quads) for arm in order(quad)]


def iid(rng: np.random.Generator, count: int) -> np.ndarray:
    """Return independent normal noise of 5 %."""
    return rng.normal(0.0, 0.05, count)


def heavy(rng: np.random.Generator, count: int) -> np.ndarray:
    """Return Cauchy noise, which has no finite variance."""
    return 0.01 * rng.standard_cauchy(count)


def hiccups(rng: np.random.Generator, count: int) -> np.ndarray:
    """Return noise in which 15 % of the samples take up to ten times as long."""
    late = rng.random(count) < 0.15
    return rng.normal(0.0, 0.01, count) + late * rng.uniform(0.0, math.log(10), count)


def drift(rng: np.random.Generator, count: int) -> np.ndarray:
    """Return noise that slows the machine down to 1.6 times, by a slope and a step."""
    return iid(rng, count) + np.linspace(0.0, 0.4, count) + 0.1 * (np.arange(count) > count / 3)


def autocorrelated(rng: np.random.Generator, count: int) -> np.ndarray:
    """Return noise that is correlated over about 50 samples, and larger than a sample's own."""
    noise, level = rng.normal(0.0, 0.02, count), np.empty(count)
    level[0] = rng.normal(0.0, 0.2)
    for n in range(1, count):
        level[n] = 0.98 * level[n - 1] + rng.normal(0.0, 0.2 * math.sqrt(1 - 0.98**2))
    return noise + level


def neighbour(rng: np.random.Generator, count: int) -> np.ndarray:
    """Return noise in which another process halves the speed for stretches of about 20 samples."""
    switches = rng.random(count) < 1 / 20
    busy = (np.cumsum(switches) + rng.integers(2)) % 2
    return rng.normal(0.0, 0.03, count) + math.log(2) * busy


HONEST = (iid, heavy, hiccups, drift, autocorrelated, neighbour)


def ratios_of(noise: np.ndarray, favour: float = 0.0) -> tuple[float, ...]:
    """Return the core's ratios for this noise; the baseline takes 1.1 times as long.

    `favour` is added to the logarithm of the baseline's times.
    """
    arms = arms_in_order(len(noise) // 4)
    truth = np.array([math.log(TRUTH) + favour if arm == "baseline" else 0.0 for arm in arms])
    return quad_ratios(arms, np.exp(noise + truth).tolist())


def coverage(machine, quads: int, confidence: float, seed: int = 1) -> float:
    """Return the share of experiments whose interval contains the true ratio."""
    rng, covered = np.random.default_rng(seed), 0
    for _ in range(EXPERIMENTS):
        ratio = Ratio.from_quads(ratios_of(machine(rng, 4 * quads)), confidence)
        covered += ratio.low <= TRUTH <= ratio.high
    return covered / EXPERIMENTS


class TestQuads:
    def test_order(self):
        assert [order(n) for n in range(4)] == [QUAD, SWAPPED, QUAD, SWAPPED]
        first = [arm for n in range(8) for arm in order(n)]
        assert first.count("subject") == first.count("baseline") == 16
        followed = list(itertools.pairwise(first))  # both arms follow themselves equally often
        assert followed.count(("subject",) * 2) == followed.count(("baseline",) * 2) == 4

    def test_ratio_is_baseline_over_subject(self):
        assert quad_ratios(QUAD, [1.0, 2.0, 2.0, 1.0]) == pytest.approx((2.0,))
        assert quad_ratios(SWAPPED, [2.0, 1.0, 1.0, 2.0]) == pytest.approx((2.0,))

    def test_a_slope_cancels(self):
        seconds = [1.02**n for n in range(8)]
        assert quad_ratios(QUAD + SWAPPED, seconds) == pytest.approx((1.0, 1.0))

    def test_half_a_quad_is_left_out(self):
        assert quad_ratios(QUAD + QUAD[:2], [1.0] * 6) == (1.0,)
        assert quad_ratios((), ()) == ()

    def test_three_of_one_arm_are_no_quad(self):
        with pytest.raises(ValueError, match="samples 4 to 7 are no quad"):
            quad_ratios(QUAD + ("subject",) * 3 + ("baseline",), [1.0] * 8)

    def test_swapped_arms_give_the_inverse(self):
        rng = random.Random(3)
        seconds = [rng.uniform(1, 2) for _ in range(40)]
        arms = arms_in_order(10)
        other = ["subject" if arm == "baseline" else "baseline" for arm in arms]
        one, two = (
            Ratio.from_quads(quad_ratios(arms, seconds)),
            Ratio.from_quads(quad_ratios(other, seconds)),
        )
        assert (1 / two.high, 1 / two.low) == pytest.approx((one.low, one.high))


class TestCoverage:
    @pytest.mark.parametrize("machine", HONEST, ids=lambda one: one.__name__)
    @pytest.mark.parametrize(("quads", "confidence"), [(8, 0.95), (30, 0.99)])
    def test_as_often_as_it_says(self, machine, quads, confidence):
        stray = 4 * math.sqrt(confidence * (1 - confidence) / EXPERIMENTS)
        sure = attained(quads, confidence)
        assert sure >= confidence
        assert confidence - stray <= coverage(machine, quads, confidence) <= min(1.0, sure + 0.02)

    @pytest.mark.parametrize("quads", [2, 4])
    def test_too_few_quads_say_how_sure_they_are(self, quads):
        said = attained(quads, 0.95)
        assert said == 1 - 2 ** (1 - quads) < 0.95
        stray = 4 * math.sqrt(said * (1 - said) / EXPERIMENTS)
        assert abs(coverage(iid, quads, 0.95) - said) <= stray

    @pytest.mark.parametrize("confidence", [0.95, 0.99])
    def test_stopping_when_it_is_narrow_costs_little(self, confidence):
        """Stopping as soon as the interval is narrow costs at most 2 % of coverage.

        The rule looks only at the interval's width, after each growth by a quarter, not at its
        position.
        """
        rng, covered, experiments = np.random.default_rng(4), 0, 400
        for _ in range(experiments):
            ratios = ratios_of(hiccups(rng, 4 * 200))
            limits = Limits(400, 16, 1e9, 0.02, confidence)
            seconds = iter([1.0] * 800)
            samples: list[Sample] = []
            while not limits.enough(samples, 0.0):
                quad = len(samples) // 4
                samples += [
                    Sample(arm, ratios[quad] if arm == "baseline" else next(seconds), 0.0)
                    for arm in order(quad)
                ]
            ratio = Ratio.from_quads(ratios[: len(samples) // 4], confidence)
            covered += ratio.low <= TRUTH <= ratio.high
        stray = 4 * math.sqrt(confidence * (1 - confidence) / experiments)
        assert covered / experiments >= confidence - 0.02 - stray
