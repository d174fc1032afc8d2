"""Reads values of untrusted documents; a value of the wrong type counts as absent."""

from __future__ import annotations

import math

LARGEST_SAMPLE = 1e300
"""Upper limit of samples of metrics: sums and squares of larger ones are not finite."""
LARGEST_WHOLE = 2**31
"""Upper limit of exit codes, signals and numbers of restarts."""


def text_of(value: object) -> str:
    """Return a value as text without NULs, which databases refuse; empty for None."""
    return "" if value is None else str(value).replace("\x00", "\ufffd")


def samples_of(value: object) -> tuple[float, ...]:
    """Return the numbers of a list of samples; other values are left out."""
    each = value if isinstance(value, list) else ()
    numbers = (n for n in each if isinstance(n, int | float) and not isinstance(n, bool))
    return tuple(float(n) for n in numbers if abs(n) < LARGEST_SAMPLE)


def number_of(value: object) -> float:
    """Return a finite number; 0 for any other value."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return 0.0
    try:
        return float(value) if math.isfinite(value) else 0.0
    except OverflowError:
        return 0.0


def known_of(value: object) -> float | None:
    """Return a finite number; None for None, and 0 for any other value."""
    return None if value is None else number_of(value)


def whole_of(value: object) -> int | None:
    """Return an integer that a database column can store; None for any other value."""
    fits = isinstance(value, int) and not isinstance(value, bool) and abs(value) < LARGEST_WHOLE
    return value if fits and isinstance(value, int) else None
