"""Formats of numbers, durations, sizes and amounts of money."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from decimal import ROUND_CEILING, Decimal
from fractions import Fraction

_MS_BELOW = 0.0995
"""Durations below this number of seconds are written in milliseconds."""
_MINUTE_S = 60
_HOUR_S = 3600
_CENT = Decimal("0.01")
_PRICE_DECIMALS = 5
_PRICE_DIGITS = 4
"""Minimum number of significant digits: a GB of disk costs $0.000137 an hour."""


def duration(seconds: float) -> str:
    """Return a duration in words: ``8ms``, ``3.2s``, ``41s``, ``1m 12s`` or ``2h 05m``."""
    if seconds < 0:
        return f"-{duration(-seconds)}"
    if not seconds:
        return "0s"
    if seconds < _MS_BELOW:
        return f"{seconds * 1000:.0f}ms" if seconds >= 0.0005 else "<1ms"
    if seconds < 9.95:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    if whole < _MINUTE_S:
        return f"{whole}s"
    if whole < _HOUR_S:
        return f"{whole // 60}m {whole % 60:02}s"
    return f"{whole // 3600}h {whole % 3600 // 60:02}m"


def elapsed(seconds: float) -> str:
    """Return the duration of something unfinished, in whole seconds."""
    whole = max(int(seconds), 0)
    return f"{whole}s" if whole < _MINUTE_S else duration(whole)


def utc(at: datetime) -> str:
    """Return a time as ``2026-11-21 02:00 UTC``."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def size(size_bytes: int) -> str:
    """Return a size in powers of 1000: ``312 B``, ``4.2 kB`` or ``1.3 GB``."""
    if size_bytes < 1000:
        return f"{size_bytes} B"
    amount, units = size_bytes / 1000, ["kB", "MB", "GB", "TB"]
    while amount >= 999.95 and len(units) > 1:
        amount /= 1000
        del units[0]
    return f"{amount:,.1f} {units[0]}"


def usd(amount: Decimal | None) -> str:
    """Return an amount as ``$1.20``, below a cent with four decimals; ``unknown`` for None."""
    if amount is None:
        return "unknown"
    if 0 < amount < _CENT:
        return f"${amount:.4f}"
    return f"${amount:.2f}"


def most_usd(amount: Decimal | None) -> str:
    """Return a maximum in the form of `usd`, rounded up."""
    return "unknown" if amount is None else usd(rounded_up(amount))


def rounded_up(amount: Decimal) -> Decimal:
    """Return a maximum rounded up to the digits that `most_usd` shows."""
    step = _CENT / 100 if 0 < amount < _CENT else _CENT
    return amount.quantize(step, ROUND_CEILING)


def percent(share: Fraction | Decimal | float) -> str:
    """Return a share as a percentage with one decimal: ``28.6%``.

    ``0%`` and ``100%`` are written only for exactly 0 and 1; other shares that round to them
    are ``<0.1%``, ``>99.9%`` or ``>100%``.
    """
    exact = Fraction(share)
    tenths = math.floor(exact * 1000 + Fraction(1, 2))
    if exact in (0, 1):
        return f"{tenths // 10}%"
    if tenths == 0:
        return "<0.1%"
    if tenths == 1000:
        return ">99.9%" if exact < 1 else ">100%"
    return f"{tenths // 10:,}.{tenths % 10}%"


def signed_percent(change: float) -> str:
    """Return a finite relative change as ``+8.2%``, or as ``×12`` from +-1,000 % on.

    Only a change of 0 is written as 0.
    """
    shown = 100 * change
    if abs(shown) >= 1_000:
        return f"×{change + 1:,.3g}"
    if abs(shown) >= 9.95:
        return f"{shown:+.0f}%"
    return f"{shown:+.1f}%" if abs(shown) >= 0.05 or not shown else f"{shown:+.2g}%"


def number(value: float) -> str:
    """Return a number with thousands separators, rounded to four digits if it is no integer.

    Numbers from 10,000 on are rounded to integers.
    """
    if float(value).is_integer() and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:.4g}" if abs(value) < 10_000 else f"{value:,.0f}"


_SCIENTIFIC_FROM = 1e15
_INTEGER = re.compile(r"[+-]?[0-9]+")
_FLOAT = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


def figure(value: float) -> str:
    """Return a finite number with four significant digits; as an integer from 1,000 on."""
    if 1000 <= abs(value) < _SCIENTIFIC_FROM:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def measured(message: str, *, apart_from: str = "") -> str:
    """Return a job's own figure with four significant digits; integers and words stay unchanged.

    It has more digits if it would otherwise read the same as another figure, `apart_from`, such
    as its tolerance.
    """
    if (
        _INTEGER.fullmatch(message)
        or not _FLOAT.fullmatch(message)
        or not math.isfinite(float(message))
    ):
        return message
    value = float(message) or 0.0
    other = float(apart_from) if _FLOAT.fullmatch(apart_from) else value
    near = figure(value)
    if value == other or near != measured(apart_from):
        return near
    longer = (f"{value:.{digits}g}" for digits in range(5, 18))
    return next((text for text in longer if float(text) != other), message)


def sentence(text: str) -> str:
    """Return the text with a capital letter and a full stop."""
    return f"{text[:1].upper()}{text[1:]}."


def plural(count: int, noun: str, many: str = "") -> str:
    """Return a number with its noun: ``1 cell``, ``2 cells``."""
    return f"{count} {noun if count == 1 else many or noun + 's'}"


def cents_of_cents(amount: Decimal) -> str:
    """Return a part of a bill with four decimals: ``$0.2794``."""
    return f"${amount:.4f}"


def price(amount: Decimal | None) -> str:
    """Return a price or limit as ``$1.006``: with at least two decimals, quotients rounded up."""
    if amount is None:
        return "unknown"
    # A quotient, such as a month's price divided by its hours, has meaningless digits.
    digits = max(_PRICE_DECIMALS, _PRICE_DIGITS - amount.adjusted() - 1) if amount else 0
    rounded = amount.quantize(Decimal(1).scaleb(-digits), ROUND_CEILING)
    decimals = len(format(rounded.normalize(), "f").partition(".")[2])
    return f"${rounded:.{max(2, decimals)}f}"
