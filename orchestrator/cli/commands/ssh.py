"""ssh: going to the machine of a cell."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli.commands.options import RunArgument
from orchestrator.cli.find_run import cell_path, find_cells, find_run
from orchestrator.cli.session import session_of
from orchestrator.cli.ssh_client import enter, find_key_file, find_ssh, read_access

SETTINGS = {"ignore_unknown_options": True, "allow_interspersed_args": False}
"""What follows the cell is the machine's."""


def ssh_command(
    context: typer.Context,
    run: RunArgument,
    cell: Annotated[str, typer.Argument(metavar="CELL", help="The cell whose machine it is.")],
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[-- COMMAND...]",
            help="What to run there, as ssh takes it; a shell by default.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Sign in on the machine that a cell holds. The exit code is ssh's own.

    Only the pinned host key is accepted. The key is in a private folder while ssh runs.
    """
    session = session_of(context)
    program = find_ssh()
    client = session.client()
    _, found = find_run(client, run)
    (one,) = find_cells(found, cell)
    access = read_access(client.get(f"{cell_path(found, one)}/access"))
    key_file = find_key_file(access, client.line.home)
    words = command or []
    raise typer.Exit(enter(program, access, key_file, words[words[:1] == ["--"] :]))
