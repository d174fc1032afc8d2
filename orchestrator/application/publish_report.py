"""Publishes a run's reports, with the artifacts that they were made from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from orchestrator.application.ports.archives import Blobs
from orchestrator.domain.run_record import Evidence


class ReportRefusedError(ValueError):
    """The report was refused: it needs a cell, or contradicts its evidence; the text says why."""


Render = Callable[[str, Evidence, str | None, str], str]
"""Renders (kind, evidence, cell, format)."""

Draw = Callable[[str, Evidence, str | None], Mapping[str, str]]
"""Draws the plots of (kind, evidence, cell): SVG by path beside the document."""

WriteTree = Callable[[str, Mapping[str, Iterable[bytes]]], Path]
"""Writes files by relative path into a run's report folder atomically; returns the folder."""

SUMMARY = "SUMMARY.md"


def publish_report(
    evidence: Evidence, *, render: Render, draw: Draw, blobs: Blobs, write_tree: WriteTree
) -> Path:
    """Render the run's summary and a report per cell; return the summary's path."""
    summary = render("summary", evidence, None, "md")
    files: dict[str, Iterable[bytes]] = {SUMMARY: [summary.encode()]}
    files |= _plots(draw("summary", evidence, None), "")
    for cell in evidence.record.cells:
        page = render("platform", evidence, cell.id, "md")
        files[f"{cell.id}/{SUMMARY}"] = [page.encode()]
        files |= _plots(draw("platform", evidence, cell.id), f"{cell.id}/")
        for artifact in cell.artifacts:
            files[f"{cell.id}/{artifact.name}"] = blobs.open(artifact.digest)
    return write_tree(evidence.record.run.id, files) / SUMMARY


def _plots(drawn: Mapping[str, str], folder: str) -> dict[str, Iterable[bytes]]:
    return {f"{folder}{path}": [svg.encode()] for path, svg in drawn.items()}
