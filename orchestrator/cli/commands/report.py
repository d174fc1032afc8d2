"""report: prints a report, or writes a run's report folder with its artifacts."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated, Literal, cast
from urllib.parse import quote

import typer

from orchestrator.cli.client import Client
from orchestrator.cli.commands.options import CellOption, ReadRunArgument
from orchestrator.cli.errors import CliError
from orchestrator.cli.read_file import refuse_file
from orchestrator.cli.session import Session, cell_path, find_cells, find_run, session_of
from orchestrator.domain.run_record import ArtifactRecord, CellRecord, RunResponse

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
    _, found = find_run(client, run)
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
    client: Client,
    run: RunResponse,
    kind: str | None,
    cells: list[CellRecord],
    *,
    named: str | None,
    form: Format,
) -> list[str]:
    kind = kind or ("platform" if named else RUN_WIDE)
    if kind not in PER_CELL:
        return [_rendered(client, run, kind, form, cell=named)]
    return [_rendered(client, run, kind, form, cell=cell.id) for cell in cells]


def _rendered(
    client: Client,
    run: RunResponse,
    kind: str,
    form: Format,
    *,
    cell: str | None,
    alone: bool = True,
) -> str:
    path = f"/runs/{run.id}/reports/{quote(kind, safe='')}.{form}"
    return client.text(path, cell=cell, alone="true" if alone else None)


def _print(session: Session, documents: list[str], form: Format) -> None:
    if form != "json" or len(documents) == 1:
        for document in documents:
            typer.echo(document, nl=not document.endswith("\n"))
        return
    session.print_json([json.loads(document) for document in documents])


class _Tree:
    """``SUMMARY.md``, and a folder for each cell with its report and artifacts."""

    def __init__(
        self,
        client: Client,
        run: RunResponse,
        folder: Path,
        form: Format,
    ) -> None:
        self._client = client
        self._run = run
        self._folder = folder
        self._form = form

    def write(self, kind: str | None, cells: list[CellRecord], *, named: str | None) -> Path:
        """Write the files; return the one to open first."""
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
        text = _rendered(self._client, self._run, kind, self._form, cell=named, alone=False)
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        if self._form == "md":
            self._plots(folder, kind, cell)
        return path

    def _plots(self, folder: Path, kind: str, cell: CellRecord | None) -> None:
        """Write the plots that the Markdown links, under the controller's names."""
        path = f"/runs/{self._run.id}/reports/{quote(kind, safe='')}/plots"
        drawn = self._client.get(path, cell=cell.id if cell else None)
        for plot in cast("list[dict[str, str]]", drawn["items"]):
            if not PLOT_PATH.fullmatch(plot["path"]):
                raise CliError(
                    f"the controller sent a plot with the unsafe path {plot['path']!r}: nothing was"
                    " written of it; are the controller and this command of the same version?"
                )
            target = folder / plot["path"]
            target.parent.mkdir(exist_ok=True)
            target.write_text(plot["svg"], encoding="utf-8")

    def _artifact(self, folder: Path, cell: CellRecord, artifact: ArtifactRecord) -> None:
        # A machine chose the name: it stays in its folder and replaces no report.
        name = artifact.name
        if Path(name).name != name or name in ("", ".", "..") or name.startswith("SUMMARY."):
            raise CliError(
                f"cell {cell.id} has an artifact with the unsafe name {name!r}, which is skipped"
            )
        if artifact.pruned_at is not None:
            return  # the report beside it says so
        path = f"{cell_path(self._run, cell)}/artifacts/{quote(name, safe='')}"
        with self._client.stream(path) as answer, (folder / name).open("wb") as file:
            for chunk in answer.iter_bytes():
                file.write(chunk)
