"""Notes on a wheel in which the project's present source is not."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from orchestrator.cli.starter.project_sources import Sources

_BUILD = "`pip wheel . --no-deps -w {}`"


def stale_wheel_notes(sources: Sources, wheel: Path) -> list[str]:
    """Return notes if a project's wheel has another version or is older than its source.

    Nothing is noted of a wheel of another project, or of a version that no file states.

    Args:
        sources: Metadata of the project.
        wheel: The wheel file.
    """
    distribution, version, *_ = parse_wheel_filename(wheel.name)
    stated, build = sources.project.get("version"), _BUILD.format(wheel.parent)
    if distribution != canonicalize_name(str(sources.project.get("name", ""))):
        return []
    if isinstance(stated, str) and _is_other(stated, version):
        how = f"{build} makes the new one, and the old one must go"
        return [f"pyproject.toml says {stated}, the wheel {wheel} is {version}: {how}"]
    newest = max(_source_files(sources.folder, wheel_roots(wheel)), default=None)
    if newest is None or newest[0] <= wheel.stat().st_mtime:
        return []
    changed, path = newest
    at, built = (_clock(seconds) for seconds in (changed, wheel.stat().st_mtime))
    return [f"{path} ({at}) is newer than the wheel {wheel} ({built}): {build} builds it again"]


def wheel_roots(wheel: Path) -> Sequence[str]:
    """Return the wheel's top-level packages and modules. Raises BadZipFile and OSError."""
    with zipfile.ZipFile(wheel) as archive:
        roots = {path.partition("/")[0] for path in archive.namelist()}
    return sorted(root for root in roots if not root.endswith((".dist-info", ".data")))


def _is_other(stated: str, version: Version) -> bool:
    try:
        return Version(stated) != version
    except InvalidVersion:
        return True


def _source_files(folder: Path, roots: Sequence[str]) -> Iterator[tuple[float, Path]]:
    """Yield the times and paths of the Python files that the wheel is built from."""
    for root in roots:
        for place in (folder / root, folder / "src" / root):
            files = [place] if place.is_file() else place.rglob("*.py")
            yield from ((file.stat().st_mtime, file) for file in files)


def _clock(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"
