"""Tables with as many columns as fit the window."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from rich.console import Console
from rich.table import Table
from rich.text import Text

from orchestrator.cli.safe_text import one_line
from orchestrator.cli.session import Session
from orchestrator.client.transport import AnswerList

T = TypeVar("T")


def row_of(layout: Layout, *words: str) -> dict[str, Text]:
    """Return a row of texts in the layout's order."""
    return {title: Text(one_line(word)) for title, word in zip(layout.titles, words, strict=True)}


def print_list(
    session: Session,
    answer: AnswerList[T],
    layout: Layout,
    row: Callable[[T], Mapping[str, Text]],
    *,
    nothing: str,
    as_json: bool,
) -> None:
    """Print the items of an answer. Raises UnreadableAnswerError if they cannot be parsed.

    Args:
        session: The session that prints.
        answer: The controller's answer.
        layout: The columns of the table.
        row: The row of an item.
        nothing: Text for a person if there are no items.
        as_json: Print the items as JSON.
    """
    if as_json:
        session.print_json(answer.json.get("items"))
        return
    if not answer.records:
        session.say(nothing)
        return
    session.out.print(fitting(session.out, layout, [row(one) for one in answer.records]))


_ANY_WIDTH = 1000
_WIDEST = 40


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns of a table."""

    titles: tuple[str, ...]
    first_to_go: tuple[str, ...] = ()
    """Columns that are left out first in narrow windows, in order."""
    together: Collection[str] = ()
    """Columns that are left out together, because some parts of a sum would mislead."""
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
