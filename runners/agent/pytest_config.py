"""Which configuration file pytest would find in a folder, and only in that folder."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Optional, Pattern, Tuple

_ANY = re.compile("")
_TABLE = re.compile(r"^\s*\[\s*tool\s*\.\s*pytest\s*(\.\s*ini_options\s*)?\]", re.MULTILINE)
_CANDIDATES: Tuple[Tuple[str, Pattern[str]], ...] = (
    ("pytest.toml", _ANY),
    (".pytest.toml", _ANY),
    ("pytest.ini", _ANY),
    (".pytest.ini", _ANY),
    ("pyproject.toml", _TABLE),
    ("tox.ini", re.compile(r"^\[pytest\]", re.MULTILINE)),
    ("setup.cfg", re.compile(r"^\[tool:pytest\]", re.MULTILINE)),
)


def find(root: Path) -> Optional[Path]:
    """Return the payload's own pytest configuration, in pytest's order of preference."""
    for name, needed in _CANDIDATES:
        path = root / name
        if path.is_file() and needed.search(path.read_text(encoding="utf-8", errors="replace")):
            return path
    return None
