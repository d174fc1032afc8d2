"""Write a run's reports down, with the raw files they were made from beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from orchestrator.application.ports.blobs import Blobs
from orchestrator.domain.record import Evidence

Render = Callable[[str, Evidence, str | None, str], str]
"""Renders (kind, evidence, cell, format)."""

WriteTree = Callable[[str, Mapping[str, Iterable[bytes]]], Path]
"""Puts files (by relative path) where a run's report is, all at once; returns the folder."""

SUMMARY = "SUMMARY.md"


def publish_report(
    evidence: Evidence, *, render: Render, blobs: Blobs, write_tree: WriteTree
) -> Path:
    """Render the run's summary and a page per cell; return the summary's path."""
    summary = render("summary", evidence, None, "md")
    files: dict[str, Iterable[bytes]] = {SUMMARY: [summary.encode()]}
    for cell in evidence.record.cells:
        page = render("platform", evidence, cell.id, "md")
        files[f"{cell.id}/{SUMMARY}"] = [page.encode()]
        for artifact in cell.artifacts:
            files[f"{cell.id}/{artifact.name}"] = blobs.open(artifact.digest)
    return write_tree(evidence.record.run.id, files) / SUMMARY
