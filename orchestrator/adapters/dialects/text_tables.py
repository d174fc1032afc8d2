"""Tables in plain text: a line of heads, a rule, rows of figures.

::

        In    Out  Batch   FP8 (ms)   Std (ms)  Speedup
    --------------------------------------------------
       512    512     32      0.501      0.058    0.12x
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from orchestrator.adapters.dialects.measurement_lines import Figure, Measured, param_name
from orchestrator.adapters.dialects.quantities import quantity, whole

COLUMNS = 20
_GAP = re.compile(r"\s{2,}|\t")
_HEAD = re.compile(r"^(?P<name>[A-Za-z][\w .+/%-]{0,40}?)(?: ?\((?P<unit>[^()\d]{1,20})\))?$")
_RULE = re.compile(r"^\s*-{8,}[-\s|+]*$")
_LONGEST = 400


@dataclass(frozen=True, slots=True)
class _Column:
    name: str
    unit: str


@dataclass(slots=True)
class TextTables:
    """Watches lines for tables."""

    _previous: str = ""
    _columns: list[_Column] = field(default_factory=list)

    def see(self, line: str) -> Measured | None:
        """The row that the line is; None where it is none with a figure."""
        if len(line) > _LONGEST or not line.strip():
            self._columns, self._previous = [], ""
            return None
        if _RULE.match(line):
            self._columns = _heads(self._previous)
            return None
        self._previous = line
        return self._row(line) if self._columns else None

    def _row(self, line: str) -> Measured | None:
        cells = line.split()
        if len(cells) != len(self._columns):
            self._columns = []
            return None
        params: dict[str, int] = {}
        figures: list[Figure] = []
        for column, cell in zip(self._columns, cells, strict=True):
            said = quantity(f"{cell} {column.unit}" if column.unit else cell)
            number = whole(cell)
            if said is not None:
                figures.append(Figure(column.name, said))
            elif number is not None and not column.unit:
                params[param_name(column.name)] = number
        return Measured("", params, tuple(figures)) if figures and params else None


def _heads(line: str) -> list[_Column]:
    found = [_HEAD.match(text) for text in _GAP.split(line.strip())]
    if not 2 <= len(found) <= COLUMNS:
        return []
    return [_Column(m["name"], m["unit"] or "") for m in found if m] if all(found) else []
