"""Read values of untrusted documents; a value of the wrong type counts as absent."""

from __future__ import annotations

import math

LARGEST_SAMPLE = 1e300
"""Samples of metrics are smaller; sums and squares of larger ones are not finite."""
LARGEST_WHOLE = 2**31
"""Larger exit codes, signals and restarts are invalid."""


def text_of(value: object) -> str:
    """Return text without characters that databases refuse; empty for None."""
    return "" if value is None else str(value).replace("\x00", "\ufffd")


def samples_of(value: object) -> tuple[float, ...]:
    """Return the numbers of a list of samples; other values are left out, not read as 0."""
    each = value if isinstance(value, list) else ()
    numbers = (n for n in each if isinstance(n, int | float) and not isinstance(n, bool))
    return tuple(float(n) for n in numbers if abs(n) < LARGEST_SAMPLE)


def number_of(value: object) -> float:
    """Return a finite number; 0 for anything else."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return 0.0
    try:
        return float(value) if math.isfinite(value) else 0.0
    except OverflowError:
        return 0.0


def known_of(value: object) -> float | None:
    """Return a finite number; None without a value."""
    return None if value is None else number_of(value)


def whole_of(value: object) -> int | None:
    """Return an integer that a column can store; None for anything else."""
    fits = isinstance(value, int) and not isinstance(value, bool) and abs(value) < LARGEST_WHOLE
    return value if fits and isinstance(value, int) else None
