"""slowest: the slowest tests of a run, compared with their earlier durations."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from orchestrator.cli.commands.options import CellOption, JsonOption, ReadRunArgument
from orchestrator.cli.safe_text import one_line
from orchestrator.cli.session import find_cells, find_run, session_of
from orchestrator.cli.view.glyphs import sign_of
from orchestrator.cli.view.tables import Layout, print_list
from orchestrator.domain.test_comparison import TestDuration
from orchestrator.domain.units import duration

_LAYOUT = Layout(
    titles=("took", "usually", "change", "test", "cell"),
    first_to_go=("change", "usually", "cell"),
    whole=("took",),
    right=("took", "usually", "change"),
)


def slowest_command(
    context: typer.Context,
    run: ReadRunArgument = "latest",
    cell: CellOption = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", metavar="N", min=1, max=500, help="Show at most N.")
    ] = 20,
    as_json: JsonOption = False,
) -> None:
    """List the tests of a run that took longest, and how long they took before."""
    session = session_of(context)
    client = session.reader()
    _, found = find_run(client, run)
    find_cells(found, cell)
    answer = client.get(f"/runs/{found.id}/slowest-tests", cell=cell, limit=limit)
    nothing = f"No test of run {found.id} has a duration."
    print_list(session, answer, TestDuration, _LAYOUT, _row, nothing=nothing, as_json=as_json)


def _row(one: TestDuration) -> dict[str, Text]:
    sign = sign_of(one.outcome)
    usual, change = one.usual_s, one.change
    said = f"{change:+.0%}" if change is not None else ""
    texts = (
        Text(duration(one.duration_s)),
        Text(duration(usual) if usual is not None else ""),
        Text(said, style="yellow" if one.is_much_slower else ""),
        Text(f"{sign.glyph} ", style=sign.style).append(one_line(f"{one.job} {one.nodeid}"), ""),
        Text(one_line(one.cell)),
    )
    return dict(zip(_LAYOUT.titles, texts, strict=True))
