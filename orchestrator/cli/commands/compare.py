"""compare: differences of two runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.commands.options import JsonOption
from orchestrator.cli.commands.report import Format
from orchestrator.cli.errors import CliError
from orchestrator.cli.read_file import refuse_file
from orchestrator.cli.session import find_run, session_of

NAME = "COMPARE"


def compare_command(
    context: typer.Context,
    base: Annotated[
        str, typer.Argument(metavar="BASE", help="The run to compare with: an id, or its start.")
    ],
    head: Annotated[
        str,
        typer.Argument(
            metavar="[HEAD]",
            help="The run that is looked at; the latest by default.",
            show_default=False,
        ),
    ] = "latest",
    form: Annotated[
        Format, typer.Option("--format", metavar="md|html|json", help="How it is written.")
    ] = "md",
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="DIR", help="Write there instead of printing."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show what changed between two runs: new failures, fixed tests, figures and costs."""
    refuse_file(output)
    session = session_of(context)
    client = session.reader()
    form = "json" if as_json else form
    runs = [find_run(client, name)[1].id for name in (base, head)]
    text = client.text("/compare", base=runs[0], head=runs[1], format=form)
    if output is not None:
        path = output / f"{NAME}.{form}"
        try:
            output.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise CliError(f"{path}: {error.strerror or error}") from None
        session.print(str(path))
    elif form == "json":
        session.print_json(json.loads(text))
    else:
        typer.echo(text, nl=not text.endswith("\n"))
