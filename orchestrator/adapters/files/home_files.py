"""Files of a home that its controller can make again: rendered reports and wheelhouses."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from orchestrator.domain.retention import Amount

_RUN_ID = re.compile(r"[0-9A-Za-z._-]{1,100}")


class HomeCaches:
    """Rendered reports and wheelhouses below a home."""

    def __init__(self, home: Path) -> None:
        self._runs = home / "runs"
        self._wheels = home / "wheels"
        self._copies = [home / "work" / kind for kind in ("payloads", "wheels", "agents")]
        self._doomed = home / "tmp"

    def reports(self) -> Iterator[str]:
        """Yield the ids of runs with rendered reports."""
        for path in sorted(self._runs.iterdir()) if self._runs.is_dir() else ():
            if _RUN_ID.fullmatch(path.name) and (path / "report").is_dir():
                yield path.name

    def drop_reports(self, run_id: str, *, dry: bool) -> Amount:
        """Remove a run's rendered reports with their copies of artifacts, or only count them."""
        folder = self._runs / run_id
        size = _size(folder / "report")
        if not dry:
            shutil.rmtree(folder / "report", ignore_errors=True)
            with suppress(OSError):  # something of a person's is in it, or another writes it anew
                folder.rmdir()
        return Amount(1, size)

    def drop_wheels(self, before: datetime, *, dry: bool) -> Iterator[Amount]:
        """Remove wheelhouses that were resolved before a time, or only count them.

        What killed resolutions left is removed too. A resolution is looked up on its own day only,
        and packs its wheels anew: what is older is named by none, as long as no attempt takes
        longer than `before` is ago from its resolution to shipping the wheels.
        """
        for path in sorted(self._wheels.iterdir()) if self._wheels.is_dir() else ():
            with suppress(FileNotFoundError):
                if path.lstat().st_mtime > before.timestamp():
                    continue
                size = _size(path)
                if not dry:
                    _remove(path)
                yield Amount(1, size)

    def drop_copies(self, before: datetime, *, dry: bool) -> Iterator[Amount]:
        """Remove unpacked payloads, wheels and agents of local jobs, or only count them.

        Those that no attempt has begun with since a time: each one notes that it uses them. A
        folder is renamed first, so that whoever begins meanwhile finds none, and sends it again.
        """
        for path in [one for shelf in self._copies if shelf.is_dir() for one in shelf.iterdir()]:
            with suppress(FileNotFoundError):
                if path.lstat().st_mtime > before.timestamp():
                    continue
                amount = Amount(1, _size(path))
                if not dry:
                    gone = Path(tempfile.mkdtemp(prefix="pruned-", dir=self._doomed))
                    path.rename(gone / path.name)
                    shutil.rmtree(gone, ignore_errors=True)
                yield amount


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _size(path: Path) -> int:
    """Return the bytes of a file, or of all files of a folder."""
    if not path.is_dir() or path.is_symlink():
        return path.lstat().st_size if path.is_symlink() or path.exists() else 0
    found = 0
    for folder, _, names in os.walk(path):
        for name in names:
            with suppress(OSError):
                found += (Path(folder) / name).lstat().st_size
    return found
