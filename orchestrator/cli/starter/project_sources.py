"""Reads the metadata files of a Python project, and compares a wheel with its source."""

from __future__ import annotations

import configparser
import tomllib
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path

from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from orchestrator.cli.errors import CliError
from orchestrator.cli.starter.setup_script import SetupScript, read_setup_script

Table = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class ProjectMetadata:
    """Parsed metadata files of a project; empty if they are missing."""

    folder: Path
    pyproject: Table
    setup_cfg: configparser.ConfigParser
    """Parsed setup.cfg, completed with the literals of setup.py."""
    pkg_info: Message
    """Metadata of an unpacked source distribution."""
    setup_py: SetupScript

    @property
    def project(self) -> Table:
        """Return ``[project]``, or Poetry's older table."""
        return table(self.pyproject, "project") or table(self.pyproject, "tool", "poetry")


def read_sources(folder: Path) -> ProjectMetadata:
    """Parse the files that exist. Raises CliError."""
    path = folder / "pyproject.toml"
    pyproject: dict[str, object] = {}
    pkg_info = Message()
    setup_cfg = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        if path.is_file():
            pyproject = tomllib.loads(path.read_text(encoding="utf-8"))
        path = folder / "setup.cfg"
        setup_cfg.read(path, encoding="utf-8")
        path = folder / "PKG-INFO"
        if path.is_file():
            pkg_info = HeaderParser().parsestr(path.read_text(encoding="utf-8"))
        path = folder / "setup.py"
        setup_py = read_setup_script(folder)
    except (tomllib.TOMLDecodeError, configparser.Error, UnicodeDecodeError, OSError) as error:
        said = str(error).splitlines()[0]
        raise CliError(f"{path}: cannot be read: {said}") from None
    setup_py.fill(setup_cfg)
    return ProjectMetadata(folder, pyproject, setup_cfg, pkg_info, setup_py)


def table(value: Table, *path: str) -> Table:
    """Return the table at a path; an empty one if it is missing."""
    found: object = value
    for key in path:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found if isinstance(found, Mapping) else {}


_BUILD = "`pip wheel . --no-deps -w {}`"


def stale_wheel_notes(sources: ProjectMetadata, wheel: Path) -> list[str]:
    """Return notes if a project's wheel has another version or is older than its source.

    There is no note about a wheel of another project or about a version that no file states.

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
    if newest is None or int(newest[0]) <= int(wheel.stat().st_mtime):
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
