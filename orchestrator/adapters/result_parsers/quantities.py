"""Parses printed numbers with units: ``7.79ms/batch``, ``525.7K tokens/sec``, ``0.12x``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal

NUMBER = r"\d{1,3}(?:,\d{3}){1,6}(?:\.\d{1,12})?|\d{1,18}(?:\.\d{1,18})?(?:[eE][-+]?\d{1,2})?"
_TIMES = {
    "ns": "ns", "us": "us", "µs": "us", "μs": "us", "ms": "ms", "msec": "ms",
    "s": "s", "sec": "s", "secs": "s", "second": "s", "seconds": "s",
}  # fmt: skip
_PER_SECOND = {
    "fps": "frames/s", "it/s": "iterations/s", "qps": "queries/s", "rps": "requests/s",
    "tok/s": "tokens/s", "tflops": "TFLOPS", "gflops": "GFLOPS", "tflop/s": "TFLOPS",
}  # fmt: skip
_ROUNDS = frozenset((
    "batch", "batches", "call", "forward", "inference", "it", "iter", "iteration", "iterations",
    "iters", "request", "run", "step", "steps",
))  # fmt: skip
"""Words after "per" that mean one iteration of the measured code."""
_LARGE = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "b": 10**9, "t": 10**12}
_TIME = r"ns|us|µs|μs|ms|msec|s|secs?|seconds?"
_RATE = (
    r"[a-zA-Z]{0,20}/s(?:ec|econd)?|[a-zA-Z]{1,20} per sec(?:ond)?"
    r"|fps|qps|rps|[TG]FLOPS|[TG]FLOP/s"
)
_QUANTITY = re.compile(
    rf"[~≈]?\s?(?P<number>{NUMBER})\s?(?:"
    rf"(?P<time>{_TIME})(?:\s?/\s?(?P<per>[a-zA-Z]{{1,20}}))?"
    rf"|(?P<large>(?:[KMGTk](?=[\s/]|tok)|B(?=\s))?)\s?(?P<rate>{_RATE})"
    r"|(?P<ratio>[x×]))"
    rf"(?:\s?(?:±|\+/-)\s?(?:{NUMBER})\s?[a-zµμ]{{0,4}})?",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Quantity:
    """A printed number with its unit."""

    value: float
    """Value in `unit`, with the printed digits only."""
    unit: str
    """Unit: ``ms``, ``tokens/s``, ``x``."""
    kind: str
    """``latency``, ``throughput`` or ``ratio``."""
    printed: str
    """The number as printed, ``525.7``."""
    per: str = ""
    """The iteration that a time refers to: ``batch``."""

    @property
    def direction(self) -> str:
        """Return the better direction; empty for a ratio, whose direction depends on its terms."""
        return {"latency": "lower", "throughput": "higher"}.get(self.kind, "")


def quantity(text: str) -> Quantity | None:
    """Return the quantity of a text; None if the text is not exactly one quantity."""
    found = _QUANTITY.fullmatch(text.strip()) if len(text) <= 80 else None
    if found is None:
        return None
    number = found["number"]
    value = Decimal(number.replace(",", ""))
    if found["time"]:
        return _time(value, number, found["time"], (found["per"] or "").lower())
    if found["rate"]:
        value *= _LARGE[found["large"].lower()]
        return Quantity(float(value), _rate_unit(found["rate"]), "throughput", number)
    return Quantity(float(value), "x", "ratio", number)


def _time(value: Decimal, number: str, word: str, per: str) -> Quantity:
    unit = _TIMES[word]
    if not per or per in _ROUNDS:
        return Quantity(float(value), unit, "latency", number, per)
    return Quantity(float(value), f"{unit}/{per}", "latency", number)


def _rate_unit(word: str) -> str:
    known = _PER_SECOND.get(word.lower())
    if known:
        return known
    what = re.split(r"/| per ", word, maxsplit=1)[0].strip()
    return f"{what}/s" if what else "/s"


def whole(text: str) -> int | None:
    """Return the integer of a text; None for other texts."""
    text = text.strip()
    is_whole = len(text) <= 18 and text.isascii() and text.replace(",", "").isdigit()
    return int(text.replace(",", "")) if is_whole else None


def half_step(printed: str) -> float:
    """Return half of the last digit's place: the maximum rounding error of the figure."""
    places = Decimal(printed.replace(",", "")).as_tuple().exponent
    return float(Decimal(5).scaleb(places - 1)) if isinstance(places, int) else 0.0
