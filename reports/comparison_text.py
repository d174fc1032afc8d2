"""Comparisons of two runs, in words."""

from __future__ import annotations

from decimal import Decimal

from reports import format as fmt
from reports import platform_text
from reports.model.compare import MetricDelta
from reports.model.results import MetricAcross
from reports.model.values import Absent, Status

_CATEGORIES = {
    "new_failure": "New failures",
    "still_failing": "Still failing",
    "fixed": "Fixed",
    "newly_skipped": "Newly skipped",
    "missing": "Missing",
    "hidden": "Unknown: a collection error hid them",
    "changed": "Changed otherwise",
    "new": "Newly collected",
    "gone": "Gone",
}


def category_name(category: str) -> str:
    """``New failures``."""
    return _CATEGORIES.get(category, category)


@fmt.or_absent
def change_usd(value: Decimal) -> str:
    """``+$0.0120``."""
    sign = "-" if value < 0 else "+"
    return f"{sign}{fmt.part(abs(value))}"


@fmt.or_absent
def signed_percent(value: float) -> str:
    """``+5.8%``."""
    return f"{value:+.1f}%" if abs(value) >= 0.1 or value == 0 else f"{value:+.2g}%"


def status_or_absent(value: Status | Absent) -> str:
    """A status, or why there is none."""
    return fmt.absent(value) if isinstance(value, Absent) else fmt.status(value)


def delta_name(row: MetricDelta) -> str:
    """``MoE Benchmark: time (ms, lower is better), hidden=512``."""
    named = MetricAcross(row.metric, row.unit, row.direction, row.params, row.against, "", (), ())
    return f"{row.title}: {platform_text.metric_name(named)}"
