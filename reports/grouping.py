"""Layout of measurement tables: parameters that distinguish rows, and shared ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from reports.model.metrics import MetricColumn, Params
from reports.model.values import Absent

RATIO_UNITS = frozenset({"x", "×", "ratio"})

NOT_NAMED = Absent("the job does not name it")

RowKey = tuple[str, Params]
"""Prefix of the metrics' names, parameters."""

ColumnKey = tuple[str, str, str, str]
"""Last part of the name, unit, direction, baseline."""


@dataclass(frozen=True, slots=True)
class TableLayout:
    """Layout of a table."""

    named: bool
    """Whether rows are told apart by the metric's name."""
    keys: tuple[str, ...]
    """Parameters with a column each."""
    fixed: Params
    """Parameters that all rows share."""


def is_ratio(unit: str) -> bool:
    """Whether the unit is that of a ratio."""
    return unit.strip().lower() in RATIO_UNITS


def split_name(name: str) -> tuple[str, str]:
    """Split a metric's name: ``moe/512/latency`` into ``moe/512`` and ``latency``."""
    prefix, _, leaf = name.rpartition("/")
    return (prefix, leaf) if prefix and leaf else ("", name)


def layout_of(rows: Sequence[RowKey]) -> TableLayout:
    """Return the layout of a table of metrics.

    Parameters that are equal in all rows are stated once; the others are columns, those with the
    shortest names first.
    """
    every = [frozenset(params) for _, params in rows]
    shared = frozenset.intersection(*every) if every else frozenset()
    names = {name for params in every for name, _ in params - shared}
    return TableLayout(
        named=_named(rows),
        keys=tuple(sorted(names, key=lambda name: (len(name), name))),
        fixed=tuple(sorted(shared)),
    )


def _named(rows: Sequence[RowKey]) -> bool:
    """Whether the prefixes of names distinguish more than the parameters."""
    if len({params for _, params in rows}) < len(rows):
        return True
    parts = [frozenset(prefix.split("/")) for prefix, _ in rows]
    common = frozenset.intersection(*parts) if len(parts) > 1 else frozenset(("",))
    said = [{value for _, value in params} for _, params in rows]
    return any(part - common - values for part, values in zip(parts, said, strict=True))


def columns_of(keys: Sequence[ColumnKey]) -> tuple[MetricColumn, ...]:
    """Return columns with distinct headings, naming the baseline where it is needed."""
    said = {baseline for _, unit, _, baseline in keys if is_ratio(unit)}
    return tuple(_column(key, keys, said) for key in keys)


def _column(key: ColumnKey, keys: Sequence[ColumnKey], names: set[str]) -> MetricColumn:
    name, unit, direction, baseline = key
    if is_ratio(unit):
        return MetricColumn(name, unit, direction, True, baseline or NOT_NAMED)
    twins = sum(other[:3] == key[:3] for other in keys) > 1
    needed = baseline and (twins or baseline not in names)
    return MetricColumn(name, unit, direction, False, baseline if needed else None)


def telling(rows: Sequence[Params], keys: Sequence[str]) -> tuple[str, ...]:
    """Return the fewest keys that distinguish the rows."""
    said = [dict(params) for params in rows]
    for key in keys:
        if len({row.get(key) for row in said}) == len(said):
            return (key,)
    return tuple(keys)
