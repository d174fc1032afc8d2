"""Every number and word of a report as text, with its unit and its rounding.

Rounding happens here and nowhere else: models hold unrounded values. What was not measured is
written as a dash with its reason.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import date as date_type
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from typing import TypeVar

from orchestrator.domain import units
from orchestrator.domain.failures import FailureClass
from orchestrator.domain.vocabulary import phrase, refusal_text, term
from reports.model.values import Absent, CheckTally, Rate, Status

T = TypeVar("T")

_COLOURED = {"passed": "✅", "failed": "❌", "errored": "⚠"}
"""Glyphs with a colour, which Markdown has no other way to give."""

_ENDED = {
    "cancelled": "was cancelled",
    "not_available": "is not available",
    "not_run": "was not run",
    "running": "is running",
    "queued": "is queued",
}

_REASONS_IN_VALUE = {
    "timed_out": ("timeout",),
    "cancelled": ("cancelled",),
    "running": ("running",),
}
"""Reasons that the word of the status says already."""

_MIB = 1024 * 1024


def absent(value: Absent) -> str:
    """Format an absent value: ``— (reason)``."""
    return f"— ({value.reason})"


def or_absent(write: Callable[[T], str]) -> Callable[[T | Absent], str]:
    """Return the formatter, extended to absent values."""

    def either(value: T | Absent) -> str:
        return absent(value) if isinstance(value, Absent) else write(value)

    either.__doc__ = write.__doc__
    return either


@or_absent
def text(value: str) -> str:
    """Return the text; a dash where it is empty."""
    return value or "—"


@or_absent
def count(value: int) -> str:
    """Format a count: ``1,492``."""
    return f"{value:,}"


@or_absent
def percent(value: float) -> str:
    """``94.6%``; 100% and 0% only where that is exact."""
    return units.percent(Fraction(value) / 100)


def rate(value: Rate) -> str:
    """Format a share as a percentage."""
    if isinstance(value.percent, Absent):
        return absent(value.percent)
    return units.percent(Fraction(value.part, value.whole))


def share(value: Rate) -> str:
    """Format a share as a fraction: ``48/48``."""
    return f"{value.part:,}/{value.whole:,}"


@or_absent
def checks(value: CheckTally) -> str:
    """Format counts of checks: ``7/8 checks``, with the skipped ones."""
    skipped = f", {value.skipped:,} skipped" if value.skipped else ""
    return f"{share(value.rate)} checks{skipped}"


@or_absent
def number(value: float) -> str:
    """Format a number to four significant digits; from 1,000 on as an integer."""
    return units.figure(value) if math.isfinite(value) else "— (not a finite number)"


@or_absent
def ratio(value: float) -> str:
    """``1.79x``; three decimals below one."""
    return f"{value:.2f}x" if abs(value) >= 1 else f"{value:.3f}x"


@or_absent
def duration(value: float) -> str:
    """Format seconds as everywhere: ``3.2s``, ``1m 12s``."""
    return units.duration(value)


@or_absent
def seconds(value: float) -> str:
    """Format billed seconds with one decimal: ``301.5 s``."""
    return f"{value:,.1f} s"


@or_absent
def size(value: int) -> str:
    """Format a file's size in decimal units: ``4.2 kB``."""
    return units.size(value)


@or_absent
def memory(value: int) -> str:
    """``23,028 MiB (24.15 GB)``: both units, since boards are sold in one and report the other."""
    return f"{value / _MIB:,.0f} MiB ({value / 1e9:.2f} GB)"


@or_absent
def usd(value: Decimal) -> str:
    """``$1.01``; four decimals below a dollar; never a rounded zero."""
    if 0 < abs(value) < Decimal("0.00005"):
        return "<$0.0001"
    digits = 2 if abs(value) >= 1 or value == 0 else 4
    sign = "-" if value < 0 else ""
    return f"{sign}${abs(value):,.{digits}f}"


@or_absent
def part(value: Decimal) -> str:
    """``$0.1795``: four decimals; a part of a bill."""
    return f"${value:,.4f}"


@or_absent
def cents(value: Decimal) -> str:
    """``$1.01``: a total; never a rounded zero."""
    return "<$0.01" if 0 < value < Decimal("0.005") else f"${value:,.2f}"


@or_absent
def each(value: Decimal) -> str:
    """Format the cost of one test: ``$0.000985``."""
    return f"${value:,.6f}"


@or_absent
def price(value: Decimal) -> str:
    """Format a price as the provider states it, with two decimals or more: ``$1.006``."""
    plain = format(value.normalize(), "f")
    decimals = len(plain.partition(".")[2])
    return f"${value:,.{max(2, decimals)}f}"


@or_absent
def moment(value: datetime) -> str:
    """Format a time: ``2026-01-19 10:00:03 UTC``."""
    return value.strftime("%Y-%m-%d %H:%M:%S UTC")


def date(value: date_type) -> str:
    """Format a date: ``2026-01-19``."""
    return value.strftime("%Y-%m-%d")


def status(value: Status) -> str:
    """Format a status: glyph, word, reason, and marks (degraded, flaky, no test passed)."""
    reason = value.ended_by or phrase(value.reason)
    notes = [reason] if reason and reason not in _REASONS_IN_VALUE.get(value.code, ()) else []
    notes += ["degraded"] if value.degraded is not None else []
    notes += [value.nothing_passed] if value.nothing_passed else []
    notes += [f"{term('flaky').glyph} {value.flaky}"] if value.flaky else []
    word = outcome(value.code)
    return f"{word} ({', '.join(notes)})" if notes else word


def ended(value: str) -> str:
    """Format an outcome as a verb: ``failed``, ``was cancelled``."""
    return _ENDED.get(value, term(value).word)


def outcome(value: str) -> str:
    """Format an outcome without its reason: ``✅ PASSED``."""
    shown = term(value)
    return f"{_COLOURED.get(value, shown.glyph)} {shown.word.upper()}"


def likely_cause(value: str) -> str:
    """``the machine or the network``: of a class of failures."""
    return FailureClass(value).words


def test_outcome(value: str) -> str:
    """Format a test's outcome: ``not run``."""
    return term(value).word


def counted(value: int, code: str) -> str:
    """``2 failed``, ``2 errors``: a number of tests of an outcome."""
    return term(code).counted(value)


def refusal(value: str) -> str:
    """Format a provider's refusal, ``quota: 4 of 4 used``; a dash without one."""
    return text(refusal_text(value))


def plural(value: int, word: str) -> str:
    """``1 test``, ``2 tests``."""
    return f"{count(value)} {word}" if value == 1 else f"{count(value)} {word}s"


def pairs(value: tuple[tuple[str, str], ...]) -> str:
    """Format parameters: ``batch=32, seq=128``."""
    return ", ".join(f"{name}={said}" for name, said in value) or "—"


def version(value: str) -> str:
    """Format a version with a leading v: ``v0.4.40``."""
    return value if value[:1] in ("v", "V") else f"v{value}"
