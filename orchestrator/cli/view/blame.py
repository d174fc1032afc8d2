"""Who broke the failing tests that ran again, two lines a test."""

from __future__ import annotations

from rich.console import Group
from rich.table import Table
from rich.text import Text

from orchestrator.cli.responses import Diagnosed, Run
from orchestrator.cli.safe_text import one_line
from orchestrator.cli.view.glyphs import style_of, word
from orchestrator.domain.units import plural

SHOWN = 20
"""Tests that a window has room for."""


def blamed(run: Run) -> Group | None:
    """The answer for each failing test that ran again; None where none did."""
    if not run.diagnosed:
        return None
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold", ratio=1)
    for one in run.diagnosed[:SHOWN]:
        table.add_row(_answer(one), _test(one, many=len(run.cells) > 1))
    parts: list[Text | Table] = [Text("\nwho broke it", style="bold"), table]
    hidden = len(run.diagnosed) - SHOWN
    if hidden > 0:
        parts.append(Text(f"  and {plural(hidden, 'more test')}; --json has them all", "dim"))
    return Group(*parts)


def _answer(one: Diagnosed) -> Text:
    return Text(f"  {word(one.answer)}", style=style_of(one.answer))


def _test(one: Diagnosed, *, many: bool) -> Text:
    line = Text(one_line(str(one)))
    if many:
        line.append(f"  {one_line(one.cell)}", style="dim")
    line.append(f"\n{one_line(one.tried)}")
    if one.sentence:
        line.append(f"\n{one_line(one.sentence)}", style="dim")
    return line
