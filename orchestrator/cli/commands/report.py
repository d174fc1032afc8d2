"""Commands on reports: render, export, compare, lint."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from orchestrator.cli.commands.options import CellOption, JsonOption, ReadRunArgument
from orchestrator.cli.errors import FAILED, CliError
from orchestrator.cli.read_file import refuse_file
from orchestrator.cli.safe_text import one_line
from orchestrator.cli.session import Session, find_cells, session_of
from orchestrator.client.seatrial import Seatrial
from orchestrator.domain.lint_findings import LEVELS, DocumentFinding, ForeignDocument
from orchestrator.domain.run_record import ArtifactRecord, CellRecord, RunResponse
from orchestrator.domain.units import plural

RUN_WIDE = "summary"
PER_CELL = frozenset({"platform"})
PLOT_PATH = re.compile(r"plots/[a-z0-9-]+\.svg")
Format = Literal["md", "html", "json"]


def report_command(
    context: typer.Context,
    run: ReadRunArgument = "latest",
    kind: Annotated[
        str | None,
        typer.Option(
            "--kind",
            metavar="KIND",
            help="summary, platform ... Default: summary; platform with --cell.",
        ),
    ] = None,
    cell: CellOption = None,
    form: Annotated[
        Format, typer.Option("--format", metavar="md|html|json", help="How it is written.")
    ] = "md",
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", metavar="DIR", help="Write there instead of printing, with raw files."
        ),
    ] = None,
) -> None:
    """Render a report from what is stored."""
    refuse_file(output)
    session = session_of(context)
    client = session.reader()
    found = client.run(run).record
    cells = find_cells(found, cell)
    if output is None:
        _print(session, _documents(client, found, kind, cells, named=cell, form=form), form)
        return
    tree = _Tree(client, found, output, form)
    try:
        written = tree.write(kind, cells, named=cell)
    except OSError as error:
        raise CliError(f"{output}: {error.strerror or error}") from None
    session.print(str(written))


def _documents(
    client: Seatrial,
    run: RunResponse,
    kind: str | None,
    cells: list[CellRecord],
    *,
    named: str | None,
    form: Format,
) -> list[str]:
    kind = kind or ("platform" if named else RUN_WIDE)
    if kind not in PER_CELL:
        return [client.report(run.id, kind, form, cell=named)]
    return [client.report(run.id, kind, form, cell=cell.id) for cell in cells]


def _print(session: Session, documents: list[str], form: Format) -> None:
    if form != "json" or len(documents) == 1:
        for document in documents:
            typer.echo(document, nl=not document.endswith("\n"))
        return
    session.print_json([json.loads(document) for document in documents])


class _Tree:
    """Writes ``SUMMARY.md`` and a folder for each cell with its report and artifacts."""

    def __init__(
        self,
        client: Seatrial,
        run: RunResponse,
        folder: Path,
        form: Format,
    ) -> None:
        self._client = client
        self._run = run
        self._folder = folder
        self._form = form

    def write(self, kind: str | None, cells: list[CellRecord], *, named: str | None) -> Path:
        """Write the files; return the path of the file to open first."""
        first = None
        if named is None and kind not in PER_CELL:
            first = self._document(self._folder, kind or RUN_WIDE, None)
        if kind is None or kind in PER_CELL:
            for cell in cells:
                folder = self._folder / cell.id
                path = self._document(folder, kind or "platform", cell)
                first = first or path
                for artifact in cell.artifacts:
                    self._artifact(folder, cell, artifact)
        if first is None:
            raise CliError(f"the {kind} report is about the whole run: leave --cell out")
        return first

    def _document(self, folder: Path, kind: str, cell: CellRecord | None) -> Path:
        stem = "SUMMARY" if kind in (RUN_WIDE, "platform") else kind.upper()
        path = folder / f"{stem}.{self._form}"
        named = cell.id if cell else None
        text = self._client.report(self._run.id, kind, self._form, cell=named, alone=False)
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        if self._form == "md":
            self._plots(folder, kind, cell)
        return path

    def _plots(self, folder: Path, kind: str, cell: CellRecord | None) -> None:
        """Write the plots that the Markdown links, under the controller's names."""
        drawn = self._client.plots(self._run.id, kind, cell=cell.id if cell else None)
        for plot in drawn.records:
            if not PLOT_PATH.fullmatch(plot.path):
                raise CliError(
                    f"the controller sent a plot with the unsafe path {plot.path!r}: nothing was"
                    " written of it; are the controller and this command of the same version?"
                )
            target = folder / plot.path
            target.parent.mkdir(exist_ok=True)
            target.write_text(plot.svg, encoding="utf-8")

    def _artifact(self, folder: Path, cell: CellRecord, artifact: ArtifactRecord) -> None:
        # The machine chose the name: it must stay in its folder and replace no report.
        name = artifact.name
        if Path(name).name != name or name in ("", ".", "..") or name.startswith("SUMMARY."):
            raise CliError(
                f"cell {cell.id} has an artifact with the unsafe name {name!r}, which is skipped"
            )
        if artifact.pruned_at is not None:
            return  # the report beside it says so
        opened = self._client.artifact(self._run.id, cell.id, name)
        with opened as chunks, (folder / name).open("wb") as file:
            file.writelines(chunks)


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
    answer = session.client().lint(documents, run=evidence)
    found = answer.record.findings
    if as_json:
        session.print_json(answer.json)
    else:
        _print_findings(session, found)
    if strict and any(finding.level == "error" for finding in found):
        raise typer.Exit(FAILED)


def _document(file: Path) -> ForeignDocument:
    try:
        if file.stat().st_size > _LARGEST_BYTES:
            raise CliError(f"{file} is larger than {_LARGEST_BYTES} bytes: that is no report")
        raw = file.read_bytes()
    except OSError as error:
        raise CliError(f"{file}: {error.strerror or error}") from None
    text = raw.decode("utf-8-sig", "replace")
    before = raw.decode("utf-8-sig", "ignore").count("\ufffd")
    return ForeignDocument(file.name, text, text.count("\ufffd") - before)


def _print_findings(session: Session, document_findings: Sequence[DocumentFinding]) -> None:
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


ExportFormat = Literal["junit", "ctrf", "csv", "json", "intoto"]


def export_command(
    context: typer.Context,
    run: ReadRunArgument = "latest",
    form: Annotated[
        ExportFormat,
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
    found = client.run(run).record
    named = find_cells(found, cell)[0].id if cell is not None else None
    with client.export(found.id, form, cell=named) as chunks:
        if output is None:
            for chunk in chunks:
                typer.echo(chunk, nl=False)
            return
        try:
            _write(output, chunks)
        except OSError as error:
            raise CliError(f"{output}: {error.strerror or error}") from None
    session.print(str(output))


def _write(output: Path, chunks: Iterator[bytes]) -> None:
    """Write the file atomically."""
    part = output.with_name(f"{output.name}.part")
    try:
        with part.open("wb") as file:
            file.writelines(chunks)
        part.replace(output)
    finally:
        part.unlink(missing_ok=True)


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
    form = "json" if as_json else form
    text = session.reader().compare(base, head, form)
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
