"""failures: the failures of a run, and the commands that show their logs."""

from __future__ import annotations

import typer
from rich.text import Text

from orchestrator.cli.commands.options import CellOption, JsonOption, LimitOption, ReadRunArgument
from orchestrator.cli.run_failures import FailureLine, failures_of
from orchestrator.cli.safe_text import one_line
from orchestrator.cli.session import Session, find_cells, find_run, session_of
from orchestrator.cli.view.glyphs import sign_of, word


def failures_command(
    context: typer.Context,
    run: ReadRunArgument = "latest",
    cell: CellOption = None,
    limit: LimitOption = 50,
    as_json: JsonOption = False,
) -> None:
    """List what failed in a run: job, test, cells, error, and the command that shows its log."""
    session = session_of(context)
    client = session.reader()
    _, found = find_run(client, run)
    failures = failures_of(client, found, find_cells(found, cell))
    if as_json:
        session.print_json([one.as_json() for one in failures])
        return
    if not failures:
        so_far = "" if found.is_finished else " so far"
        session.say(f"Nothing failed in run {found.id}{so_far}.")
    for failure in failures[:limit]:
        _print(session, failure)
    if len(failures) > limit:
        session.say(f"{len(failures) - limit} more; --limit or --json shows them.")


def _print(session: Session, failure: FailureLine) -> None:
    sign = sign_of(failure.outcome)
    name = " ".join(part for part in (failure.job, failure.test) if part) or "the cell"
    line = Text(f"{sign.glyph} {one_line(name)}", style=sign.style)
    line.append(f"  {word(failure.outcome)} on {one_line(', '.join(failure.cells))}", style="dim")
    session.out.print(line, soft_wrap=True)
    files = f"files: {', '.join(failure.artifacts)}" if failure.artifacts else ""
    for said in (failure.error, files, failure.log):
        if said:
            session.print(f"    {one_line(said)}")
