"""Many series at once: the same change points as one by one."""

from __future__ import annotations

import numpy as np
import pytest

from orchestrator.adapters import statistics
from orchestrator.adapters.statistics import StepDetector
from orchestrator.application.ports.statistics import Watched


def series(count: int, length: int) -> list[list[float]]:
    noise = np.exp(np.random.default_rng(7).standard_normal((count, length)) * 0.02)
    noise[: count // 3, length // 2 :] *= 1.1
    return [[float(value) for value in row] for row in noise]


@pytest.mark.parametrize("length", [3, 8, 13, 40])
def test_they_are_those_of_each_series(length):
    detector, many = StepDetector(), series(30, length)
    places = ["x"] * (length // 2) + ["y"] * (length - length // 2)
    found = detector.changes([Watched(values, places) for values in many])
    assert [tuple(one) for one in found] == [detector.detect(v, places).changes for v in many]


def test_series_of_any_length_and_kind_may_stand_beside_each_other():
    many = [[1.0] * 20, [], [1.0, -1.0] * 8, [float("nan")] * 12, *series(3, 30)]
    found = StepDetector().changes([Watched(values) for values in many])
    assert [len(one) for one in found[:4]] == [0, 0, 0, 0]
    assert [len(one) for one in found[4:]] == [1, 0, 0]


def test_the_median_of_seven_is_the_median():
    windows = list(np.random.default_rng(3).standard_normal((7, 50, 11)))
    np.testing.assert_array_equal(statistics._median_of_seven(windows), np.median(windows, axis=0))
