"""init, doctor: the first minutes."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from orchestrator.cli.commands.options import JsonOption
from orchestrator.cli.doctor import check_up
from orchestrator.cli.errors import CliError
from orchestrator.cli.session import session_of

_STYLES = {"OK": "green", "WARN": "yellow", "FAIL": "bold red"}


def init_command(
    context: typer.Context,
    folder: Annotated[
        Path, typer.Argument(metavar="[FOLDER]", help="The project.", show_default="here")
    ] = Path(),
    force: Annotated[
        bool, typer.Option("--force", help="Replace files that are there already.")
    ] = False,
) -> None:
    """Write payload.toml and seatrial.yaml for an existing project, so that it can be run."""
    # Only this command needs them, and every command pays for what is imported above.
    from orchestrator.cli.starter.project_metadata import survey  # noqa: PLC0415
    from orchestrator.cli.starter.starter_files import files_for, write_all  # noqa: PLC0415

    session = session_of(context)
    if not folder.is_dir():
        raise CliError(f"{folder}: there is no such folder")
    project = survey(folder)
    files = files_for(project, folder)
    write_all(files, force=force)
    for note in project.notes:
        session.say(f"note: {note}")
    for file in files:
        session.print(f"wrote {file.path}")
    session.say(f"Next: seatrial run {files[-1].path}")


def doctor_command(context: typer.Context, as_json: JsonOption = False) -> None:
    """Check this computer, the home and the controller; say what to do."""
    session = session_of(context)
    findings = []
    for finding in check_up(session):
        findings.append(finding)
        if not as_json:
            line = Text(f"{finding.level:<5} ", style=_STYLES[finding.level])
            session.out.print(line.append(f"{finding.name:<11} {finding.text}", style="default"))
    if as_json:
        session.print_json([asdict(finding) for finding in findings])
