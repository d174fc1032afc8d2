"""Finds installed distributions like importlib.metadata, without its imports (40 ms).

Only folders on the path: a module in a zip file has no files that could be verified. The agent also
runs this file's text in interpreters without Seatrial's packages.
"""
# ruff: noqa: INP001, PTH100, PTH118, PTH119, PTH120, PTH122, PTH123, PTH208 - no package, no pathlib

import operator
import os
import re
import sys
from collections.abc import Iterator
from typing import Any


class NotInstalledError(Exception):
    """No folder on the path holds a distribution of that name."""


class Distribution:
    """The metadata of one distribution, from its folder or file beside the installed modules."""

    def __init__(self, info: str) -> None:
        """Read a distribution from `info`, the path of its ``.dist-info`` or ``.egg-info``."""
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
        told = [(name, "extra" in marker) for name, _, marker in self._requires()]
        return frozenset(name for name, is_extra in told if is_extra) - {
            name for name, is_extra in told if not is_extra
        }

    def requirements(self, extras: "frozenset[str]") -> "Iterator[tuple[str, frozenset[str]]]":
        """Yield each requirement that applies here: its normal name and requested extras.

        Args:
            extras: The extras of this distribution that are wanted.
        """
        for name, wanted, marker in self._requires():
            if _holds(marker, extras):
                yield name, wanted

    def _requires(self) -> "Iterator[tuple[str, frozenset[str], str]]":
        """Yield each requirement's normal name, requested extras and marker."""
        older = (line for line in self.text("requires.txt").splitlines() if line[:1] != "[")
        for value in (*self._headers("requires-dist"), *older):
            requirement, _, marker = value.partition(";")
            found = re.match(r"([\w.-]+)\s*(?:\[([^]]*)])?", requirement.strip())
            if found is not None:
                asked = frozenset(map(normal, re.findall(r"[\w.-]+", found[2] or "")))
                yield normal(found[1]), asked, marker.strip()

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
    """Return a distribution's name from the name of its metadata entry; empty for other entries."""
    lower = child.lower()
    if not lower.endswith("-info"):
        return ""
    stem, kind = os.path.splitext(lower)
    if kind in (".dist-info", ".egg-info"):
        return normal(stem.partition("-")[0])
    if lower == "egg-info" and entry.endswith(".egg"):
        return normal(os.path.basename(entry).partition("-")[0])
    return ""


def normal(name: str) -> str:
    """Return the name of a distribution as its folder of metadata writes it."""
    return re.sub("[-_.]+", "_", name).lower()


def _holds(marker: str, extras: "frozenset[str]") -> bool:
    """Return whether a marker applies on this machine; an unreadable marker counts as applying."""
    import ast  # noqa: PLC0415 - few processes judge one

    try:
        return not marker or _value(ast.parse(marker, mode="eval").body, extras)
    except (SyntaxError, ValueError, KeyError, AttributeError, TypeError):
        return True


def _value(node: Any, extras: "frozenset[str]") -> bool:  # noqa: ANN401 - ast's
    if hasattr(node, "values"):
        every = [_value(each, extras) for each in node.values]
        return all(every) if type(node.op).__name__ == "And" else any(every)
    (kind,) = (type(one).__name__ for one in node.ops)
    sides = (node.left, node.comparators[0])
    names = [getattr(side, "id", "") for side in sides]
    if "extra" in names:
        (name,) = (side.value for side in sides if hasattr(side, "value"))
        return (normal(name) in extras) == (kind == "Eq")
    one, other = (_side(side) for side in sides)
    if any("version" in name or "release" in name for name in names) and "In" not in kind:
        one, other = _numbers(one), _numbers(other)
    return bool(_COMPARED[kind](one, other))


def _side(node: Any) -> str:  # noqa: ANN401 - ast's
    """Return one operand of a comparison as text. Raises ValueError for another kind of operand."""
    if hasattr(node, "id"):
        return _machine()[node.id]
    text = getattr(node, "value", None)
    if type(text) is not str:
        raise ValueError(node)
    return text


def _numbers(version: str) -> "list[int]":
    """Return a version's numbers without trailing zeros. Raises ValueError for other characters."""
    found = list(map(int, version.split(".")))
    while found and not found[-1]:
        found.pop()
    return found


_COMPARED = {
    "Eq": operator.eq, "NotEq": operator.ne, "Lt": operator.lt, "LtE": operator.le,
    "Gt": operator.gt, "GtE": operator.ge,
    "In": lambda one, other: one in other, "NotIn": lambda one, other: one not in other,
}  # fmt: skip


def _machine() -> "dict[str, str]":
    """Return the values of marker variables on this machine."""
    system, version, here = os.uname(), sys.version_info, sys.implementation
    kinds = {"cpython": "CPython", "pypy": "PyPy"}
    return {
        "implementation_name": here.name,
        "implementation_version": ".".join(map(str, here.version[:3])),
        "os_name": os.name,
        "platform_machine": system.machine,
        "platform_python_implementation": kinds[here.name],
        "platform_release": system.release,
        "platform_system": system.sysname,
        "platform_version": system.version,
        "python_full_version": ".".join(map(str, version[:3])),
        "python_version": ".".join(map(str, version[:2])),
        "sys_platform": sys.platform,
    }
