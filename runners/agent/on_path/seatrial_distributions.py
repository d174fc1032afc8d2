"""Finds installed distributions like importlib.metadata, without its imports (40 ms).

Only folders on the path: a module in a zip file has no files that could be verified. The agent also
runs this file's text in interpreters without Seatrial's packages.
"""
# ruff: noqa: INP001, PTH100, PTH118, PTH119, PTH120, PTH122, PTH123, PTH208 - no package, no pathlib

import os
import re
import sys
from collections.abc import Iterator


class NotInstalledError(Exception):
    """No folder on the path holds a distribution of that name."""


class Distribution:
    """The metadata of one distribution, from its folder or file beside the installed modules."""

    def __init__(self, info: str) -> None:
        """`info` is the path of a ``.dist-info`` or ``.egg-info``."""
        self.info = info
        self.home = os.path.dirname(info)
        """The folder that the paths in RECORD are relative to."""

    @property
    def name(self) -> str:
        """Name as the distribution writes it; empty without one."""
        return self._header("name")

    @property
    def version(self) -> str:
        """The version as the distribution writes it; empty without one."""
        return self._header("version")

    @property
    def optional(self) -> "frozenset[str]":
        """Normal names of the requirements that only extras have."""
        told = list(self._requires())
        return frozenset(name for name, _, extras in told if extras) - {
            name for name, _, extras in told if not extras
        }

    def requirements(
        self, extras: "frozenset[str] | None"
    ) -> "Iterator[tuple[str, frozenset[str]]]":
        """Yield normal names of requirements, whatever their markers, with the extras of each.

        Args:
            extras: The extras of this distribution that are wanted; None for all.
        """
        for name, wanted, of in self._requires():
            if extras is None or not of or of & extras:
                yield name, wanted

    def _requires(self) -> "Iterator[tuple[str, frozenset[str], frozenset[str]]]":
        """Yield names, the extras asked of each, and those of this one that have it."""
        older = (line for line in self.text("requires.txt").splitlines() if line[:1] != "[")
        for value in (*self._headers("requires-dist"), *older):
            requirement, _, marker = value.partition(";")
            found = re.match(r"([\w.-]+)\s*(?:\[([^]]*)])?", requirement.strip())
            if found is not None:
                asked = frozenset(map(normal, re.findall(r"[\w.-]+", found[2] or "")))
                of = re.findall(r"\bextra\s*==\s*['\"]?([\w.-]+)", marker)
                yield normal(found[1]), asked, frozenset(map(normal, of))

    def text(self, name: str) -> str:
        """Return the text of a metadata file; empty if it is unreadable."""
        try:
            path = os.path.join(self.info, name) if name else self.info
            with open(path, encoding="utf-8", errors="replace") as stream:
                return stream.read()
        except OSError:
            return ""

    def _header(self, key: str) -> str:
        return next(self._headers(key), "")

    def _headers(self, key: str) -> Iterator[str]:
        text = self.text("METADATA") or self.text("PKG-INFO") or self.text("")
        for line in text.split("\n"):
            if not line:  # one of blanks goes on with a folded value
                return
            found, colon, value = line.partition(":")
            if colon and found.lower() == key:
                yield value.strip()


def distributions(name: str = "", *, below: str = "") -> Iterator[Distribution]:
    """Yield installed distributions in the order of the path.

    Args:
        name: Name of the distribution in any spelling; empty for all.
        below: A folder without links; only entries of the path in it are read.
    """
    wanted = normal(name)
    for entry in sys.path:
        if below and not (os.path.realpath(entry) + os.sep).startswith(below + os.sep):
            continue
        try:
            children = os.listdir(entry or ".")
        except OSError:
            continue
        for child in children:
            own = _own_name(entry, child)
            if own and (not wanted or own == wanted):
                yield Distribution(os.path.join(os.path.abspath(entry), child))


def distribution(name: str) -> Distribution:
    """Return the distribution that Python's import would use.

    Raises:
        NotInstalledError: it is not installed.
    """
    for found in distributions(name):
        return found
    raise NotInstalledError(name)


def packages() -> "dict[str, str]":
    """Return the versions by name; of two with one name, the first on the path."""
    found: "dict[str, str]" = {}
    for each in distributions():
        name, version = each.name, each.version
        if name and version:
            found.setdefault(name.lower().replace("_", "-").replace(".", "-"), version)
    return dict(sorted(found.items()))


def _own_name(entry: str, child: str) -> str:
    """Return the name that a folder or file on the path gives to a distribution, if it does."""
    stem, kind = os.path.splitext(child.lower())
    if kind in (".dist-info", ".egg-info"):
        return normal(stem.partition("-")[0])
    if child.lower() == "egg-info" and entry.endswith(".egg"):
        return normal(os.path.basename(entry).partition("-")[0])
    return ""


def normal(name: str) -> str:
    """Return the name of a distribution as its folder of metadata writes it."""
    return re.sub("[-_.]+", "_", name).lower()
