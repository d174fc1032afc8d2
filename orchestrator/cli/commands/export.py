"""export: results in formats of other programs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import quote

import typer

from orchestrator.cli.client import Client
from orchestrator.cli.commands.options import CellOption, ReadRunArgument
from orchestrator.cli.errors import CliError
from orchestrator.cli.session import find_cells, find_run, session_of

Format = Literal["junit", "ctrf", "csv", "json", "intoto"]


def export_command(
    context: typer.Context,
    run: ReadRunArgument = "latest",
    form: Annotated[
        Format,
        typer.Option("--format", metavar="junit|ctrf|csv|json|intoto", help="What is to read it."),
    ] = "junit",
    cell: CellOption = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="Write there instead of printing."),
    ] = None,
) -> None:
    """Write every test and check in a format that other programs read."""
    session = session_of(context)
    client = session.reader()
    _, found = find_run(client, run)
    path = f"/runs/{found.id}/export/{form}"
    if cell is not None:
        (named,) = find_cells(found, cell)
        path += f"?cell={quote(named.id, safe='')}"
    if output is None:
        for chunk in _chunks(client, path):
            typer.echo(chunk, nl=False)
        return
    try:
        _write(output, _chunks(client, path))
    except OSError as error:
        raise CliError(f"{output}: {error.strerror or error}") from None
    session.print(str(output))


def _chunks(client: Client, path: str) -> Iterator[bytes]:
    with client.stream(path) as answer:
        yield from answer.iter_bytes()


def _write(output: Path, chunks: Iterator[bytes]) -> None:
    """Write the file atomically."""
    part = output.with_name(f"{output.name}.part")
    try:
        with part.open("wb") as file:
            for chunk in chunks:
                file.write(chunk)
        part.replace(output)
    finally:
        part.unlink(missing_ok=True)
