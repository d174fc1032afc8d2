"""Reads which modules an installed distribution needs that its metadata does not require.

The agent runs this file's text once for an environment. It imports nothing that was installed, and
no process of pytest loads it.
"""
# ruff: noqa: INP001, PTH118, PTH119, PTH120, PTH208 - no package; plain text is quick

import ast
import os
import re
import sys
from collections.abc import Iterable

from seatrial_distributions import Distribution, distributions, normal
from seatrial_origins import (
    InstalledFiles,
    called,
    import_names,
    importers,
    modules_of_record,
    names_of,
    source_of,
)

MOST_FILES = 2_000
MOST_BYTES = 16 * 1024 * 1024
_REDIRECTS = re.compile(rb"\bsys\.(?:path|meta_path|modules)\b")


def undeclared(name: str) -> "list[dict[str, str]] | None":
    """Return the modules that a distribution imports although its requirements do not install them.

    Only imports that no condition, handler or function guards count, and only modules that another
    installed distribution has. A requirement counts as declared if its marker holds here without
    an extra.

    Args:
        name: The distribution's; it is installed.

    Returns:
        `module`, `file` (that imports it) and `distribution` (that has it here), by module; None
        where its files are more than `MOST_FILES` or `MOST_BYTES`.
    """
    subject = InstalledFiles(name)
    needed = _needed(subject)
    if needed is None:
        return None
    installed: "dict[str, Distribution]" = {}
    for one in distributions() if needed else ():
        installed.setdefault(normal(one.name), one)
    declared = _closure(name, installed)
    roots = {each: _roots(one, needed) for each, one in installed.items()}
    fine = [*subject.roots, *(root for each in declared for root in roots.get(each, ()))]
    found: "dict[str, dict[str, str]]" = {}
    for imported, file in needed.items():
        if any(_is_below(root, imported) or _is_below(imported, root) for root in fine):
            continue
        for each in sorted(installed.keys() - declared):
            for root in roots[each]:
                if _is_below(imported, root):
                    distribution = installed[each].name
                    row = {"module": root, "file": file, "distribution": distribution}
                    found.setdefault(root, row)
    return [found[root] for root in sorted(found)]


def _needed(subject: InstalledFiles) -> "dict[str, str] | None":
    """Return the foreign names that its import needs, each with the first file that does."""
    modules = {_module(path): path for path in subject.files if path.endswith(".py")}
    same = [root for root in subject.roots if normal(root) == normal(subject.name)]
    public = [root for root in subject.roots if not root.startswith("_")]
    waiting = sorted(same or public or subject.roots)
    reached, found, size, redirects = set(waiting), {}, 0, False
    for module in waiting:  # it grows
        path = modules.get(module)
        if path is None:
            continue
        source = source_of(os.path.join(subject.home, path))
        size += len(source)
        if len(reached) > MOST_FILES or size > MOST_BYTES:
            return None
        redirects = redirects or _REDIRECTS.search(source) is not None
        package = module if os.path.basename(path) == "__init__.py" else module.rpartition(".")[0]
        for name in certain(source, package):
            parts = name.split(".")
            own = [".".join(parts[: n + 1]) for n in range(len(parts))]
            new = [each for each in own if each in modules and each not in reached]
            reached.update(new)
            waiting += new
            found.setdefault(name, path)
    known = _standard()
    if redirects:  # to copies that it brings itself, as setuptools does
        known |= {part.partition(".")[0] for path in subject.files for part in path.split("/")}
    return {name: path for name, path in found.items() if name.partition(".")[0] not in known}


def certain(source: bytes, package: str) -> "list[str]":
    """Return the names that a module imports whenever it is imported.

    A call such as ``import_module("name")`` alone, or as the value of a variable, is an import.
    Imports in functions, after a condition, and in a `with`, a loop or a `try` with a handler are
    left out: the author handles a missing module.
    """
    found: "list[str]" = []
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return found
    waiting, asked = list(tree.body), importers(tree)
    for node in waiting:  # it grows
        found += names_of(node, package) or _imported_by_call(node, asked)
        if isinstance(node, ast.ClassDef):
            waiting += node.body
        elif isinstance(node, ast.Try) and not node.handlers:
            waiting += [*node.body, *node.orelse, *node.finalbody]
    return found


def _imported_by_call(node: ast.stmt, asked: "set[str]") -> "list[str]":
    value = getattr(node, "value", None)
    while isinstance(value, ast.Attribute):
        value = value.value
    if not isinstance(value, ast.Call) or called(value) not in asked or len(value.args) != 1:
        return []
    name = getattr(value.args[0], "value", None)
    return [name] if isinstance(name, str) and not name.startswith(".") else []


def _module(path: str) -> str:
    return re.sub(r"(/__init__)?\.py$", "", path).replace("/", ".")


def _is_below(name: str, above: str) -> bool:
    return name == above or name.startswith(above + ".")


def _closure(name: str, installed: "dict[str, Distribution]") -> "set[str]":
    """Return the normal names of a distribution and of all its direct and indirect requirements."""
    waiting: "list[tuple[str, frozenset[str]]]" = [(normal(name), frozenset())]
    for each, extras in waiting:  # it grows
        if each in installed:
            more = installed[each].requirements(extras)
            waiting += [one for one in more if one not in waiting]
    return {each for each, _ in waiting}


def _roots(one: Distribution, needed: Iterable[str]) -> "list[str]":
    """Return a distribution's import names if it may provide a needed name, else an empty list."""
    record = one.text("RECORD")
    if not record:
        return one.text("top_level.txt").split()
    tops = {name.partition(".")[0] for name in needed}
    is_asked = any(f"{top}/" in record or f"{top}." in record for top in tops)
    return sorted(import_names(modules_of_record(record)[0])) if is_asked else []


def _standard() -> "set[str]":
    """Return the first parts of the names of standard library modules."""
    library = os.path.dirname(os.__file__)
    names = {*sys.builtin_module_names, *getattr(sys, "stdlib_module_names", ())}
    return names | {entry.partition(".")[0] for entry in os.listdir(library)}
