"""Measurements of the benchmarks: noise, and some steps of the level."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np

from benchmarks.dashboard.plans import BENCHMARK, Machine
from benchmarks.dashboard.sizes import Size
from benchmarks.dashboard.words import harmful, metrics

SAMPLES = 12
_STEPPING = 0.12
"""Share of the benchmarks with steps."""


class Series:
    """Measurements of every benchmark on every machine in every night."""

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
        """Yield the metric rows of one cell, in the order of the columns."""
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
        """Return levels relative to the first night, [nights, benchmarks]."""
        moves = np.ones((size.measured_nights, size.benchmarks))
        for number in range(size.benchmarks):
            if self._noise.random() < _STEPPING:
                for _ in range(self._noise.integers(1, 4)):
                    night = self._noise.integers(2, max(size.measured_nights, 3))
                    moves[min(night, size.measured_nights - 1), number] *= self._noise.choice(
                        (0.88, 0.94, 0.97, 1.04, 1.08, 1.21)
                    )
        return np.cumprod(moves, axis=0)
