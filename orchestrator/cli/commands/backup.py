"""backup and restore: a controller's database and files in one file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.commands.options import JsonOption
from orchestrator.cli.errors import CliError, RefusedError
from orchestrator.cli.session import Session, session_of
from orchestrator.cli.wiring import BackupReport
from orchestrator.domain.units import plural, size

FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="The backup: a .tar.gz file.")]


def backup_command(context: typer.Context, file: FileArgument, as_json: JsonOption = False) -> None:
    """Copy the controller's database and files into one file, also while runs go on.

    It has no secrets: keys, tokens and channels' addresses stay where they are.
    """
    session = session_of(context)
    report = _here(session, session.wiring.backup, file)
    if as_json:
        session.print_json(asdict(report))
        return
    session.print(report.file)
    blobs = plural(report.blobs, "blob")
    session.say(f"All rows of {report.database} and {blobs}, {size(report.size_bytes)}, verified.")


def restore_command(
    context: typer.Context, file: FileArgument, as_json: JsonOption = False
) -> None:
    """Fill an empty home, or an empty database, from a backup.

    Runs that were going on are cancelled, and their machines ended, once a controller starts.
    """
    session = session_of(context)
    report = _here(session, session.wiring.restore, file)
    if as_json:
        session.print_json(asdict(report))
        return
    session.say(f"{report.database} is as it was at {report.at}. Start one controller now:")
    session.say("it ends the machines of the runs that were going on, which are cancelled.")
    session.say("`seatrial machines --orphans` lists what was rented since then.")


def _here(session: Session, act: Callable[[Path], BackupReport], file: Path) -> BackupReport:
    if session.settings.url is not None:
        raise CliError(
            "A backup is made and restored where the controller's home and database are:"
            " unset SEATRIAL_URL, and set SEATRIAL_HOME or SEATRIAL_DATABASE_URL there."
        )
    try:
        return act(file.absolute())
    except RefusedError as error:
        raise CliError(str(error)) from None
