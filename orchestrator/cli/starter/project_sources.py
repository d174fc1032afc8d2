"""Reads the metadata files of a Python project."""

from __future__ import annotations

import configparser
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path

from orchestrator.cli.errors import CliError

Table = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Sources:
    """Parsed metadata files of a project; empty if they are missing."""

    folder: Path
    pyproject: Table
    setup_cfg: configparser.ConfigParser
    pkg_info: Message
    """Metadata of an unpacked source distribution."""

    @property
    def project(self) -> Table:
        """Return ``[project]``, or Poetry's older table."""
        return table(self.pyproject, "project") or table(self.pyproject, "tool", "poetry")


def read_sources(folder: Path) -> Sources:
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
    except (tomllib.TOMLDecodeError, configparser.Error, UnicodeDecodeError, OSError) as error:
        said = str(error).splitlines()[0]
        raise CliError(f"{path}: cannot be read: {said}") from None
    return Sources(folder, pyproject, setup_cfg, pkg_info)


def table(value: Table, *path: str) -> Table:
    """Return the table at a path; an empty one if it is missing."""
    found: object = value
    for key in path:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found if isinstance(found, Mapping) else {}
