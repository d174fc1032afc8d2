"""Texts that were looked at once and must not change unnoticed."""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = Path(__file__).parent / "goldens"


def assert_golden(name: str, text: str) -> None:
    """Compare with the stored text; ``SEATRIAL_WRITE_GOLDENS=1`` stores it instead."""
    path = FOLDER / name
    if os.environ.get("SEATRIAL_WRITE_GOLDENS"):
        FOLDER.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text
