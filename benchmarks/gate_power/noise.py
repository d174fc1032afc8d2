"""What machines do to measurements: families of noise, with fixed seeds.

Everything is a logarithm: 0.01 is 1 % of the true value. `size` is the standard deviation of the
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
"""What resident arms take before they are started anew, where that costs little."""
DRIFT_PER_TURN = 0.0025
"""A machine that becomes 10 % slower in 40 turns."""


def generator(*where: str | int) -> np.random.Generator:
    """Its own stream for every place in the table, whatever else is computed."""
    words = [one if isinstance(one, int) else zlib.crc32(one.encode()) for one in where]
    return np.random.default_rng([SEED, *words])


def _normal(rng: np.random.Generator, shape: Shape, size: float) -> Values:
    return size * rng.standard_normal(shape)


def _heavy(rng: np.random.Generator, shape: Shape, size: float) -> Values:
    return size * rng.standard_t(3, shape) / np.sqrt(3)


def _outliers(rng: np.random.Generator, shape: Shape, size: float) -> Values:
    """Three of a hundred take 10 to 65 % longer."""
    far = (rng.random(shape) < 0.03) * rng.uniform(0.1, 0.5, shape)
    return _normal(rng, shape, size) + far


def _skewed(rng: np.random.Generator, shape: Shape, size: float) -> Values:
    return rng.exponential(size, shape)


def _two_levels(rng: np.random.Generator, shape: Shape, size: float) -> Values:
    """A clock that is high or low, by chance."""
    return size * (0.3 * rng.standard_normal(shape) + 1.9 * (rng.random(shape) < 0.5))


def _drift(rng: np.random.Generator, shape: Shape, size: float) -> Values:
    return _normal(rng, shape, size) + DRIFT_PER_TURN * np.arange(shape[-1])


def _warming(rng: np.random.Generator, shape: Shape, size: float) -> Values:
    """8 % slower in the end, most of it within 15 turns."""
    return _normal(rng, shape, size) - 0.08 * np.exp(-np.arange(shape[-1]) / 15)


def _shared(rng: np.random.Generator, shape: Shape, size: float) -> Values:
    """Half of the variance is the machine's, the same for all benchmarks."""
    mine, all_alike = rng.standard_normal(shape), rng.standard_normal(shape[-1])
    return size * (mine + all_alike) / np.sqrt(2)


def _wandering(rng: np.random.Generator, shape: Shape, size: float, rho: float) -> Values:
    """Each value keeps a share of the one before."""
    fresh = size * np.sqrt(1 - rho**2) * rng.standard_normal(shape)
    values = np.empty(shape)
    values[..., 0] = size * rng.standard_normal(shape[:-1])
    for at in range(1, shape[-1]):
        values[..., at] = rho * values[..., at - 1] + fresh[..., at]
    return values


def _launches(rng: np.random.Generator, shape: Shape, size: float) -> Values:
    """Each process of each arm has a level of its own; they differ as much as turns do."""
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
"""Of turns, along the last axis in the order of time."""
NIGHTS: Mapping[str, Noise] = {
    "normal": _normal,
    "heavy tails (t3)": _heavy,
    "3 % outliers": _outliers,
    "skewed": _skewed,
    "wandering (ρ 0.3)": partial(_wandering, rho=0.3),
    "wandering (ρ 0.5)": partial(_wandering, rho=0.5),
    "wandering (ρ 0.7)": partial(_wandering, rho=0.7),
}
"""Of medians of runs."""
