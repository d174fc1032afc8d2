"""Artifacts for the tests of demo dialects: the golden logs, and texts written on the spot."""

from __future__ import annotations

from pathlib import Path

from orchestrator.application.ports.result_parsers import HEAD_BYTES, TAIL_BYTES, Artifact

LOGS = Path(__file__).parents[2] / "golden/logs/gcp_l4_v046"
SEEDS = Path(__file__).parents[2] / "golden/seeds"


def artifact(path: Path) -> Artifact:
    """A file as an artifact."""
    data = path.read_bytes()
    return Artifact(path.name, path, len(data), data[:HEAD_BYTES], data[-TAIL_BYTES:])


def golden(name: str) -> Artifact:
    """A real log."""
    return artifact(LOGS / name)


def written(folder: Path, text: str, name: str = "demo.txt") -> Artifact:
    """A text as an artifact."""
    path = folder / name
    path.write_text(text, encoding="utf-8", newline="")
    return artifact(path)
