"""Texts of ``payload.toml``, ``seatrial.yaml`` and ``gate.yaml``, from a project's metadata."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path

from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from orchestrator.cli.errors import CliError
from orchestrator.cli.starter.project_sources import (
    ProjectMetadata,
    read_sources,
    stale_wheel_notes,
    wheel_roots,
)
from orchestrator.cli.starter.requirements_of_tests import (
    Needs,
    PytestArguments,
    find_tests,
    needs_of,
    plugins_for,
)
from orchestrator.domain.manifest import IDENTIFIER

UNKNOWN_VERSION = "0.0.0"
_VERSION_LINE = re.compile(r"""^__version__\s*(?::[^=]*)?=\s*["']([^"']+)["']""", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ProjectFacts:
    """Facts of a project that its starter files are written from."""

    name: str
    version: str
    needs: Needs
    tests: PytestArguments
    notes: tuple[str, ...]
    """Notes for a person on how this was determined."""
    python_path: str = ""
    """Path for ``PYTHONPATH``, relative to the project; empty for none."""
    wheel: str = ""
    """Pattern of the subject's wheel; empty if the payload is the subject."""
    exclude: tuple[str, ...] = ()
    """Source files of the wheel's modules, which pytest would import instead of the wheel."""


def inspect_project(folder: Path) -> ProjectFacts:
    """Inspect a project. Raises CliError if a file cannot be read."""
    sources = read_sources(folder)
    name, name_notes = _name(sources)
    version, version_notes = _version(sources, name)
    tests = find_tests(folder, sources.pyproject, sources.setup_cfg)
    needs = needs_of(folder, sources.pyproject, sources.setup_cfg, name)
    setup_notes = () if sources.project else sources.setup_py.notes()
    notes = (*name_notes, *version_notes, *tests.notes, *needs.notes, *setup_notes)
    wheel, wheel_notes = _wheel(sources, name, tests)
    notes = (*notes, *wheel_notes)
    if wheel is None:
        return ProjectFacts(name, version, needs, tests, notes, python_path=_python_path(folder))
    places = (place for root in wheel.roots for place in (root, f"src/{root}"))
    source = tuple(place for place in places if (folder / place).exists())
    tests = replace(tests, arguments=wheel.tests)
    return ProjectFacts(name, wheel.version, needs, tests, notes, wheel=_WHEELS, exclude=source)


def _name(sources: ProjectMetadata) -> tuple[str, list[str]]:
    written = sources.setup_cfg.get("metadata", "name", fallback="") or sources.pkg_info["Name"]
    said = sources.project.get("name") or written or ""
    if isinstance(said, str) and IDENTIFIER.fullmatch(said.strip()):
        return said.strip(), []
    raw = said if isinstance(said, str) and said else sources.folder.resolve().name
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", raw).strip("-_")[:64] or "project"
    script = "setup.py, which is not executed, has no literal name"
    why = script if sources.setup_py.is_there else "no file says one"
    return name, [] if said else [f"the name {name!r} is the folder's: {why}"]


def _version(sources: ProjectMetadata, name: str) -> tuple[str, list[str]]:
    said = sources.project.get("version")
    if isinstance(said, str) and said:
        return said, []
    written = sources.setup_cfg.get("metadata", "version", fallback="")
    if written and not written.startswith(("attr:", "file:")):
        return written, []
    packed = sources.pkg_info["Version"]
    if packed:
        return str(packed).strip(), ["the version is PKG-INFO's"]
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
            (
                f"no version was found, so {UNKNOWN_VERSION} was written to both files: correct it "
                "there"
            )
        ]
    return version, [f"the version is the one of {name} that is installed here"]


def _python_path(folder: Path) -> str:
    """Return ``src`` if it has the packages, else the project itself."""
    source = folder / "src"
    inside = any(any(source.glob(pattern)) for pattern in ("*.py", "*/*.py"))
    return "src" if inside else "."


_WHEELS = "dist/*.whl"


@dataclass(frozen=True, slots=True)
class BuiltWheel:
    """A built wheel of the project."""

    version: str
    roots: tuple[str, ...]
    """Top-level packages and modules."""
    tests: tuple[str, ...]
    """Arguments for pytest, without folders that contain the wheel's source."""


