"""annotate: annotations of a run, for its reports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.commands.options import CellOption, JsonOption, RunArgument, text_option
from orchestrator.cli.errors import CliError
from orchestrator.cli.safe_text import one_line
from orchestrator.cli.session import Session, session_of
from orchestrator.client.transport import Json
from orchestrator.domain.lint_findings import CheckedAnnotation
from orchestrator.domain.run_record import RunResponse
from orchestrator.domain.units import plural

_LARGEST_BYTES = 1 << 19
_KINDS = "narrative, fix, recommendation, known-issue, note or conclusion"


_File = Annotated[
    Path | None,
    typer.Argument(metavar="FILE", help="A file of annotations (YAML).", show_default=False),
]


def annotate_command(
    context: typer.Context,
    run: RunArgument,
    file: _File = None,
    kind: Annotated[str, text_option("--kind", "KIND", f"Of one annotation: {_KINDS}.")] = "",
    title: Annotated[str, text_option("--title", "LINE", "One line.")] = "",
    text: Annotated[str, text_option("--text", "MARKDOWN", "What there is to say.")] = "",
    author: Annotated[str, text_option("--author", "NAME", "Who says so.")] = "",
    at: Annotated[str, text_option("--at", "DATE", "2026-01-19, or a time; now by default.")] = "",
    cell: CellOption = None,
    as_json: JsonOption = False,
) -> None:
    """Add annotations to the reports of a run: narrative, fixes, recommendations.

    An annotation that the results contradict is kept, and shown with the contradiction.
    """
    session = session_of(context)
    given = {"kind": kind, "title": title, "text": text, "author": author, "at": at}
    said: Json = {name: value for name, value in given.items() if value}
    said |= {"cell": cell} if cell is not None else {}
    if file is not None and said:
        first = next(iter(said))
        raise CliError(f"--{first} is for a single annotation: write it into {file}, or leave one")
    if file is None and not kind:
        raise CliError("name a file of annotations, or say --kind, --text and --author")
    client = session.client()
    found = client.run(run).record
    body = _from_file(session, file, found) if file is not None else [said]
    name = str(file) if file is not None else ""
    answer = client.annotate(found.id, body, document=name)
    if as_json:
        session.print_json(answer.json["items"])
    _tell(session, found, answer.records)


def _from_file(session: Session, file: Path, run: RunResponse) -> list[Json]:
    try:
        if file.stat().st_size > _LARGEST_BYTES:
            raise CliError(f"{file} is larger than {_LARGEST_BYTES} bytes")
        text = file.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise CliError(f"{file}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise CliError(f"{file} is not UTF-8: byte {error.start} is wrong") from None
    cells = [cell.id for cell in run.cells]
    read = session.wiring.documents.read_annotations(text, str(file), cells=cells)
    return [asdict(one) for one in read]


def _tell(session: Session, run: RunResponse, kept: Sequence[CheckedAnnotation]) -> None:
    for one in kept:
        name = one_line(one.title or one.text)[:60]
        for doubt in one.doubts:
            word = "CONTRADICTED" if doubt.level == "error" else "not backed"
            session.say(f"{one_line(one.kind)} {name!r}: {word}: {one_line(doubt.message)}")
    session.say(f"{plural(len(kept), 'annotation')} of run {run.id} kept")
