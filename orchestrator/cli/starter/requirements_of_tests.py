"""Test requirements and test folders of a project."""

from __future__ import annotations

import configparser
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

_PATTERNS = ("test_*.py", "*_test.py")
_FOLDERS = ("tests", "test")
_SKIPPED = frozenset({"node_modules", "build", "dist", "site-packages", "__pycache__", "var"})
_FILE_LIMIT = 20_000


@dataclass(frozen=True, slots=True)
class PytestArguments:
    """Arguments and options for a project's pytest, found in its configuration."""

    arguments: tuple[str, ...]
    """Files and folders, relative to the project."""
    options: str = ""
    """``addopts`` and other settings, which show the plug-ins in use."""
    notes: tuple[str, ...] = ()
    is_found: bool = True
    """Whether the project has tests."""


def find_tests(
    folder: Path, pyproject: Mapping[str, object], setup_cfg: configparser.ConfigParser
) -> PytestArguments:
    """Return the arguments of pytest's configuration, or else the usual test folders."""
    settings = _settings(folder, pyproject, setup_cfg)
    options = " ".join(f"{key}={value}" for key, value in settings.items())
    said = _words(settings.get("testpaths"))
    there = tuple(path for path in said if path and any(folder.glob(path)))
    if there:
        return PytestArguments(there, options)
    notes = [f"testpaths names {', '.join(said)}, which is not there"] if said else []
    found = _test_places(folder)
    if not found:
        notes.append(
            "no tests were found: put some into tests/, or correct `pytest` in payload.toml"
        )
        return PytestArguments(("tests",), options, tuple(notes), is_found=False)
    return PytestArguments(found, options, tuple(notes))


def _settings(
    folder: Path, pyproject: Mapping[str, object], setup_cfg: configparser.ConfigParser
) -> dict[str, object]:
    """Return the first configuration in pytest's own order."""
    for name in ("pytest.ini", ".pytest.ini"):
        if (folder / name).is_file():
            return _section(_parsed(folder / name), "pytest")
    tool = pyproject.get("tool")
    native = tool.get("pytest") if isinstance(tool, Mapping) else None
    if isinstance(native, Mapping):
        old = native.get("ini_options")
        return dict(old if isinstance(old, Mapping) else native)
    return _section(_parsed(folder / "tox.ini"), "pytest") or _section(setup_cfg, "tool:pytest")


def _parsed(path: Path) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, strict=False, allow_no_value=True)
    try:
        parser.read(path, encoding="utf-8")
    except (configparser.Error, UnicodeDecodeError):
        return configparser.ConfigParser()
    return parser


def _section(parser: configparser.ConfigParser, name: str) -> dict[str, object]:
    return dict(parser[name]) if parser.has_section(name) else {}


def _words(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        return tuple(value.split())
    return tuple(str(one) for one in value) if isinstance(value, list) else ()


def _test_places(folder: Path) -> tuple[str, ...]:
    """Return the usual test folder, else top folders (or files) with tests."""
    for name in _FOLDERS:
        if (folder / name).is_dir() and next(_test_files(folder / name), None):
            return (name,)
    tops = {path.relative_to(folder).parts[0] for path in _test_files(folder)}
    return tuple(sorted(tops))


def _test_files(folder: Path) -> Iterator[Path]:
    seen = 0
    for here, folders, files in os.walk(folder):
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith(".")
            and name not in _SKIPPED
            and not (Path(here) / name / "pyvenv.cfg").exists()
        )
        for name in sorted(files):
            if any(fnmatch(name, pattern) for pattern in _PATTERNS):
                yield Path(here) / name
        seen += len(files)
        if seen > _FILE_LIMIT:
            return