def _wheel(
    sources: ProjectMetadata, name: str, tests: PytestArguments
) -> tuple[BuiltWheel | None, list[str]]:
    """Return the wheel in ``dist``, or None with the reason why it cannot be the subject."""
    folder = sources.folder
    found = sorted(folder.glob(_WHEELS))
    if not found:
        return None, []
    if len(found) > 1:
        said = f"dist has {len(found)} wheels: leave one there, and `init --force` makes it the"
        return None, [f"{said} subject; until then that is the payload itself"]
    try:
        distribution, version, *_ = parse_wheel_filename(found[0].name)
        modules = tuple(wheel_roots(found[0]))
    except (InvalidWheelFilename, zipfile.BadZipFile, OSError) as error:
        return None, [f"{found[0]} cannot be read, so the payload itself is the subject: {error}"]
    if distribution != canonicalize_name(name):
        return None, [f"{found[0]} is not of {name}: the payload itself is the subject"]
    apart = tuple(one for one in tests.arguments if not _has_source(folder, one, modules))
    within = any(argument.partition("/")[0] in modules for argument in tests.arguments)
    if within or not apart:
        said = f"the tests are within the source of {found[0]}, which a wheel would not leave in"
        return None, [f"{said} the payload: the payload itself is the subject"]
    notes = [f"the subject is {found[0]}", *stale_wheel_notes(sources, found[0])]
    left_out = [one for one in tests.arguments if one not in apart]
    if left_out:
        notes.append(f"{', '.join(left_out)} is not run: it is the source, and the wheel is tested")
    return BuiltWheel(str(version), modules, apart), notes


def _has_source(folder: Path, argument: str, modules: Sequence[str]) -> bool:
    """Return whether pytest would import the wheel's modules from a folder such as ``src``."""
    place = folder / argument
    inside = any((place / module).exists() for module in modules)
    return (inside and place.resolve() != folder.resolve()) or bool(
        set(Path(argument).parts) & set(modules)
    )


PAYLOAD = "payload.toml"
MATRIX = "seatrial.yaml"
POLICY = "gate.yaml"
NOT_SHIPPED = (MATRIX, POLICY)
"""Files that are not shipped, so that a change of them does not change the payload."""


@dataclass(frozen=True, slots=True)
class StarterFile:
    """A file to write."""

    path: Path
    text: str
    is_replaced: bool = True
    """Whether `--force` replaces an existing file; False for the policy."""


def files_for(project: ProjectFacts, folder: Path) -> tuple[StarterFile, ...]:
    """Return the files to write; nothing is written."""
    return (
        StarterFile(folder / PAYLOAD, payload_text(project)),
        StarterFile(folder / MATRIX, matrix_text(project)),
        StarterFile(folder / POLICY, policy_text(project), is_replaced=False),
    )


def payload_text(project: ProjectFacts) -> str:
    """Return ``payload.toml`` with one suite of the project's tests."""
    wanted = project.needs.requirements
    requirements = [*wanted, *plugins_for(project.tests.options, wanted)]
    lines = [
        "schema = 1",
        f"name = {_toml(project.name)}",
        f"version = {_toml(project.version)}",
        f"exclude = {_toml([*NOT_SHIPPED, *project.exclude])}",
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


_OTHER_SUBJECT = """\
# The payload itself is the subject. To test a wheel, build it into dist/ and run
# `seatrial init --force`: the source must then be neither on PYTHONPATH nor in the payload.
"""


def matrix_text(project: ProjectFacts) -> str:
    """Return ``seatrial.yaml`` with all jobs on this computer."""
    name, version = _toml(project.name), _toml(project.version)
    wheel = f", wheel: {project.wheel}" if project.wheel else ""
    other = "" if wheel else _OTHER_SUBJECT
    return f"""\
# Where the payload is tried. Add platforms: your own machines (static), or rented ones.
{other}\
apiVersion: seatrial/v1
kind: Matrix
metadata: {{name: {name}}}
subject: {{name: {name}, version: {version}{wheel}}}
payload: {{path: .}}
limits: {{max_minutes: 60}}
platforms:
  - {{id: local-cpu, provider: local}}
jobs:
  - {{select: "*", on: all}}
"""


def policy_text(project: ProjectFacts) -> str:
    """Return ``gate.yaml``, which demands that the tests passed on this computer.

    The gate has the product's name, as names of gates are unique in a home.
    """
    name = _toml(project.name)
    return f"""\
# The release policy. It demands that the job `tests` passed on `local-cpu`; the rules that it
# does not name have their defaults. Add the platforms and jobs of seatrial.yaml that count.
apiVersion: seatrial/v1
kind: ReleaseGate
metadata: {{name: {name}, product: {name}, owner: you}}
spec:
  platforms:
    - {{id: local-cpu}}
  jobs:
    - {{id: tests, on: [local-cpu]}}
"""


def write_all(files: tuple[StarterFile, ...], *, force: bool) -> tuple[StarterFile, ...]:
    """Write all files or none, and return those that were written.

    Raises CliError if one exists that only `force` replaces.
    """
    files = tuple(file for file in files if file.is_replaced or not file.path.exists())
    there = [file.path for file in files if file.path.exists()]
    if there and not force:
        names = " and ".join(str(path) for path in there)
        raise CliError(f"{names} exist already: nothing was written (--force replaces them).")
    for file in files:
        try:
            file.path.write_text(file.text, encoding="utf-8")
        except OSError as error:
            raise CliError(f"{file.path}: {error.strerror or error}") from None
    return files


def _toml(value: str | list[str]) -> str:
    """Format a TOML (and YAML) string or list, by JSON's escapes."""
    return json.dumps(value, ensure_ascii=True)
