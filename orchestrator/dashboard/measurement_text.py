"""Formats measured values with no more digits than their spread allows, and their changes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from orchestrator.dashboard.labels import cut, visible
from orchestrator.dashboard.table import Plain
from orchestrator.domain.units import number, signed_percent
from orchestrator.domain.vocabulary import term
from orchestrator.store.benchmarks import Benchmark, Point

_MOST_DIGITS = 6
_MOST_DECIMALS = 6
"""More decimals are unreadable: ``1.191e-07`` is shown then, as in reports."""
_LONGEST_UNIT = 40
_DIRECTIONS = {"lower": "lower is better", "higher": "higher is better"}


def honest(value: float, spread: float) -> str:
    """Format a value to the second digit of its spread; without a spread, to four digits."""
    if not math.isfinite(value):
        return "–"
    if spread <= 0 or not math.isfinite(spread) or not value:
        return number(value)
    decimals = 1 - math.floor(math.log10(spread))
    digits = math.floor(math.log10(abs(value))) + 1 + decimals
    if digits > _MOST_DIGITS or digits < 1 or decimals > _MOST_DECIMALS:
        return number(value)
    return f"{value:,.{decimals}f}" if decimals > 0 else f"{round(value, decimals):,.0f}"


def percent(change: float | None) -> str:
    """Format a change as `signed_percent` does; ``–`` if there is none."""
    return "–" if change is None or not math.isfinite(change) else signed_percent(change)


def unit_of(benchmark: Benchmark) -> str:
    """Return the unit as it is displayed."""
    return visible(cut(benchmark.unit, _LONGEST_UNIT)).replace("\n", " ")


def direction_of(benchmark: Benchmark) -> str:
    """Return a metric's direction in words."""
    return _DIRECTIONS.get(benchmark.direction, "the metric states no direction")


def params_of(params: Mapping[str, object]) -> str:
    """Format parameters: ``batch=4, dtype=float16``."""
    return ", ".join(f"{name}={value}" for name, value in sorted(params.items()))


@dataclass(frozen=True, slots=True)
class MedianText:
    """A median with its spread and the number of its samples."""

    kind: ClassVar[str] = "text"
    point: Point
    unit: str = ""
    href: str = ""
    is_code: ClassVar[bool] = False
    short: ClassVar[str] = ""
    is_sentence: ClassVar[bool] = False

    @property
    def spread(self) -> float:
        """Difference between the upper and the lower quartile."""
        return self.point.high - self.point.low

    @property
    def value(self) -> str:
        """The value with its unit: ``48.9 ms``."""
        return f"{honest(self.point.value, self.spread)} {self.unit}".rstrip()

    @property
    def note(self) -> str:
        """Quartiles and number of samples: ``48.1–50.6, n = 12``."""
        many = f"n = {self.point.samples:,}"
        if self.point.samples < 2:
            return many
        low, high = (honest(end, self.spread) for end in (self.point.low, self.point.high))
        return f"{low}–{high}, {many}"

    def plain(self) -> Plain:
        """The unrounded value."""
        point = self.point
        return {
            "value": point.value,
            "low": point.low,
            "high": point.high,
            "samples": point.samples,
        }

    def text(self) -> str:
        """Value with quartiles and number of samples: ``48.9 ms (48.1–50.6, n = 12)``."""
        return f"{self.value} ({self.note})"


@dataclass(frozen=True, slots=True)
class RelativeChange:
    """A relative change, and whether it is an improvement."""

    kind: ClassVar[str] = "badge"
    word: str
    """``worse``, ``better``, ``alike``, ``differs``, ``single`` or ``steady``."""
    change: float | None
    aside: str = ""
    href: str = ""

    @property
    def note(self) -> str:
        """The change in percent with its note: ``+8.2%``."""
        told = [percent(self.change)] if self.change is not None else []
        return " ".join([*told, *([self.aside] if self.aside else [])])

    def plain(self) -> Plain:
        """The unrounded relative change."""
        return {"verdict": self.word, "change": self.change, "note": self.aside}

    def text(self) -> str:
        """The change with its direction: ``▼ worse +8.2%``."""
        shown = term(self.word)
        return f"{shown.glyph} {shown.word} {self.note}".rstrip()
