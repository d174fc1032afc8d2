"""Finds what has a usual name for tests and is not collected, in folders, sources and modules."""
# ruff: noqa: INP001 - not a package: this folder is on the jobs' import path

from __future__ import annotations

import ast
import fnmatch
import inspect
import itertools
import os
import re
import warnings
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Dict, Iterable, Iterator, List, NamedTuple, Sequence, Set, Tuple, Union

USUAL_FILES = ("test_*.py", "*_test.py")
"""Names of files that pytest collects by default."""
_ALIKE_FILES = ("test*.py", "*tests.py", "*test.py")
_ALIKE_CLASSES = ("Tests", "Test")

_ENTRIES = 5_000
_FILE_BYTES = 262_144
_INSTALLED = frozenset(("site-packages", "dist-packages"))
_ENVIRONMENT = frozenset(("pyvenv.cfg", "conda-meta"))
_DEFINITION = re.compile(r"^([ \t]*)(?:async[ \t]+)?(def|class)[ \t]+(\w+)", re.MULTILINE)
_KEEPERS = re.compile("register|overload|fixture|dispatch")
"""Decorators that keep the function, or that make none of it."""
_MISSING = object()

NamePath = Tuple[str, ...]
Definition = Union[ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef]


class Uncollected(NamedTuple):
    """A class or function of a module, and what excluded it."""

    path: NamePath
    why: str


def is_alike(name: str) -> bool:
    """Return whether a file's name looks like that of tests; a conftest is looked into instead."""
    return name != "conftest.py" and any(fnmatch.fnmatch(name, pattern) for pattern in _ALIKE_FILES)


def holds_test_files(folder: Path, patterns: Sequence[str]) -> bool:
    """Return whether a folder has files of these names in its first 5,000 entries.

    Virtual environments, installed packages and packages of Node.js are not searched.
    """
    left, waiting = _ENTRIES, [str(folder)]
    for place in waiting:
        try:
            with os.scandir(place) as entries:
                found = list(itertools.islice(entries, left))
        except OSError:
            continue
        left -= len(found)
        names = {entry.name for entry in found}
        is_node = "package.json" in names and "node_modules" in Path(place).parts
        if is_node or names & _ENVIRONMENT:
            continue
        for entry in found:
            if entry.is_dir(follow_symlinks=False):
                if entry.name not in _INSTALLED:
                    waiting.append(entry.path)
            elif any(fnmatch.fnmatch(entry.name, pattern) for pattern in patterns):
                return True
    return False


def file_defines_tests(file: Path) -> bool:
    """Return whether the first 256 KiB of a file define functions or methods with a usual name."""
    try:
        with file.open("rb") as stream:
            text = stream.read(_FILE_BYTES).decode("utf-8", "replace")
    except OSError:
        return False
    return any(path[-1].startswith("test") for path in definitions(text))


def definitions(text: str) -> Dict[NamePath, int]:
    """Return how often each test function and each class is defined, as far as its line shows.

    Functions within functions are left out. Text within quotation marks is not told apart, nor
    are the branches of a condition: a syntax tree has to confirm what is concluded from it.
    """
    found: Dict[NamePath, int] = {}
    outer: List[Tuple[int, str, str]] = []
    for match in _DEFINITION.finditer(text):
        indent, kind, name = len(match.group(1).expandtabs()), match.group(2), match.group(3)
        while outer and outer[-1][0] >= indent:
            outer.pop()
        is_wanted = kind == "class" or name.startswith("test")
        if is_wanted and all(kind == "class" for _, kind, _ in outer):
            path = (*(name for _, _, name in outer), name)
            found[path] = found.get(path, 0) + 1
        outer.append((indent, kind, name))
    return found


def is_suspect(module: ModuleType, text: str) -> bool:
    """Return whether the lines of a module's source give reason to parse it for lost tests."""
    found = definitions(text)
    return any(number > 1 for number in found.values()) or any(_spoiled(module, found))


