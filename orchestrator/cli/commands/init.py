"""init: makes a project ready to run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.errors import CliError
from orchestrator.cli.session import Session, session_of
from orchestrator.domain.document_problems import InvalidDocumentError


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
    kept = [] if policy in written else _kept_policy_notes(session, policy.path, project.name)
    for note in (*project.notes, *kept):
        session.say(f"note: {note}")
    for file in written:
        session.print(f"wrote {file.path}")
    steps = [] if project.tests.is_found else ["put tests into tests/ (test_*.py)"]
    steps += [f"seatrial run {matrix.path}", f"seatrial gate check {policy.path}"]
    session.say(f"Next: {', then '.join(steps)}")


def _kept_policy_notes(session: Session, path: Path, product: str) -> list[str]:
    """Return a note if the kept policy is for another product."""
    try:
        kept = session.wiring.documents.read_policy(path.read_text(encoding="utf-8"), str(path))
    except (InvalidDocumentError, UnicodeDecodeError, OSError):
        return []  # `gate check` says what is wrong with it
    if kept.metadata.product == product:
        return []
    decides = f"{path} is kept, and it decides on {kept.metadata.product!r}, not on {product!r}"
    correct = "correct name and product in its metadata, or delete it and run"
    return [f"{decides}: {correct} `seatrial init --force`"]
