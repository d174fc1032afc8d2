"""Where a project's tests are, as its pytest configuration says or as its files show."""

from __future__ import annotations

import configparser
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

_PATTERNS = ("test_*.py", "*_test.py")
_FOLDERS = ("tests", "test")
_SKIPPED = frozenset({"node_modules", "build", "dist", "site-packages", "__pycache__", "var"})
_FILE_LIMIT = 20_000


@dataclass(frozen=True, slots=True)
class Tests:
    """What to give to pytest."""

    arguments: tuple[str, ...]
    """Files and folders, relative to the project."""
    options: str = ""
    """``addopts`` and all other settings, as text: they tell which plug-ins are used."""
    notes: tuple[str, ...] = ()


def find_tests(
    folder: Path, pyproject: Mapping[str, object], setup_cfg: configparser.ConfigParser
) -> Tests:
    """Look at the configuration first, then at the files."""
    settings = _settings(folder, pyproject, setup_cfg)
    options = " ".join(f"{key}={value}" for key, value in settings.items())
    said = _words(settings.get("testpaths"))
    there = tuple(path for path in said if path and any(folder.glob(path)))
    if there:
        return Tests(there, options)
    notes = [f"testpaths names {', '.join(said)}, which is not there"] if said else []
    found = _test_places(folder)
    if not found:
        notes.append("no tests were found: put some into tests/, or mend `pytest` in payload.toml")
        return Tests(("tests",), options, tuple(notes))
    return Tests(found, options, tuple(notes))


def _settings(
    folder: Path, pyproject: Mapping[str, object], setup_cfg: configparser.ConfigParser
) -> dict[str, object]:
    """The first configuration in pytest's own order."""
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
    """The usual folder, else the top folders (or files) that hold test files."""
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
