"""The texts of ``payload.toml`` and ``seatrial.yaml`` for a project, from its metadata."""

from __future__ import annotations

import configparser
import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from orchestrator.cli.errors import CliError
from orchestrator.cli.starter.test_requirements import (
    Needs,
    Tests,
    find_tests,
    needs_of,
    plugins_for,
)
from orchestrator.domain.manifest import IDENTIFIER

UNKNOWN_VERSION = "0.0.0"
_VERSION_LINE = re.compile(r"""^__version__\s*(?::[^=]*)?=\s*["']([^"']+)["']""", re.MULTILINE)

Table = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Project:
    """Everything that the two files are made of."""

    name: str
    version: str
    needs: Needs
    tests: Tests
    python_path: str
    """What jobs need on ``PYTHONPATH``, relative to the project; empty for nothing."""
    notes: tuple[str, ...]
    """What a person should know of how this was found."""


@dataclass(frozen=True, slots=True)
class Sources:
    """The files that a project describes itself in, read; empty where there are none."""

    folder: Path
    pyproject: Table
    setup_cfg: configparser.ConfigParser

    @property
    def project(self) -> Table:
        """``[project]``, or what Poetry had before it."""
        return table(self.pyproject, "project") or table(self.pyproject, "tool", "poetry")


def survey(folder: Path) -> Project:
    """Look at a project. Raises CliError where a file of it cannot be read."""
    sources = read_sources(folder)
    name, name_notes = _name(sources)
    version, version_notes = _version(sources, name)
    tests = find_tests(folder, sources.pyproject, sources.setup_cfg)
    needs = needs_of(folder, sources.pyproject, sources.setup_cfg, name)
    notes = (*name_notes, *version_notes, *tests.notes, *needs.notes)
    return Project(name, version, needs, tests, _python_path(folder), notes)


def read_sources(folder: Path) -> Sources:
    """Read what there is. Raises CliError."""
    path = folder / "pyproject.toml"
    pyproject: dict[str, object] = {}
    setup_cfg = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        if path.is_file():
            pyproject = tomllib.loads(path.read_text(encoding="utf-8"))
        path = folder / "setup.cfg"
        setup_cfg.read(path, encoding="utf-8")
    except (tomllib.TOMLDecodeError, configparser.Error, UnicodeDecodeError, OSError) as error:
        said = str(error).splitlines()[0]
        raise CliError(f"{path}: cannot be read: {said}") from None
    return Sources(folder, pyproject, setup_cfg)


def table(value: Table, *path: str) -> Table:
    """The table at a path; an empty one where there is none."""
    found: object = value
    for key in path:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _name(sources: Sources) -> tuple[str, list[str]]:
    said = sources.project.get("name") or sources.setup_cfg.get("metadata", "name", fallback="")
    if isinstance(said, str) and IDENTIFIER.fullmatch(said.strip()):
        return said.strip(), []
    raw = said if isinstance(said, str) and said else sources.folder.resolve().name
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", raw).strip("-_")[:64] or "project"
    return name, [] if said else [f"the name {name!r} is the folder's: no file says one"]


def _version(sources: Sources, name: str) -> tuple[str, list[str]]:
    said = sources.project.get("version")
    if isinstance(said, str) and said:
        return said, []
    written = sources.setup_cfg.get("metadata", "version", fallback="")
    if written and not written.startswith(("attr:", "file:")):
        return written, []
    return _dynamic_version(sources.folder, name)


def _dynamic_version(folder: Path, name: str) -> tuple[str, list[str]]:
    package = name.replace("-", "_")
    for path in (folder / "src" / package / "__init__.py", folder / package / "__init__.py"):
        if path.is_file():
            found = _VERSION_LINE.search(path.read_text(encoding="utf-8", errors="replace"))
            if found:
                return found[1], [f"the version is {path.relative_to(folder)}'s"]
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return UNKNOWN_VERSION, [
            f"no version was found, so {UNKNOWN_VERSION} stands in both files: mend it there"
        ]
    return version, [f"the version is the one of {name} that is installed here"]


def _python_path(folder: Path) -> str:
    """``src`` where the packages are in it, else the project itself."""
    source = folder / "src"
    inside = any(any(source.glob(pattern)) for pattern in ("*.py", "*/*.py"))
    return "src" if inside else "."


PAYLOAD = "payload.toml"
MATRIX = "seatrial.yaml"


@dataclass(frozen=True, slots=True)
class Written:
    """A file and its text."""

    path: Path
    text: str


def files_for(project: Project, folder: Path) -> tuple[Written, Written]:
    """What is to be written; nothing is."""
    return (
        Written(folder / PAYLOAD, payload_text(project)),
        Written(folder / MATRIX, matrix_text(project)),
    )


def payload_text(project: Project) -> str:
    """``payload.toml``: one suite with the project's tests."""
    wanted = project.needs.requirements
    requirements = [*wanted, *plugins_for(project.tests.options, wanted)]
    lines = [
        "schema = 1",
        f"name = {_toml(project.name)}",
        f"version = {_toml(project.version)}",
        "[setup]",
        f"pip = {_toml(requirements)}",
        "[[job]]",
        'id = "tests"',
        'kind = "suite"',
        f"pytest = {_toml(list(project.tests.arguments))}",
        "timeout_minutes = 30",
    ]
    if project.python_path:
        lines.append(f"env = {{PYTHONPATH = {_toml(project.python_path)}}}")
    return "\n".join(lines) + "\n"


def matrix_text(project: Project) -> str:
    """``seatrial.yaml``: all jobs, on this computer."""
    name, version = _toml(project.name), _toml(project.version)
    return f"""\
# Where the payload is tried. Add platforms: your own machines (static), or rented ones.
apiVersion: seatrial/v1
kind: Matrix
metadata: {{name: {name}}}
subject: {{name: {name}, version: {version}}}
payload: {{path: .}}
limits: {{max_minutes: 60}}
platforms:
  - {{id: local-cpu, provider: local}}
jobs:
  - {{select: "*", on: all}}
"""


def write_all(files: tuple[Written, ...], *, force: bool) -> None:
    """Write all of them or none. Raises CliError where one is there already."""
    there = [file.path for file in files if file.path.exists()]
    if there and not force:
        names = " and ".join(str(path) for path in there)
        raise CliError(f"{names} exist already: nothing was written (--force replaces them).")
    for file in files:
        try:
            file.path.write_text(file.text, encoding="utf-8")
        except OSError as error:
            raise CliError(f"{file.path}: {error.strerror or error}") from None


def _toml(value: str | list[str]) -> str:
    """A TOML (and YAML) string or list; JSON's escapes are both languages', too."""
    return json.dumps(value, ensure_ascii=True)
