"""Parsing and formatting of values in policies: durations, percentages, patterns, counts."""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal
from functools import lru_cache

from orchestrator.domain.outcome import Counts

_DURATION = re.compile(r"(\d{1,6})\s*([mhdw])")
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_PERCENT = re.compile(r"(\d{1,4}(?:\.\d{1,6})?)\s*%")


def duration(text: str) -> timedelta:
    """Parse ``90m``, ``36h``, ``7d``, ``2w``. Raises ValueError."""
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is no duration: write 90m, 36h, 7d or 2w")
    return timedelta(**{_UNITS[found[2]]: int(found[1])})


def percent(text: str) -> Decimal:
    """Parse ``3%`` as 0.03. Raises ValueError."""
    found = _PERCENT.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is no percentage: write 3% or 2.5%")
    return Decimal(found[1]) / 100


def is_pattern(name: str) -> bool:
    """Whether the name contains a wildcard."""
    return "*" in name


def like(pattern: str, name: str) -> bool:
    """Whether a name matches a pattern; only ``*`` is special."""
    return _compiled(pattern).fullmatch(name) is not None


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    """Compile a pattern so that matching takes linear time."""
    first, *rest = map(re.escape, pattern.split("*"))
    if not rest:
        return re.compile(first, re.DOTALL)
    *between, last = rest
    found = "".join(f"(?>.*?{part})" for part in between if part)
    return re.compile(f"{first}{found}.*{last}", re.DOTALL)


def figure(number: float) -> str:
    """Format a number with four significant digits."""
    return f"{number:.4g}"


def as_percent(part: float | Decimal) -> str:
    """Format 0.0312 as ``3.12 %``."""
    return f"{float(part) * 100:.3g} %"


def some(names: list[str], most: int = 5) -> str:
    """Join names, as ``a, b, c and 4 more``."""
    if len(names) <= most:
        return ", ".join(names)
    return f"{', '.join(names[:most])} and {len(names) - most} more"


_OTHERS = {
    "failed": "failed",
    "error": "ended in an error",
    "skipped": "skipped",
    "xfailed": "failed as expected",
    "xpassed": "passed unexpectedly",
    "missing": "missing",
    "not_run": "not run",
}


def all_counts(counts: Counts) -> str:
    """Format counts whose numbers add up.

    ``3 of 7 tests passed, 1 skipped, 3 failed as expected``.
    """
    numbers = counts.as_dict()
    others = [f", {numbers[name]} {word}" for name, word in _OTHERS.items() if numbers[name]]
    return f"{counts.passed} of {counted(counts.collected, 'test')} passed{''.join(others)}"


def first_rules_counts(counts: Counts) -> str:
    """Format counts as in the first rules: ``3 of 3 tests passed and 2 failed as expected``."""
    judged = counts.passed + counts.failed + counts.error
    return f"{counts.passed} of {counted(judged, 'test')} passed{expected_failures(counts)}"


def expected_failures(counts: Counts) -> str:
    """Return `` and 2 failed as expected``; empty without any."""
    return f" and {counts.xfailed} failed as expected" if counts.xfailed else ""


def counted(number: int, one: str, many: str = "") -> str:
    """Format a number with its noun: ``1 test``, ``2 tests``."""
    return f"{number} {one if number == 1 else many or one + 's'}"
