"""Comparing our documents with the seeds: every heading, row and number at its place.

What differs is listed in `docs/seeds/`, each with its reason:

    ```text
    seed: a part of the seed's line
    ours: a part of a line of ours; none where ours says nothing of the kind
    ```
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal

_NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)*(?:K\b)?")
_HEADING = re.compile(r"^(#{1,6}) +(.+)$")
_STATES = {
    "PASSED": "pass", "PASS": "pass", "PARTIAL": "partial", "SKIPPED": "skipped",
    "PRODUCTION READY": "production ready", "Not Available": "not available",
    "Similar": "similar", "Limited": "limited", "faster": "faster", "COMPLETE": "complete",
    "⚠️": "⚠",
}  # fmt: skip
_CORRECTION = re.compile(r"^```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(slots=True)
class Part:
    """What stands below one heading."""

    heading: str
    level: int
    lines: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Correction:
    """Where ours is meant to differ."""

    seed: list[str] = field(default_factory=list)
    ours: list[str] = field(default_factory=list)
    used: int = 0


def corrections(text: str) -> list[Correction]:
    """Those that a document of `docs/seeds/` lists."""
    found = []
    for block in _CORRECTION.findall(text):
        made = Correction()
        for line in block.splitlines():
            key, _, said = line.partition(": ")
            assert key in ("seed", "ours"), line
            getattr(made, key).append(said)
        assert made.seed, block
        found.append(made)
    return found


def parts(text: str) -> list[Part]:
    """The document below each of its headings; fenced lines are no headings."""
    found, fenced = [Part("", 0)], False
    for line in text.splitlines():
        fenced ^= line.startswith("```")
        match = None if fenced else _HEADING.match(line)
        if match:
            found.append(Part(match[2], len(match[1])))
        elif line.strip():
            found[-1].lines.append(line)
    return found


def words(heading: str) -> set[str]:
    """Of a heading, without its number."""
    bare = re.sub(r"^\d+\. ", "", re.sub(r"\(.*?\)", " ", heading))
    return set(re.findall(r"[a-z0-9][a-z0-9.]*", bare.lower()))


def numbers(text: str) -> list[str]:
    """Every number of a line, written one way."""
    return [_plain(found) for found in _NUMBER.findall(text)]


def _plain(said: str) -> str:
    bare = said.replace(",", "").rstrip(".")
    factor = 1000 if bare.endswith("K") else 1
    bare = bare.rstrip("K")
    if bare.count(".") > 1:
        return bare
    return f"{(Decimal(bare) * factor).normalize():f}"


class Comparison:
    """One seed against ours."""

    def __init__(self, seed: str, ours: str, listed: list[Correction]) -> None:
        self.ours = ours
        self._seed = parts(seed)
        self._parts = parts(ours)
        self._listed = listed
        self.missing: list[str] = []
        self.seen = 0

    def run(self) -> Comparison:
        """Look at every heading and every line."""
        for part in self._seed:
            where = self._place(part) if part.heading else self._parts
            for line in part.lines if where else ():
                self.seen += 1
                if not _is_said(line, where):
                    self._excused(line)
        return self

    def _place(self, part: Part) -> list[Part]:
        """Our part with this heading, and what is below it."""
        self.seen += 1
        line = f"{'#' * part.level} {part.heading}"
        wanted = words(part.heading)
        ranked = sorted(
            ((_alike(wanted, words(p.heading)), -n) for n, p in enumerate(self._parts) if p.heading)
        )
        similarity, at = ranked[-1]
        if similarity:
            return self._below(-at)
        for correction in self._excused(line):
            for said in correction.ours:
                for number, mine in enumerate(self._parts):
                    if said == f"{'#' * mine.level} {mine.heading}":
                        return self._below(number)
        return self._parts

    def _below(self, number: int) -> list[Part]:
        first = self._parts[number]
        found = [first]
        for part in self._parts[number + 1 :]:
            if part.level <= first.level and first.level > 1:
                break
            found.append(part)
        return found

    def _excused(self, line: str) -> list[Correction]:
        found = [c for c in self._listed if any(said in line for said in c.seed)]
        for correction in found:
            correction.used += 1
        if not found:
            self.missing.append(line)
        return found


def _alike(one: set[str], other: set[str]) -> float:
    if not one or not other or not (one <= other or other <= one):
        return 0.0
    share = len(one & other) / len(one | other)
    return share if share >= 0.5 else 0.0


def _is_said(line: str, where: list[Part]) -> bool:
    """A row in one row, a named test in its row, anything else somewhere in the part."""
    wanted = numbers(line)
    states = {state for word, state in _STATES.items() if _says(line, word)}
    if line.startswith("|") and set(line) <= set("|-: "):
        return True
    if re.match(r"- `\w+` - ", line):
        return any(_is_test(row, line) for row in _lines(where))
    if line.startswith("|"):
        return any(_holds(row, _key(line), wanted, states) for row in _lines(where))
    whole = " ".join(_lines(where))
    known = set(numbers(whole))
    return set(wanted) <= known and all(s in whole.lower() for s in states)


def _is_test(row: str, line: str) -> bool:
    """The test's row, in which every platform says the same outcome."""
    name, _, outcome = line.removeprefix("- ").partition(" - ")
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    return cells[0] == name and all(
        cell == outcome.lower().strip() for cell in map(str.lower, cells[1:])
    )


def _says(line: str, word: str) -> bool:
    edge = r"\b" if word[0].isalpha() else ""
    return re.search(rf"{edge}{word}{edge}", line) is not None


def _lines(where: list[Part]) -> Iterator[str]:
    for part in where:
        yield f"{part.heading}"
        yield from part.lines


def _key(line: str) -> str:
    cells = line.strip("|- ").split("|")
    return _letters(cells[0].partition(" - ")[0])


def _letters(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower().replace("test_", "test "))


def _holds(row: str, key: str, wanted: list[str], states: set[str]) -> bool:
    said = row.lower()
    return (
        key in _letters(row)
        and not Counter(wanted) - Counter(numbers(row))
        and all(state in said for state in states)
    )


def unused(found: Iterator[Correction] | list[Correction]) -> list[list[str]]:
    """Corrections without which nothing would be missing."""
    return [correction.seed for correction in found if not correction.used]
