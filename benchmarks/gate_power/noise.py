"""Families of measurement noise, with fixed seeds.

All values are logarithms: 0.01 is 1 % of the true value. `size` is the standard deviation of the
undisturbed part.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
Shape = tuple[int, ...]
Noise = Callable[[np.random.Generator, Shape, float], Values]

SEED = 20260120
PAIRS_A_LAUNCH = 2
"""Pairs that resident arms take before a restart, if a restart costs little."""
DRIFT_PER_TURN = 0.0025
"""Drift per turn of a machine that becomes 10 % slower in 40 turns."""


def generator(*where: str | int) -> np.random.Generator:
    """Return a random generator for a place in the tables, independent of all others."""
    words = [one if isinstance(one, int) else zlib.crc32(one.encode()) for one in where]
    return np.random.default_rng([SEED, *words])


def _normal(rng: np.random.Generator, shape: Shape, size: float) -> Values:
    return size * rng.standard_normal(shape)


def _heavy(rng: np.random.Generator, shape: Shape, size: float) -> Values:
    return size * rng.standard_t(3, shape) / np.sqrt(3)


def _outliers(rng: np.random.Generator, shape: Shape, size: float) -> Values:
    """Return noise in which 3 % of the values take 10 to 65 % longer."""
    far = (rng.random(shape) < 0.03) * rng.uniform(0.1, 0.5, shape)
    return _normal(rng, shape, size) + far


def _skewed(rng: np.random.Generator, shape: Shape, size: float) -> Values:
    return rng.exponential(size, shape)


def _two_levels(rng: np.random.Generator, shape: Shape, size: float) -> Values:
    """Return noise of a clock that is high or low by chance."""
    return size * (0.3 * rng.standard_normal(shape) + 1.9 * (rng.random(shape) < 0.5))


def _drift(rng: np.random.Generator, shape: Shape, size: float) -> Values:
    return _normal(rng, shape, size) + DRIFT_PER_TURN * np.arange(shape[-1])


def _warming(rng: np.random.Generator, shape: Shape, size: float) -> Values:
    """Return noise of a machine that becomes 8 % slower, most of it within 15 turns."""
    return _normal(rng, shape, size) - 0.08 * np.exp(-np.arange(shape[-1]) / 15)


def _shared(rng: np.random.Generator, shape: Shape, size: float) -> Values:
    """Return noise of which half the variance is the machine's, the same for all benchmarks."""
    mine, all_alike = rng.standard_normal(shape), rng.standard_normal(shape[-1])
    return size * (mine + all_alike) / np.sqrt(2)


def _wandering(rng: np.random.Generator, shape: Shape, size: float, rho: float) -> Values:
    """Return noise in which each value keeps a share of the one before."""
    fresh = size * np.sqrt(1 - rho**2) * rng.standard_normal(shape)
    values = np.empty(shape)
    values[..., 0] = size * rng.standard_normal(shape[:-1])
    for at in range(1, shape[-1]):
        values[..., at] = rho * values[..., at - 1] + fresh[..., at]
    return values


def _launches(rng: np.random.Generator, shape: Shape, size: float) -> Values:
    """Return noise in which each process has a level of its own, as variable as the turns."""
    turn = np.arange(shape[-1])
    launch, arm = turn // (2 * PAIRS_A_LAUNCH), np.isin(turn % 4, (1, 2))
    levels = _normal(rng, (*shape[:-1], 2 * (launch[-1] + 1)), size)
    return _normal(rng, shape, size) + levels[..., 2 * launch + arm]


BY_LAUNCH = "levels by launch"
TURNS: Mapping[str, Noise] = {
    "normal": _normal,
    "heavy tails (t3)": _heavy,
    "3 % outliers": _outliers,
    "linear drift": _drift,
    "warming up": _warming,
    "skewed": _skewed,
    "two levels": _two_levels,
    "shared by all": _shared,
    "wandering (ρ 0.5)": partial(_wandering, rho=0.5),
    BY_LAUNCH: _launches,
}
"""Families of the noise of turns, in the order of time along the last axis."""
NIGHTS: Mapping[str, Noise] = {
    "normal": _normal,
    "heavy tails (t3)": _heavy,
    "3 % outliers": _outliers,
    "skewed": _skewed,
    "wandering (ρ 0.3)": partial(_wandering, rho=0.3),
    "wandering (ρ 0.5)": partial(_wandering, rho=0.5),
    "wandering (ρ 0.7)": partial(_wandering, rho=0.7),
}
"""Families of the noise of the medians of runs."""
