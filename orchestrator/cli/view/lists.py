"""Lists as tables for a person or as JSON for a program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from rich.text import Text

from orchestrator.cli.client import Json
from orchestrator.cli.responses import read_items
from orchestrator.cli.safe_text import one_line
from orchestrator.cli.session import Session
from orchestrator.cli.view.tables import Layout, fitting

T = TypeVar("T")


def row_of(layout: Layout, *words: str) -> dict[str, Text]:
    """Return a row of texts in the layout's order."""
    return {title: Text(one_line(word)) for title, word in zip(layout.titles, words, strict=True)}


def print_list(
    session: Session,
    answer: Json,
    kind: type[T],
    layout: Layout,
    row: Callable[[T], Mapping[str, Text]],
    *,
    nothing: str,
    as_json: bool,
) -> None:
    """Print the items of an answer. Raises CliError if they cannot be parsed.

    Args:
        session: The session that prints.
        answer: The controller's answer.
        kind: The record that each item is.
        layout: The columns of the table.
        row: The row of an item.
        nothing: Text for a person if there are no items.
        as_json: Print the items as JSON.
    """
    if as_json:
        session.print_json(answer.get("items"))
        return
    found = read_items(kind, answer)
    if not found:
        session.say(nothing)
        return
    session.out.print(fitting(session.out, layout, [row(one) for one in found]))
