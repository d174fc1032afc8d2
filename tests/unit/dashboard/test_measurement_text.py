"""Figures with no more digits than their spread allows, and changes that are never rounded away."""

from __future__ import annotations

import math

import pytest

from orchestrator.dashboard.measurement_text import MedianText, RelativeChange, honest, percent
from orchestrator.store.benchmarks import Point


@pytest.mark.parametrize(
    ("value", "spread", "shown"),
    [
        (48.858, 2.5, "48.9"), (48.858, 0.031, "48.858"), (1234567.0, 31000.0, "1,235,000"),
        (0.96896, 0.0342, "0.969"), (20.0, 0.0, "20"), (20.123456, 0.0, "20.12"), (0.0, 1.0, "0"),
        (1.0, 1e-12, "1"), (1e-9, 5.0, "1e-09"), (math.inf, 1.0, "–"), (1.0, math.nan, "1"),
        (1.191e-07, 2.4e-09, "1.191e-07"), (1.21e-07, 2e-08, "1.21e-07"),
    ],
)  # fmt: skip
def test_a_value_goes_down_to_the_second_digit_of_its_spread(value, spread, shown):
    assert honest(value, spread) == shown


@pytest.mark.parametrize(
    ("change", "shown"),
    [
        (0.0823, "+8.2%"), (-0.1383, "-14%"), (0.0001, "+0.01%"), (0.0, "+0.0%"), (-0.004, "-0.4%"),
        (41.0, "×42"), (None, "–"), (math.inf, "–"),
    ],
)  # fmt: skip
def test_a_change_that_is_there_is_never_nothing(change, shown):
    assert percent(change) == shown


def test_a_measured_figure_says_its_spread_and_its_samples():
    shown = MedianText(Point(1, 48.858, 48.1, 50.6, 12), "ms")
    assert (shown.value, shown.note) == ("48.9 ms", "48.1–50.6, n = 12")
    assert shown.plain() == {"value": 48.858, "low": 48.1, "high": 50.6, "samples": 12}
    assert shown.text() == "48.9 ms (48.1–50.6, n = 12)"
    assert MedianText(Point(1, 2.0, 2.0, 2.0, 1)).text() == "2 (n = 1)"


def test_a_change_says_its_word_and_what_stands_beside_it():
    shown = RelativeChange("worse", 0.082, "since 2.6.0")
    assert shown.text() == "▼ worse +8.2% since 2.6.0"
    assert shown.plain() == {"verdict": "worse", "change": 0.082, "note": "since 2.6.0"}
    assert RelativeChange("steady", None).note == ""
