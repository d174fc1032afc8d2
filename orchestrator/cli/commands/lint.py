"""lint: checks of Markdown reports."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.client import read
from orchestrator.cli.commands.options import JsonOption
from orchestrator.cli.errors import FAILED, CliError
from orchestrator.cli.safe_text import one_line
from orchestrator.cli.session import Session, session_of
from orchestrator.domain.lint_findings import LEVELS, DocumentFinding
from orchestrator.domain.units import plural

_LARGEST_BYTES = 1 << 19
_MOST_FILES = 50


def lint_command(
    context: typer.Context,
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="Markdown reports; several are held against one another too.",
            show_default=False,
        ),
    ],
    evidence: Annotated[
        str | None,
        typer.Option(
            "--evidence",
            metavar="RUN",
            help="Hold them against a run's results: its id, the beginning of one, or `latest`.",
        ),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 1 where an error is found.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Check Markdown reports of any origin for errors."""
    session = session_of(context)
    if len(files) > _MOST_FILES:
        raise CliError(f"{len(files)} files are too many: at most {_MOST_FILES} go together")
    documents = [_document(file) for file in files]
    body = {"documents": documents, "run": evidence}
    answer = session.client().post("/lint", body)
    found = read(tuple[DocumentFinding, ...], answer.get("findings"))
    if as_json:
        session.print_json(answer)
    else:
        _print(session, found)
    if strict and any(finding.level == "error" for finding in found):
        raise typer.Exit(FAILED)


def _document(file: Path) -> dict[str, object]:
    try:
        if file.stat().st_size > _LARGEST_BYTES:
            raise CliError(f"{file} is larger than {_LARGEST_BYTES} bytes: that is no report")
        raw = file.read_bytes()
    except OSError as error:
        raise CliError(f"{file}: {error.strerror or error}") from None
    text = raw.decode("utf-8-sig", "replace")
    before = raw.decode("utf-8-sig", "ignore").count("\ufffd")
    return {"name": file.name, "text": text, "replaced": text.count("\ufffd") - before}


def _print(session: Session, document_findings: Sequence[DocumentFinding]) -> None:
    """Print findings by document and level, with each rule's advice after its last finding."""
    for document in dict.fromkeys(finding.document for finding in document_findings):
        inside = [finding for finding in document_findings if finding.document == document]
        session.print(one_line(document))
        for finding in inside:
            said = one_line(finding.message)
            session.print(f"  {finding.line:>5}  {finding.level:<8} {finding.rule}: {said}")
        _advise(session, inside)
    told = [(level, len([f for f in document_findings if f.level == level])) for level in LEVELS]
    session.say(
        ", ".join(plural(n, level) for level, n in told) if document_findings else "nothing found"
    )


def _advise(session: Session, document_findings: Sequence[DocumentFinding]) -> None:
    advice = {finding.rule: finding.advice for finding in document_findings if finding.advice}
    for rule, text in advice.items():
        session.print(f"         {one_line(rule)}: {one_line(text)}")
