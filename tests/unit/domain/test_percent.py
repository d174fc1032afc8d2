"""One rounding of percentages for pages, reports and the CLI."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.dashboard.labels import share
from orchestrator.domain.units import percent
from reports import format as fmt
from reports.model.values import Rate


@pytest.mark.parametrize(
    ("part", "whole", "shown"),
    [
        (2, 7, "28.6%"), (14, 36, "38.9%"), (1, 16, "6.3%"), (3, 2000, "0.2%"), (0, 9, "0%"),
        (9, 9, "100%"), (1, 5000, "<0.1%"), (9999, 10000, ">99.9%"), (1, 2, "50.0%"),
        (9994, 10000, "99.9%"), (1, 2000, "0.1%"),
    ],
)  # fmt: skip
def test_a_share_is_rounded_half_up_and_never_to_all_or_nothing(
    part: int, whole: int, shown: str
) -> None:
    assert percent(Fraction(part, whole)) == shown
    assert share(part, whole) == shown
    assert fmt.rate(Rate(part, whole, 100 * part / whole)) == shown


@given(st.integers(1, 10**6), st.data())
def test_pages_and_reports_say_the_same(whole: int, data: st.DataObject) -> None:
    part = data.draw(st.integers(0, whole))
    shown = share(part, whole)
    assert shown == fmt.rate(Rate(part, whole, 100 * part / whole))
    assert (shown == "100%") == (part == whole)
    assert (shown == "0%") == (part == 0)
