"""Write a run's reports down, with the raw files they were made from beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from orchestrator.application.ports.blobs import Blobs
from orchestrator.domain.run_record import Evidence

Render = Callable[[str, Evidence, str | None, str], str]
"""Renders (kind, evidence, cell, format)."""

Draw = Callable[[str, Evidence, str | None], Mapping[str, str]]
"""The plots that (kind, evidence, cell) links: SVG by path beside the document."""

WriteTree = Callable[[str, Mapping[str, Iterable[bytes]]], Path]
"""Puts files (by relative path) where a run's report is, all at once; returns the folder."""

SUMMARY = "SUMMARY.md"


def publish_report(
    evidence: Evidence, *, render: Render, draw: Draw, blobs: Blobs, write_tree: WriteTree
) -> Path:
    """Render the run's summary and a page per cell; return the summary's path."""
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
