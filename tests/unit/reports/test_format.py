"""Units and rounding."""

from __future__ import annotations

from decimal import Decimal

import pytest

from reports import format as fmt
from reports.model.values import Absent, Status


@pytest.mark.parametrize(
    ("write", "value", "text"),
    [
        (fmt.percent, 100.0, "100%"),
        (fmt.percent, 99.97, ">99.9%"),
        (fmt.percent, 0.01, "<0.1%"),
        (fmt.percent, 0.0, "0%"),
        (fmt.percent, 100 * 175 / 185, "94.6%"),
        (fmt.count, 1492, "1,492"),
        (fmt.number, 940_812.4, "940,812"),
        (fmt.number, 0.29561, "0.2956"),
        (fmt.number, 3.1e-7, "3.1e-07"),
        (fmt.number, float("nan"), "— (not a finite number)"),
        (fmt.duration, 535, "8m 55s"),
        (fmt.memory, 23028 * 2**20, "23,028 MiB (24.15 GB)"),
        (fmt.size, 999, "999 B"),
        (fmt.size, 999_990, "1.0 MB"),
        (fmt.size, 12_400_000, "12.4 MB"),
        (fmt.usd, Decimal("0.05833"), "$0.0583"),
        (fmt.usd, Decimal("0.000001"), "<$0.0001"),
        (fmt.usd, Decimal("1234.567"), "$1,234.57"),
        (fmt.usd, Decimal(0), "$0.00"),
        (fmt.price, Decimal("1.006"), "$1.006"),
        (fmt.price, Decimal("0.7"), "$0.70"),
        (fmt.price, Decimal("0E-6"), "$0.00"),
        (fmt.ratio, 1.7909, "1.79x"),
        (fmt.ratio, 0.05, "0.050x"),
        (fmt.count, Absent("not started"), "— (not started)"),
        (fmt.version, "0.4.40", "v0.4.40"),
        (fmt.version, "v0.4.40", "v0.4.40"),
        (fmt.status, Status("timed_out", "timeout"), "◷ TIMED OUT"),
        (fmt.status, Status("passed", "", "fell back"), "✅ PASSED (degraded)"),
        (fmt.status, Status("errored", "host_key"), "⚠ ERRORED (host key)"),
    ],
)
def test_text(write, value, text):
    assert write(value) == text