def lost_definitions(module: ModuleType, source: bytes) -> Iterator[Tuple[NamePath, str]]:
    """Yield tests, and classes with tests, of a module's source that are lost, and how.

    Either a later one of the same name replaces them, or the name is not callable.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            tree = ast.parse(source)
        except (SyntaxError, ValueError):  # what was imported is not this text
            yield (), "cannot be parsed, so it was not searched for lost tests"
            return
    for path, block in _blocks(tree.body, ()):
        for first, second in _redefined(block):
            yield (*path, first.name), f"is lost: line {second.lineno} defines it again"
        tests = [(*path, one.name) for one in block if isinstance(one, _FUNCTIONS)]
        for test in _spoiled(module, dict.fromkeys(tests)):
            yield test, "is not a function"


def _spoiled(module: ModuleType, paths: Iterable[NamePath]) -> Iterator[NamePath]:
    for path in paths:
        if path[-1].startswith("test") and not _is_callable(module, path):
            yield path


def uncollected_definitions(
    module: ModuleType, collected: Set[int], *, is_ignored: bool = False
) -> Iterator[Uncollected]:
    """Yield classes and functions with a usual name that the module itself defines.

    Args:
        module: A module that was collected, or a conftest.
        collected: The `id` of each class whose tests were collected, and of its base classes.
        is_ignored: Whether pytest collects nothing from the module.
    """
    for name, value in list(vars(module).items()):
        if _module_of(value) == module.__name__:
            yield from _uncollected((name,), value, collected, is_ignored=is_ignored)


def _uncollected(
    path: NamePath, value: object, collected: Set[int], *, is_ignored: bool
) -> Iterator[Uncollected]:
    if isinstance(value, FunctionType):
        is_test = path[-1].startswith("test") and "_pytestfixturefunction" not in vars(value)
        if is_test and not vars(value).get("__test__", True):
            yield Uncollected(path, "__test__ = False")
        elif is_test and is_ignored:
            yield Uncollected(path, "python_files")
    elif isinstance(value, type):
        why = _exclusion(path[-1], value, is_ignored=is_ignored)
        if why and id(value) not in collected and _has_tests(value):
            yield Uncollected(path, why)
            return
        own = f"{value.__qualname__}."
        for name, member in list(vars(value).items()):
            is_inner = issubclass(type(member), type)
            if type(member) is FunctionType or (is_inner and member.__qualname__.startswith(own)):
                yield from _uncollected((*path, name), member, collected, is_ignored=False)


def _module_of(value: object) -> object:
    """Return the module that defines a function or class; None for everything else."""
    if type(value) is FunctionType:
        return value.__module__
    return vars(value).get("__module__") if issubclass(type(value), type) else None


def _exclusion(name: str, value: type, *, is_ignored: bool) -> str:
    """Return the setting that excludes a class with a usual name; empty if none does."""
    is_default = name.startswith("Test")
    is_alike = name.endswith(_ALIKE_CLASSES) and not name.startswith("_")
    if inspect.isabstract(value) or not (is_default or is_alike):
        return ""
    if not next((vars(one)["__test__"] for one in value.__mro__ if "__test__" in vars(one)), True):
        return "__test__ = False"
    if is_ignored:
        return "python_files"
    return "" if is_default else "python_classes"


def _has_tests(value: type) -> bool:
    members = (item for base in value.__mro__ for item in list(vars(base).items()))
    return any(name.startswith("test") and type(one) is FunctionType for name, one in members)


def _is_callable(module: ModuleType, path: NamePath) -> bool:
    """Return whether a name is bound to something callable, or computed by a class, or unbound."""
    value: object = module
    for name in path:
        value = getattr(value, "__dict__", {}).get(name, _MISSING)
        if value is _MISSING:
            return True
    return callable(value) or hasattr(type(value), "__get__")


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_DEFINITIONS = (*_FUNCTIONS, ast.ClassDef)


def _blocks(
    body: Sequence[ast.stmt], path: NamePath
) -> Iterator[Tuple[NamePath, Sequence[ast.stmt]]]:
    """Yield the statements of a module or class, and of each branch in it, with its name."""
    yield path, body
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from _blocks(node.body, (*path, node.name))
        elif not isinstance(node, _FUNCTIONS):
            for branch in (node, *getattr(node, "handlers", ()), *getattr(node, "cases", ())):
                for field in ("body", "orelse", "finalbody"):
                    inner = getattr(branch, field, None)
                    if inner:
                        yield from _blocks(inner, path)


def _redefined(block: Sequence[ast.stmt]) -> Iterator[Tuple[Definition, Definition]]:
    """Yield tests that another of one block replaces, if nothing took the name in between."""
    last: Dict[str, int] = {}
    for number, node in enumerate(block):
        if not isinstance(node, _DEFINITIONS) or not _is_test(node):
            continue
        before = last.get(node.name)
        last[node.name] = number
        if before is None:
            continue
        first = block[before]
        assert isinstance(first, _DEFINITIONS)
        between: Iterable[ast.AST] = (*block[before + 1 : number], *_heads(node))
        if not _is_kept(first) and not _mentions(between, node.name):
            yield first, node


def _is_test(node: Definition) -> bool:
    if isinstance(node, ast.ClassDef):
        return any(isinstance(one, _FUNCTIONS) and _is_test(one) for one in node.body)
    return node.name.startswith("test")


def _heads(node: Definition) -> Iterator[ast.AST]:
    yield from node.decorator_list
    if isinstance(node, ast.ClassDef):
        yield from (*node.bases, *node.keywords)
    else:
        yield node.args


def _is_kept(node: Definition) -> bool:
    """Return whether a decorator keeps the function: as a fixture, an overload, in a registry."""
    names = (
        one.attr if isinstance(one, ast.Attribute) else getattr(one, "id", "")
        for decorator in node.decorator_list
        for one in ast.walk(decorator)
    )
    return any(_KEEPERS.search(name) for name in names)


def _mentions(nodes: Iterable[ast.AST], name: str) -> bool:
    return any(
        isinstance(one, ast.Name) and one.id == name for node in nodes for one in ast.walk(node)
    )
