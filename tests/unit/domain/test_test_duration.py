"""When a test counts as much slower than usual."""

from __future__ import annotations

import pytest

from orchestrator.domain.compare_tests import TestDuration


@pytest.mark.parametrize(
    ("took_s", "earlier_s", "expected"),
    [
        (3.0, (1.0, 2.0, 9.0), True),
        (2.9, (1.0, 2.0, 9.0), False),
        (0.9, (0.1,), False),
        (1.1, (0.1,), True),
        (101.0, (100.0,), False),
        (9.0, (), False),
        (9.0, (0.0,), False),
    ],
    ids=["half", "less", "under a second", "a second", "of much", "nothing", "zero"],
)
def test_a_test_is_much_slower_by_half_and_by_a_second(
    took_s: float, earlier_s: tuple[float, ...], expected: bool
) -> None:
    words = {"cell": "cpu", "job": "unit", "nodeid": "test_it", "outcome": "passed"}
    one = TestDuration(test_id=1, duration_s=took_s, earlier_s=earlier_s, **words)
    assert one.is_much_slower is expected


def test_what_is_too_short_to_measure_has_no_change() -> None:
    one = TestDuration(
        test_id=1, cell="here", job="unit", nodeid="t.py::a", outcome="passed",
        duration_s=0.082, earlier_s=(0.003,),
    )  # fmt: skip
    assert one.change is None
    assert not one.is_much_slower
