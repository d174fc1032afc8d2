"""Parses lines that print measurements.

``✅ Backend creation: 0.2956 ms/iteration`` · ``Hidden size 512: 7.79ms/batch, 525.7K tokens/sec``
· ``Seq=  64: Flex=17.03ms, Standard=0.79ms, Ratio=0.05x`` · ``Balanced: 14.11ms (5/5 passed)``
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from orchestrator.adapters.result_parsers.quantities import Quantity, half_step, quantity, whole

LONGEST = 300
"""Maximum characters of a line with figures."""
PARTS = 12
"""Maximum number of figures of one line."""

_UNITED = re.compile(
    r"\d\s?(?:[nuµμm]?s\b|m?secs?\b|seconds?\b|[x×](?!\w)|[fqr]ps\b|[TG]FLOP"
    r"|[KMGBTk]?\s?[A-Za-z]{0,20}(?:/s| per s))"
)
_MARK = re.compile(r"^\s*(?:[-*•]\s)?(?P<mark>✅|❌|✓|✔|✗|✘|❎)\ufe0f?\s{0,4}(?P<rest>\S.*)$")
_FAILED = frozenset("❌✗✘❎")
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
    return Marked(found["mark"] not in _FAILED, found["rest"].strip()) if found else None


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