PYTEST = "pytest>=8"
_EXTRAS = ("test", "tests", "testing", "dev")
"""Names of extras and dependency groups for tests; the first that exists is used."""
_FILES = (
    *("requirements-test.txt", "requirements-tests.txt", "test-requirements.txt"),
    *("requirements/test.txt", "requirements/tests.txt", "requirements/testing.txt"),
    *("tests/requirements.txt", "test/requirements.txt", "testing/requirements.txt"),
    *("requirements/test.in", "requirements/tests.in", "requirements/testing.in"),
    *("requirements-dev.txt", "requirements/dev.txt", "requirements/dev.in"),
)
"""Names of requirements files for tests; the first that exists is used."""
_OF_FILE = re.compile(r"(?:-r|--requirement)[\s=]*(\S+)")
_OF_ENVIRONMENT = re.compile(r"[\w.,{}!-]+:\s")
"""Prefix of tox dependencies of some environments only."""
_PLUGINS = (
    (r"--cov\b", "pytest-cov"),
    (r"(?:^|[\s=])-n[\s=\d]|--numprocesses|--dist\b", "pytest-xdist"),
    (r"\btimeout\s*=|--timeout\b", "pytest-timeout"),
    (r"\basyncio_mode\b", "pytest-asyncio"),
    (r"--benchmark", "pytest-benchmark"),
    (r"--reruns\b", "pytest-rerunfailures"),
)
"""Settings of pytest that fail without their plug-in."""


@dataclass(frozen=True, slots=True)
class Needs:
    """Requirements for ``[setup] pip``."""

    requirements: tuple[str, ...]
    notes: tuple[str, ...] = ()


def needs_of(
    folder: Path,
    pyproject: Mapping[str, object],
    setup_cfg: configparser.ConfigParser,
    name: str,
) -> Needs:
    """Return pytest, the project's requirements, and those of its test extra."""
    declared = _Declared(pyproject, setup_cfg)
    notes: list[str] = []
    main = declared.main() or _from_first_file(folder, ("requirements.txt",), notes)
    for_tests = declared.for_tests(name) or _outside_metadata(folder, notes)
    notes += () if for_tests else _poetry_notes(pyproject)
    found = [*main, *for_tests]
    kept: dict[str, str] = {"pytest": PYTEST}
    for text in found:
        fault = _keep(text, name, kept)
        if fault:
            notes.append(fault)
    return Needs(tuple(kept.values()), tuple(notes))


def _poetry_notes(pyproject: Mapping[str, object]) -> Iterator[str]:
    """Yield a note for each table of Poetry with test packages, whose syntax is not read."""
    poetry = _mapping(_mapping(pyproject.get("tool")).get("poetry"))
    groups = {"dev-dependencies": poetry.get("dev-dependencies")}
    for name, group in _mapping(poetry.get("group")).items():
        groups[f"group.{name}.dependencies"] = _mapping(group).get("dependencies")
    for name, packages in groups.items():
        if packages:
            yield (
                f"[tool.poetry.{name}] was passed over: name the packages that the tests need in"
                " `pip` of payload.toml"
            )


def plugins_for(options: str, requirements: Iterable[str]) -> tuple[str, ...]:
    """Return plug-ins that pytest's configuration needs and the project does not require."""
    there = {canonicalize_name(Requirement(text).name) for text in requirements}
    return tuple(
        name for pattern, name in _PLUGINS if name not in there and re.search(pattern, options)
    )


