"""What the benchmarks measured: noise, and a few steps that somebody should have seen."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np

from benchmarks.dashboard.plans import BENCHMARK, Machine
from benchmarks.dashboard.sizes import Size
from benchmarks.dashboard.words import harmful, metrics

SAMPLES = 12
_STEPPING = 0.12
"""The part of the benchmarks that has steps."""


class Series:
    """Every benchmark on every machine, night after night."""

    def __init__(self, size: Size, seed: int, *, hostile: bool = False) -> None:
        named = metrics(size.benchmarks)
        self._names = [
            name if not hostile or number % 2 else f"{name} {harmful(number, length=number * 20)}"
            for number, (name, _) in enumerate(named)
        ]
        self._params = [json.dumps(params) for _, params in named]
        self._units = ["ms" if number % 3 else "GB/s" for number in range(size.benchmarks)]
        self._noise = np.random.default_rng(seed)
        self._base = self._noise.lognormal(1.2, 1.4, size.benchmarks)
        self._spread = self._noise.uniform(0.003, 0.03, size.benchmarks)
        self._levels = self._steps(size)

    def of_night(self, night: int, machine: Machine, attempt: int) -> Iterator[tuple[object, ...]]:
        """The rows of one cell, as the driver takes them."""
        centre = self._base * self._levels[night] / machine.speed
        size = (len(self._names), SAMPLES)
        drift = self._noise.normal(1, self._spread)
        noise = self._noise.normal(1, self._spread[:, None], size)
        samples = (centre * drift)[:, None] * noise
        for number, row in enumerate(samples.tolist()):
            unit = self._units[number]
            written = "[" + ",".join(["%.5g" % one for one in row]) + "]"  # noqa: UP031
            yield (
                attempt,
                number + 5,
                BENCHMARK,
                self._names[number],
                written,
                unit,
                "lower" if unit == "ms" else "higher",
                self._params[number],
                None,
                None,
                None,
            )

    def _steps(self, size: Size) -> np.ndarray:
        """By night and benchmark, how far the level has moved from the first one."""
        moves = np.ones((size.measured_nights, size.benchmarks))
        for number in range(size.benchmarks):
            if self._noise.random() < _STEPPING:
                for _ in range(self._noise.integers(1, 4)):
                    night = self._noise.integers(2, max(size.measured_nights, 3))
                    moves[min(night, size.measured_nights - 1), number] *= self._noise.choice(
                        (0.88, 0.94, 0.97, 1.04, 1.08, 1.21)
                    )
        return np.cumprod(moves, axis=0)
