"""Single measurements that a document prints in blocks: label, value, unit."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from reports.foreign.document import Block, Document, Path
from reports.foreign.quantities import Printed, quantities

_LINE = re.compile(r"^[\s\W]{0,8}(?P<label>[A-Za-z][^:|]{0,60}?)\s*:\s+(?P<value>~?\$?\d.*)$")
_RULE = re.compile(r"^\s*[=\-─_*#]{4,}\s*$")


@dataclass(frozen=True, slots=True)
class Measurement:
    """One line of a block."""

    line: int
    path: Path
    block: int
    """The line of its block."""
    group: str
    """The title above it inside the block."""
    label: str
    values: tuple[Printed, ...]

    @property
    def value(self) -> Printed:
        """The first."""
        return self.values[0]


def measurements(document: Document) -> tuple[Measurement, ...]:
    """Every measurement in the document's blocks."""
    return tuple(m for block in document.blocks for m in _of(block))


def _of(block: Block) -> Iterator[Measurement]:
    group = ""
    for line in block.lines:
        found = _LINE.match(line.text)
        if found is None:
            if line.text.strip() and not _RULE.match(line.text) and ":" not in line.text:
                group = line.text.strip()
            continue
        values = tuple(q for q in quantities(found["value"]) if q.unit)
        if values:
            yield Measurement(
                line.number, line.path, block.line, group, found["label"].strip(), values
            )


def words(label: str) -> frozenset[str]:
    """What a label says, whatever the order and the inflection."""
    return frozenset(word[:6].lower() for word in re.findall(r"[A-Za-z]+\d*", label))
