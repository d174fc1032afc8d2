"""Values that change with a file."""

# ruff: noqa: PTH116 - paths as text, of which there are hundreds

from __future__ import annotations

import os
from pathlib import Path
from typing import Optional, Tuple, Union

Mark = Optional[Tuple[int, int, int, int]]
"""Inode, size, and the times of the last change of content and of metadata of a file."""


def mark_of(file: Union[Path, str], *, is_link: bool = False) -> Mark:
    """Return what changes with the file, or with the link itself; None if it cannot be seen."""
    try:
        found = os.lstat(file) if is_link else os.stat(file)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
