"""Tables with as many columns as fit the window."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table
from rich.text import Text

_ANY_WIDTH = 1000
_WIDEST = 40


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns of a table."""

    titles: tuple[str, ...]
    first_to_go: tuple[str, ...] = ()
    """Columns that are left out first in narrow windows, in order."""
    together: Collection[str] = ()
    """Columns that are left out together, since parts of a sum mislead."""
    whole: Collection[str] = ()
    """Columns that are never wrapped."""
    right: Collection[str] = ()
    """Columns of numbers."""


def fitting(console: Console, layout: Layout, rows: Sequence[Mapping[str, Text]]) -> Table:
    """Return rows by column title, with the columns that fit."""
    unlimited = console.options.update(width=_ANY_WIDTH)
    titles = list(layout.titles)
    table = _table(layout, titles, rows)
    for title in layout.first_to_go:
        if console.measure(table, options=unlimited).minimum <= console.width:
            break
        gone = layout.together if title in layout.together else (title,)
        titles = [kept for kept in titles if kept not in gone]
        table = _table(layout, titles, rows)
    return table


def _table(layout: Layout, titles: Sequence[str], rows: Sequence[Mapping[str, Text]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", show_edge=False)
    for title in titles:
        table.add_column(
            title,
            no_wrap=title in layout.whole,
            min_width=_width(title, rows) if title in layout.whole else None,
            overflow="fold",
            justify="right" if title in layout.right else "left",
        )
    for row in rows:
        table.add_row(*(row[title] for title in titles))
    return table


def _width(title: str, rows: Sequence[Mapping[str, Text]]) -> int:
    """Return the width of the widest cell."""
    return min(max([len(title), *(row[title].cell_len for row in rows)]), _WIDEST)
