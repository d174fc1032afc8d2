"""Where a run's rendered report lies: ``HOME/runs/<run>/report``."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path


def write_report_tree(home: Path, run_id: str, files: Mapping[str, Iterable[bytes]]) -> Path:
    """Write all files into a new folder and put it in the place of the old one.

    Args:
        home: Seatrial's home.
        run_id: The run.
        files: Contents by relative path.

    Returns:
        The report's folder.
    """
    run_folder = home / "runs" / run_id
    run_folder.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix="report-", dir=run_folder))
    fresh.chmod(0o755)
    for name, chunks in files.items():
        path = fresh / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            file.writelines(chunks)
    return _replace(fresh, run_folder / "report")


def _replace(fresh: Path, place: Path) -> Path:
    old = fresh.with_name(f"{fresh.name}.old")
    if place.exists():
        place.rename(old)
    fresh.rename(place)
    shutil.rmtree(old, ignore_errors=True)
    return place
