"""Printed numbers: their value, and the range that rounding allows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal

_DIGITS = r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?(?:[eE][+-]?\d+)?"
_UNITS = (
    r"ms/iteration|ms/batch|samples/sec(?:ond)?|samples/s|tokens/sec(?:ond)?|tokens/s|tok/s|"
    r"GiB|MiB|KiB|GB|MB|kB|ms|µs|us|ns|min(?:utes?)?|hours?|hrs?|h|sec(?:onds?)?|s|/s|x"
)
_QUANTITY = re.compile(
    rf"(?P<about>[~≈]\s?)?(?P<money>\$)?(?<![\w.])(?P<number>{_DIGITS})(?P<scale>[KMG](?![A-Za-z]))?"
    rf"\s?(?P<unit>(?:{_UNITS})(?![\w]))?"
)
FRACTION = re.compile(r"(?<![\w.,/])(\d[\d,]{0,12})\s?/\s?(\d[\d,]{0,12})(?![\w/]|\.\d)")
PERCENT = re.compile(r"(?<![\w.])(\d{1,4}(?:\.\d{1,6})?)\s?%")
_LARGEST = 30
"""Maximum power of ten of a number."""
_SCALES = {"K": 1e3, "M": 1e6, "G": 1e9}
_SECONDS = {
    "s": 1.0, "sec": 1.0, "second": 1.0, "seconds": 1.0, "ms": 1e-3, "ms/iteration": 1e-3,
    "ms/batch": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9, "min": 60.0, "minute": 60.0,
    "minutes": 60.0, "h": 3600.0, "hr": 3600.0, "hrs": 3600.0, "hour": 3600.0, "hours": 3600.0,
}  # fmt: skip
_PER_SECOND = frozenset(
    {"/s", "tok/s", "tokens/s", "tokens/sec", "tokens/second", "samples/s", "samples/sec"}
)


@dataclass(frozen=True, slots=True)
class Printed:
    """A number as a document prints it."""

    text: str
    value: float
    half: float
    """Half a step of its last digit."""
    unit: str = ""
    is_money: bool = False
    is_about: bool = False
    """Whether it is marked with a tilde."""

    @property
    def low(self) -> float:
        """Return the smallest value that prints like this."""
        return self.value - self.half

    @property
    def high(self) -> float:
        """Return the largest value that prints like this."""
        return self.value + self.half

    @property
    def seconds(self) -> float | None:
        """Return one unit of a duration in seconds; else None."""
        return _SECONDS.get(self.unit)

    @property
    def is_rate(self) -> bool:
        """Whether its unit is per second."""
        return self.unit in _PER_SECOND

    def contains(self, value: float, *, slack: float = 1e-9) -> bool:
        """Whether a value may print like this."""
        return abs(value - self.value) <= self.half + slack * max(1.0, abs(value))


@dataclass(frozen=True, slots=True)
class Fraction:
    """A printed fraction: ``x/y``."""

    part: int
    whole: int

    def __str__(self) -> str:
        return f"{self.part:,}/{self.whole:,}"

    @property
    def percent(self) -> float:
        """Return the share in percent; zero for an empty whole."""
        return 100 * self.part / self.whole if self.whole else 0.0


def quantities(text: str) -> Iterator[Printed]:
    """Return every number of a text with its unit."""
    for found in _QUANTITY.finditer(text):
        printed = _printed(found)
        if printed is not None:
            yield printed


def only(text: str) -> Printed | None:
    """Return the single number of a text that holds nothing else but units and signs."""
    found = _QUANTITY.fullmatch(text.strip().strip("*").strip())
    return _printed(found) if found else None


def _printed(match: re.Match[str]) -> Printed | None:
    """Return a number, or None beyond the maximum."""
    exact = Decimal(match["number"].replace(",", ""))
    exponent = exact.as_tuple().exponent
    if not isinstance(exponent, int) or max(abs(exponent), abs(exact.adjusted())) > _LARGEST:
        return None
    scale = _SCALES.get(match["scale"] or "", 1.0)
    step = 10.0**exponent
    return Printed(
        match[0].strip(), float(exact) * scale, step * scale / 2, match["unit"] or "",
        bool(match["money"]), bool(match["about"]),
    )  # fmt: skip


def fractions(text: str) -> Iterator[Fraction]:
    """Return every ``x/y`` of a text."""
    for found in FRACTION.finditer(text):
        yield Fraction(*(int(side.replace(",", "") or 0) for side in found.groups()))


def fraction(text: str) -> Fraction | None:
    """Return the first ``x/y`` of a text."""
    return next(fractions(text), None)


def percents(text: str) -> Iterator[Printed]:
    """Return every percentage of a text."""
    for found in PERCENT.finditer(text):
        digits = found[1]
        decimals = len(digits.partition(".")[2])
        yield Printed(f"{digits}%", float(digits), 10.0**-decimals / 2, "%")


def whole(text: str) -> int | None:
    """Return a text that is one integer as a number."""
    said = text.strip().strip("*").replace(",", "")
    return int(said) if said.isdigit() and len(said) < 13 else None
