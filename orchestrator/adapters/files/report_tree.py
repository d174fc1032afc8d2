"""Stores a run's rendered report: ``HOME/runs/<run>/report``."""

from __future__ import annotations

import errno
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from orchestrator.adapters.files.home_folder import temporary_folder


def write_report_tree(home: Path, run_id: str, files: Mapping[str, Iterable[bytes]]) -> Path:
    """Write all files into a new folder that replaces the old one.

    Args:
        home: Seatrial's home.
        run_id: The run.
        files: Contents by relative path.

    Returns:
        The report's folder.
    """
    run_folder = home / "runs" / run_id
    run_folder.mkdir(parents=True, exist_ok=True)
    # A tree that a killed writer leaves is removed when the home is acquired again.
    with tempfile.TemporaryDirectory(prefix="report-", dir=temporary_folder(home)) as scratch:
        fresh = Path(scratch) / "report"
        fresh.mkdir(mode=0o755)
        for name, chunks in files.items():
            path = fresh / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as file:
                file.writelines(chunks)
        return _replace(fresh, run_folder / "report")


def _replace(fresh: Path, place: Path) -> Path:
    """Replace the folder; of concurrent writers the last one wins."""
    while not _is_put(fresh, place):
        with suppress(FileNotFoundError):  # another writer has just removed it
            place.rename(Path(tempfile.mkdtemp(prefix="old-", dir=fresh.parent)) / "report")
    return place


def _is_put(fresh: Path, place: Path) -> bool:
    """Rename the folder to its place; return False if the place is taken."""
    try:
        fresh.rename(place)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        return False
    return True
