"""Brings the reference of keys in the pages up to date: ``python -m docs.generate_reference``."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

from orchestrator.adapters.files.key_reference import replace_keys
from orchestrator.domain.manifest import Manifest
from orchestrator.domain.matrix import COMMON_KEYS, Matrix, Platform
from runners import registry

DOCS = Path(__file__).resolve().parent


def pages() -> dict[Path, str]:
    """Each page as it should be."""
    matrix, payload = DOCS / "reference" / "matrix.md", DOCS / "reference" / "payload.md"
    return {
        matrix: replace_keys(matrix.read_text(encoding="utf-8"), Matrix, platform_notes()),
        payload: replace_keys(payload.read_text(encoding="utf-8"), Manifest),
    }


def platform_notes() -> dict[str, str]:
    """Which providers take which of a platform's keys."""
    traits = [registry.traits(name) for name in sorted(registry.BUILT_IN)]
    notes = {}
    for field in fields(Platform):
        takers = [
            f"`{each.name}`{' (required)' if field.name in each.required else ''}"
            for each in traits
            if field.name in each.keys
        ]
        if field.name not in COMMON_KEYS:
            notes[f"Platform.{field.name}"] = f"Taken by: {', '.join(takers) or 'none yet'}."
    return notes


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
