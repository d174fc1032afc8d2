"""Parses printed numbers with units, and lines that print measurements.

``✅ Backend creation: 0.2956 ms/iteration`` · ``Hidden size 512: 7.79ms/batch, 525.7K tokens/sec``
· ``Seq=  64: Flex=17.03ms, Standard=0.79ms, Ratio=0.05x`` · ``Balanced: 14.11ms (5/5 passed)``
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from orchestrator.adapters.result_parsers.text_lines import CROSSES

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


LONGEST = 300
"""Maximum characters of a line with figures."""
PARTS = 12
"""Maximum number of figures of one line."""

_UNITED = re.compile(
    r"\d\s?(?:[nuµμm]?s\b|m?secs?\b|seconds?\b|[x×](?!\w)|[fqr]ps\b|[TG]FLOP"
    r"|[KMGBTk]?\s?[A-Za-z]{0,20}(?:/s| per s))"
)
_MARK = re.compile(rf"^\s*(?:[-*•]\s)?(?P<mark>[✅✓✔{CROSSES}])\ufe0f?\s{{0,4}}(?P<rest>\S.*)$")
_LABEL = re.compile(r"^(?P<label>[^:|]{1,80}?)\s?:\s{0,20}(?P<rest>\S.*)$")
_IN_PARENS = re.compile(r"^(?P<before>[^()]+?)\s?\((?P<inside>[^()]{1,80})\)$")
_PARTED = re.compile(r"\s?[|;]\s?|,\s+")
_NAMED = re.compile(r"^(?P<name>[^=:]{1,40}?)\s?[=:]\s{0,12}(?P<value>\S.*)$")
_TALLY = re.compile(r"^(\d{1,9})/(\d{1,9}) (?:\w{1,20} )?(?:passed|ok|succeeded)$")
_NUMBERED = re.compile(
    r"^(?P<name>[A-Za-z][A-Za-z _-]{0,30}?)(?:\s?=\s{0,12}|\s)(?P<value>\d{1,12})$"
)
_NOT_MEASURED = re.compile(
    r"\b(?:timeout|deadline|limit|interval|budget|expected|target|threshold|eta|remaining|sleep\w*"
    r"|wait\w*|every|retry\w*)\b",
    re.IGNORECASE,
)
_SHORT = {
    "hidden size": "hidden", "hidden dim": "hidden", "batch size": "batch", "bs": "batch",
    "seq len": "seq", "sequence length": "seq", "seq length": "seq", "seqlen": "seq",
    "sequence": "seq",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class LineFigure:
    """One figure of a line; its name is empty if the line's label is its name."""

    name: str
    quantity: Quantity


@dataclass(frozen=True, slots=True)
class MeasuredLine:
    """The measurements of one line."""

    label: str = ""
    """Name of the measured item, if it is more than parameters."""
    params: Mapping[str, int] = field(default_factory=dict)
    figures: tuple[LineFigure, ...] = ()
    tally: tuple[int, int] | None = None
    """Passed and total of ``5/5 passed``."""


@dataclass(frozen=True, slots=True)
class Marked:
    """A line that begins with a tick or a cross."""

    passed: bool
    text: str


def marked(line: str) -> Marked | None:
    """Return the tick or cross at the line's start with the text after it; None without one."""
    found = _MARK.match(line) if len(line) <= LONGEST else None
    return Marked(found["mark"] not in CROSSES, found["rest"].strip()) if found else None


def measured(text: str) -> MeasuredLine | None:
    """Return the measurement of a line without its mark; None if it has no number with a unit."""
    text = text.strip()
    if len(text) > LONGEST or not _UNITED.search(text):
        return None
    found = _LABEL.match(text)
    label, rest = (found["label"].strip(), found["rest"]) if found else ("", text)
    if _NOT_MEASURED.search(label):
        return None
    label, params = label_params(label)
    figures: list[LineFigure] = []
    tally = None
    for part in _parts(rest):
        tally = tally_of(part) or tally
        label = _take(part, label, params, figures)
    is_about = bool(label or params or all(figure.name for figure in figures))
    return MeasuredLine(label, params, tuple(figures), tally) if figures and is_about else None


def label_params(label: str) -> tuple[str, dict[str, int]]:
    """Return the label and its parameters: ``Hidden size 512`` is only a parameter."""
    params: dict[str, int] = {}
    for part in _PARTED.split(label):
        found = _NUMBERED.match(part.strip())
        if found is None:
            return label, {}
        params[param_name(found["name"])] = int(found["value"])
    return "", params


def param_name(words: str) -> str:
    """Return the name of a parameter: ``batch`` for ``Batch size``."""
    plain = " ".join(words.lower().replace("_", " ").replace("-", " ").split())
    return _SHORT.get(plain, plain.replace(" ", "_"))


def _parts(rest: str) -> Iterator[str]:
    found = _IN_PARENS.match(rest)
    texts = (found["before"], found["inside"]) if found else (rest,)
    parts = [part.strip() for text in texts for part in _PARTED.split(text)]
    yield from parts[:PARTS]


def tally_of(text: str) -> tuple[int, int] | None:
    """Return passed and total of ``5/5 passed``; None for other texts."""
    found = _TALLY.match(text)
    return (int(found[1]), int(found[2])) if found else None


def _take(part: str, label: str, params: dict[str, int], figures: list[LineFigure]) -> str:
    """Add a part of the line to the parameters or figures; return the rest of the label."""
    if said := quantity(part):
        figures.append(LineFigure("", said))
        return label
    number = whole(part)
    if number is not None and label and not figures:
        params[param_name(label)] = number
        return ""
    found = _NAMED.match(part)
    if found is None or _NOT_MEASURED.search(found["name"]):
        return label
    if said := quantity(found["value"]):
        figures.append(LineFigure(found["name"].strip(), said))
    elif (number := whole(found["value"])) is not None:
        params[param_name(found["name"])] = number
    return label


def relation(ratio: Quantity, first: Quantity, second: Quantity) -> str:
    """Return the direction of a ratio that is printed beside two times, by arithmetic.

    The result is ``higher`` if the ratio is second / first, so that the first is faster by it;
    ``lower`` if it is first / second; empty if it is neither, or if the units differ.
    """
    if first.unit != second.unit or not (first.value > 0 and second.value > 0):
        return ""
    for direction, above, below in (("higher", second, first), ("lower", first, second)):
        low = (above.value - half_step(above.printed)) / (below.value + half_step(below.printed))
        high = (above.value + half_step(above.printed)) / max(
            below.value - half_step(below.printed), 1e-12
        )
        slack = half_step(ratio.printed) * 1.001
        if low - slack <= ratio.value <= high + slack:
            return direction
    return ""
