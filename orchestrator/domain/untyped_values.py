"""Read values of untrusted documents; a value of the wrong type counts as absent."""

from __future__ import annotations

import math

LARGEST_SAMPLE = 1e300
LARGEST_WHOLE = 2**31
"""Exit codes, signals and restarts are smaller; what is not is nonsense."""


def text_of(value: object) -> str:
    """Text, without what no database keeps; nothing of None."""
    return "" if value is None else str(value).replace("\x00", "\ufffd")


def samples_of(value: object) -> tuple[float, ...]:
    """The numbers among the samples: what is none must not become a zero."""
    each = value if isinstance(value, list) else ()
    numbers = (n for n in each if isinstance(n, int | float) and not isinstance(n, bool))
    return tuple(float(n) for n in numbers if abs(n) < LARGEST_SAMPLE)


def number_of(value: object) -> float:
    """A finite number; 0 of anything else."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return 0.0
    try:
        return float(value) if math.isfinite(value) else 0.0
    except OverflowError:
        return 0.0


def known_of(value: object) -> float | None:
    """The same; None where nothing was said."""
    return None if value is None else number_of(value)


def whole_of(value: object) -> int | None:
    """A whole number that a column can keep; None of anything else."""
    fits = isinstance(value, int) and not isinstance(value, bool) and abs(value) < LARGEST_WHOLE
    return value if fits and isinstance(value, int) else None
