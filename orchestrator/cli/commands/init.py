"""init: makes a project ready to run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.errors import CliError
from orchestrator.cli.session import session_of


def init_command(
    context: typer.Context,
    folder: Annotated[
        Path, typer.Argument(metavar="[FOLDER]", help="The project.", show_default="here")
    ] = Path(),
    force: Annotated[
        bool, typer.Option("--force", help="Replace payload.toml and seatrial.yaml if they exist.")
    ] = False,
) -> None:
    """Write payload.toml, seatrial.yaml and gate.yaml for an existing project.

    A gate.yaml that exists is kept.
    """
    # Only this command needs them, and every command pays for what is imported above.
    from orchestrator.cli.starter.starter_files import (  # noqa: PLC0415
        files_for,
        inspect_project,
        write_all,
    )

    session = session_of(context)
    if not folder.is_dir():
        raise CliError(f"{folder}: there is no such folder")
    project = inspect_project(folder)
    payload, matrix, policy = files_for(project, folder)
    written = write_all((payload, matrix, policy), force=force)
    for note in project.notes:
        session.say(f"note: {note}")
    for file in written:
        session.print(f"wrote {file.path}")
    steps = [] if project.tests.is_found else ["put tests into tests/ (test_*.py)"]
    steps += [f"seatrial run {matrix.path}", f"seatrial gate check {policy.path}"]
    session.say(f"Next: {', then '.join(steps)}")