class _Declared:
    """Requirements in pyproject.toml, or in setup.cfg."""

    def __init__(
        self, pyproject: Mapping[str, object], setup_cfg: configparser.ConfigParser
    ) -> None:
        project = _mapping(pyproject.get("project"))
        self._main = _texts(project.get("dependencies"))
        self._extras = {
            extra: _texts(listed)
            for extra, listed in _mapping(project.get("optional-dependencies")).items()
        }
        self._groups = _mapping(pyproject.get("dependency-groups"))
        if not project and setup_cfg.has_section("options"):
            self._main = _lines(setup_cfg.get("options", "install_requires", fallback=""))
        if not self._extras and setup_cfg.has_section("options.extras_require"):
            section = setup_cfg["options.extras_require"]
            self._extras = {extra: _lines(section[extra]) for extra in section}

    def main(self) -> list[str]:
        """Return the project's own requirements."""
        return self._main

    def for_tests(self, name: str) -> list[str]:
        """Return requirements of the first extra or group for tests, with references resolved."""
        for wanted in _EXTRAS:
            if wanted in self._extras:
                return self._extra(wanted, canonicalize_name(name), set())
            if wanted in self._groups:
                return self._group(wanted, set())
        return []

    def _extra(self, extra: str, name: str, seen: set[str]) -> list[str]:
        if extra in seen:
            return []
        seen.add(extra)
        found = []
        for text in self._extras.get(extra, []):
            inner = _self_extras(text, name)
            for one in inner:
                found += self._extra(one, name, seen)
            if not inner:
                found.append(text)
        return found

    def _group(self, group: str, seen: set[str]) -> list[str]:
        if group in seen:
            return []
        seen.add(group)
        listed = self._groups.get(group)
        found: list[str] = []
        for item in listed if isinstance(listed, list) else []:
            if isinstance(item, Mapping):
                found += self._group(str(item.get("include-group")), seen)
            else:
                found.append(str(item))
        return found


def _self_extras(text: str, name: str) -> set[str]:
    """Return the extras in ``project[extra]`` if the requirement is on this project."""
    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        return set()
    return requirement.extras if canonicalize_name(requirement.name) == name else set()


def _keep(text: str, project: str, kept: dict[str, str]) -> str:
    """Add a requirement; return a note if it cannot be added, else an empty text."""
    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        return f"{text!r} was left out: it is no requirement"
    if requirement.url and not requirement.url.startswith("https://"):
        return f"{text!r} was left out: only https:// addresses are taken"
    name = canonicalize_name(requirement.name)
    if name == canonicalize_name(project):
        return ""
    if name in kept and kept[name] not in (PYTEST, str(requirement)):
        # Both hold: two lines for one distribution are one requirement.
        requirement.specifier &= Requirement(kept[name]).specifier
    kept[name] = str(requirement)
    return ""


def _outside_metadata(folder: Path, notes: list[str]) -> list[str]:
    """Return test requirements from tox's configuration, or else from a usual requirements file."""
    listed = _lines(_parsed(folder / "tox.ini").get("testenv", "deps", fallback="") or "")
    lines = (line.replace("{toxinidir}/", "") for line in listed if not _OF_ENVIRONMENT.match(line))
    found = list(_requirements(folder, "tox.ini", lines, notes))
    return found or _from_first_file(folder, _FILES, notes)


def _from_first_file(folder: Path, names: Iterable[str], notes: list[str]) -> list[str]:
    there = next((name for name in names if (folder / name).is_file()), None)
    return list(_from_file(folder, there, notes, frozenset())) if there else []


def _from_file(folder: Path, name: str, notes: list[str], within: frozenset[str]) -> Iterator[str]:
    """Yield requirements of a pip file and of the files that it includes.

    `within` has the files that are being read, so that no file includes itself.
    """
    if name in within or not (folder / name).is_file():
        notes.append(f"{name}: cannot be read")
        return
    text = (folder / name).read_text(encoding="utf-8", errors="replace").replace("\\\n", " ")
    yield from _requirements(folder, name, text.splitlines(), notes, within | {name})


def _requirements(
    folder: Path,
    name: str,
    lines: Iterable[str],
    notes: list[str],
    within: frozenset[str] = frozenset(),
) -> Iterator[str]:
    for line in lines:
        text = line.split(" #")[0].split(" --hash")[0].strip()
        other = _OF_FILE.fullmatch(text)
        if other:
            path = os.path.normpath(Path(name).parent / other[1])
            yield from _from_file(folder, path, notes, within)
        elif text.startswith("-"):
            notes.append(f"{name}: {text!r} was left out: it is no requirement")
        elif text and not text.startswith("#"):
            yield text


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def _texts(value: object) -> list[str]:
    return [str(one) for one in value] if isinstance(value, list) else []


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]
