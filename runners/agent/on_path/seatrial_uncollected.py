"""Finds tests that pytest does not collect, in folders, sources and modules."""
# ruff: noqa: INP001 - not a package: this folder is on the jobs' import path

from __future__ import annotations

import ast
import dis
import fnmatch
import inspect
import itertools
import os
import re
import sys
import warnings
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Dict, Iterable, Iterator, List, NamedTuple, Sequence, Set, Tuple, Union

USUAL_FILES = ("test_*.py", "*_test.py")
"""Names of files that pytest collects by default."""
_ALIKE_FILES = ("test*.py", "*tests.py", "*test.py", "check*.py", "*check.py", "*checks.py")
_ALIKE_CLASSES = ("Tests", "Test")

_ENTRIES = 5_000
_FILE_BYTES = 262_144
_INSTALLED = frozenset(("site-packages", "dist-packages"))
_ENVIRONMENT = frozenset(("pyvenv.cfg", "conda-meta"))
_DEFINITION = re.compile(
    r"^([ \t]*)(?:async[ \t]+)?(?:(def|class)[ \t]+(\w+)"
    r"|(?:if|elif|else|try|except|finally|for|while|with)\b)",
    re.MULTILINE,
)
"""Lines that begin a definition, or a branch, which ends the definitions before it."""
_KEEPERS = ("register", "overload", "fixture", "dispatch")
"""Parts of decorator names that keep a reference to the function, such as a registry's."""
_MISSING = object()
_ASSERTS = "@pytest_ar"
"""A name that pytest's assertion rewriting adds to functions with an assertion."""

NamePath = Tuple[str, ...]
Definition = Union[ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef]


class Uncollected(NamedTuple):
    """A class or function that pytest did not collect, and the reason."""

    path: NamePath
    why: str


def is_alike(name: str) -> bool:
    """Return whether a file's name resembles that of a test file; never for a conftest."""
    lower = name.lower()
    return name != "conftest.py" and any(fnmatch.fnmatch(lower, one) for one in _ALIKE_FILES)


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
    """Return how often each test function and each class is defined, judged by lines only.

    Functions within functions are left out. Definitions in texts and in branches of a condition
    count like others, so a syntax tree must confirm the result.
    """
    found: Dict[NamePath, int] = {}
    for outer, kind, name in _scopes(text):
        is_wanted = kind == "class" or name.startswith("test")
        if is_wanted and all(kind == "class" for _, kind, _ in outer):
            path = (*(name for _, _, name in outer), name)
            found[path] = found.get(path, 0) + 1
    return found


def _has_inner_test(text: str) -> bool:
    """Return whether a test may be defined inside another one; tests of plug-ins do not count."""
    return _is_of_suite(text) and any(
        kind == "def" and name.startswith("test") and _is_in_test(outer)
        for outer, kind, name in _scopes(text)
    )


def _is_of_suite(text: str) -> bool:
    """Return whether a source has no texts with tests, as tests of a plug-in do."""
    return not any(word in text for word in ("pytester", "testdir"))


def _is_in_test(outer: Sequence[Tuple[int, str, str]]) -> bool:
    return bool(outer) and outer[-1][1] == "def" and outer[-1][2].startswith("test")


def _scopes(text: str) -> Iterator[Tuple[List[Tuple[int, str, str]], str, str]]:
    """Yield each definition's kind and name, with the enclosing ones (indent, kind, name)."""
    outer: List[Tuple[int, str, str]] = []
    for match in _DEFINITION.finditer(text):
        indent, kind, name = len(match.group(1).expandtabs()), match.group(2), match.group(3)
        while outer and outer[-1][0] >= indent:
            outer.pop()
        if kind is not None:
            yield outer, kind, name
            outer.append((indent, kind, name))


def is_suspect(module: ModuleType, text: str) -> bool:
    """Return whether a module's source must be parsed to search it for lost tests."""
    found = definitions(text)
    is_twice = any(number > 1 for number in found.values())
    is_lost = is_twice or any(_spoiled(module, found)) or _has_inner_test(text)
    return is_lost or (_is_of_suite(text) and any(_is_unbound(module, path) for path in found))


_UNITTEST = ("setUp", "tearDown", "setUpClass", "tearDownClass")
_NOSE = ("setup", "teardown")


def uncalled_methods(owner: type, *, has_nose: bool) -> Iterator[str]:
    """Yield a class's setup and teardown methods that pytest does not call for this kind of class.

    Those that the module's source calls are left out.

    Args:
        owner: A class whose tests were collected.
        has_nose: Whether pytest calls nose's, as before 8.
    """
    unittest = sys.modules.get("unittest")
    if issubclass(owner, getattr(unittest, "TestCase", ())):
        return
    for name in (*_UNITTEST, *(() if has_nose else _NOSE)):
        method = next((vars(one)[name] for one in owner.__mro__ if name in vars(one)), None)
        method = getattr(method, "__func__", method)
        if method is not None and _is_plain_function(method):
            file = Path(method.__code__.co_filename)
            if file.is_file() and f".{name}(".encode() not in file.read_bytes():
                yield name


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
    for path, block, is_branch in _blocks(tree.body, ()):
        for first, second in _redefined(block):
            yield (*path, first.name), f"is lost: line {second.lineno} defines it again"
        if is_branch:
            yield from _never_defined(module, path, block)
        yield from _lost_functions(module, path, block, is_top=block is tree.body)


def _lost_functions(
    module: ModuleType, path: NamePath, block: Sequence[ast.stmt], *, is_top: bool
) -> Iterator[Tuple[NamePath, str]]:
    nodes = {(*path, one.name): one for one in block if isinstance(one, _FUNCTIONS)}
    for test, how in _spoiled(module, nodes):
        is_needed = how in (_FIXTURE, _PROPERTY) and not _only_asserts(nodes[test])
        if not is_needed and (is_top or how != _IMPORTED):
            yield test, how
    for name, node in nodes.items():
        for inner in _uncalled(node) if name[-1].startswith("test") else ():
            yield (*name, inner), "is within a test that does not call it"


def _never_defined(
    module: ModuleType, path: NamePath, block: Sequence[ast.stmt]
) -> Iterator[Tuple[NamePath, str]]:
    """Yield the tests of a branch that do not exist, because another branch was executed."""
    for node in block:
        if isinstance(node, _DEFINITIONS) and _is_test(node):
            test = (*path, node.name)
            # A decorator such as parameterized's makes tests of other names from it.
            is_made = node.decorator_list and _has_more_of(module, test)
            if not is_made and _is_unbound(module, test):
                yield test, "is defined under a condition that was false"


def _is_unbound(module: ModuleType, path: NamePath) -> bool:
    """Return whether the containing module or class exists and lacks the name."""
    holder = _value_at(module, path[:-1])
    return path[-1] not in getattr(holder, "__dict__", (path[-1],))


def _has_more_of(module: ModuleType, path: NamePath) -> bool:
    names = getattr(_value_at(module, path[:-1]), "__dict__", ())
    return any(name.startswith(path[-1]) for name in names)


_FIXTURE = "is a fixture, so that it does not run as a test"
_PROPERTY = "is a property"
_IMPORTED = "is lost: an import replaces it"


def _spoiled(module: ModuleType, paths: Iterable[NamePath]) -> Iterator[Tuple[NamePath, str]]:
    for path in paths:
        if path[-1].startswith("test"):
            how = _why_no_test(module, path)
            if how:
                yield path, how


def _uncalled(function: ast.AST) -> Iterator[str]:
    """Yield the tests defined in a function that neither uses their names nor decorates them.

    Methods are left out: a loader or a framework calls them by their names.
    """
    inner = [*ast.iter_child_nodes(function)]
    for one in inner:  # it grows
        inner += () if isinstance(one, ast.ClassDef) else ast.iter_child_nodes(one)
    for test in (one for one in inner if isinstance(one, _FUNCTIONS)):
        is_plain = test.name.startswith("test") and not test.decorator_list
        if is_plain and not _mentions((function,), test.name):
            yield test.name


def _only_asserts(node: ast.AST) -> bool:
    """Return whether a function has an assertion and returns or yields no value."""
    found = list(ast.walk(node))
    gives = any(isinstance(one, (ast.Yield, ast.YieldFrom)) for one in found) or any(
        isinstance(one, ast.Return) and one.value is not None for one in found
    )
    return not gives and any(isinstance(one, ast.Assert) for one in found)


def returns_a_comparison(code: CodeType) -> bool:
    """Return whether a coroutine function has ``return x == y``: no plug-in checks the value."""
    return bool(code.co_flags & inspect.CO_COROUTINE) and _has_pair(code, _COMPARED)


def compares_idly(code: CodeType) -> bool:
    """Return whether a function may have a statement ``x == y``, whose value is ignored."""
    return _has_pair(code, _UNUSED)


def _has_pair(code: CodeType, pairs: Iterable[bytes]) -> bool:
    operations = code.co_code[::2].replace(bytes((dis.opmap.get("CACHE", 0),)), b"")
    return any(pair in operations for pair in pairs)


def idle_comparisons(source: bytes, lines: Set[int]) -> Iterator[int]:
    """Yield the first lines of functions that have a statement ``x == y`` whose value is ignored.

    A comparison in a ``with`` or ``try`` is left out: the test expects it to raise an error.

    Args:
        source: A module's text.
        lines: First lines of functions, their decorators' included; others are not examined.
    """
    for function in ast.walk(_parsed(source)):
        if isinstance(function, _FUNCTIONS):
            first = min(one.lineno for one in (function, *function.decorator_list))
            if first in lines and any(map(_is_comparison, _plain_statements(function))):
                yield first


def _is_comparison(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Compare)


def _plain_statements(function: Union[ast.FunctionDef, ast.AsyncFunctionDef]) -> List[ast.stmt]:
    found = list(function.body)
    for node in found:  # it grows
        if isinstance(node, (ast.If, ast.For, ast.AsyncFor, ast.While)):
            found += (*node.body, *node.orelse)
    return found


def _parsed(source: bytes) -> ast.AST:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(source)
        except (SyntaxError, ValueError):  # what was imported is not this text
            return ast.Module([], [])


def always_true(module: ModuleType, source: bytes) -> Set[str]:
    """Return the kinds of values that a source asserts although they are always true.

    pytest warns of a tuple in test modules only, and never of the others: a generator expression, a
    lambda, or a function of the module by its name.
    """
    found = [one for one in _ASSERT.finditer(source) if _begins_line(source, one.start())]
    # The whole is parsed only where a statement alone, of at most 20 lines, is such a one.
    is_one = any(_begins_with_one(source[one.start() :]) for one in found if not one.group(1))
    names = {one.group(1).decode() for one in found if one.group(1)}
    functions = {name for name in names if _is_plain_function(vars(module).get(name))}
    if not is_one and not functions:
        return set()
    tree = _parsed(source)
    return (_kinds(tree) or set()) | ({_FUNCTION} if _asserts_one(tree, functions) else set())


_ASSERT = re.compile(rb"assert(?:[ \t]*(?:\((?!\))|lambda\b)|[ \t]+(\w+)[ \t]*(?:[,#\r\n]|\Z))")
"""Pattern that begins with fixed text, for a fast search, and not with the beginning of a line."""
_FUNCTION = "a function"
_TRUE = {
    "Tuple": "a tuple",
    "GeneratorExp": "a generator expression",
    "Lambda": _FUNCTION,
}


def _begins_line(source: bytes, start: int) -> bool:
    return not source[source.rfind(b"\n", 0, start) + 1 : start].strip()


def _begins_with_one(text: bytes) -> bool:
    lines = text.split(b"\n", 20)[:20]
    for number in range(1, len(lines) + 1):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                tree = ast.parse(b"\n".join(lines[:number]))
            except (SyntaxError, ValueError):  # no whole statement
                continue
        return bool(_kinds(tree))
    return False


def _kinds(tree: ast.AST) -> Set[str]:
    tests = (node.test for node in ast.walk(tree) if isinstance(node, ast.Assert))
    kinds = {_TRUE.get(type(test).__name__, "") for test in tests if getattr(test, "elts", True)}
    return kinds - {""}


def _is_plain_function(value: object) -> bool:
    return type(value) is FunctionType and "_pytestfixturefunction" not in vars(value)


def _asserts_one(tree: ast.AST, functions: Set[str]) -> bool:
    """Return whether one of these functions is asserted, and no other object has its name."""
    nodes = list(ast.walk(tree)) if functions else []
    bound = {one.arg for one in nodes if isinstance(one, ast.arg)}
    bound |= {
        one.id for one in nodes if isinstance(one, ast.Name) and not isinstance(one.ctx, ast.Load)
    }
    tests = (one.test for one in nodes if isinstance(one, ast.Assert))
    return any(isinstance(one, ast.Name) and one.id in functions - bound for one in tests)


def _pairs(names: Sequence[str], last: str) -> Tuple[bytes, ...]:
    codes = (dis.opmap[name] for name in names if name in dis.opmap)
    return tuple(bytes((code, dis.opmap[last])) for code in codes)


_COMPARES = ("COMPARE_OP", "CONTAINS_OP", "IS_OP")
_COMPARED = _pairs((*_COMPARES, "UNARY_NOT"), "RETURN_VALUE")
_UNUSED = _pairs(_COMPARES, "POP_TOP")


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
        why = _exclusion_of_function(path[-1], value, is_ignored=is_ignored)
        if why:
            yield Uncollected(path, why)
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


def _exclusion_of_function(name: str, value: FunctionType, *, is_ignored: bool) -> str:
    """Return the setting that excludes a function with a name like a test's; else empty."""
    if name.startswith("Test_") or (
        name.startswith("Test") and _ASSERTS in value.__code__.co_names
    ):
        return "python_functions"
    if not name.startswith("test") or "_pytestfixturefunction" in vars(value):
        return ""
    if not vars(value).get("__test__", True):
        return "__test__ = False"
    return "python_files" if is_ignored else ""


def _exclusion(name: str, value: type, *, is_ignored: bool) -> str:
    """Return the setting that excludes a class with a usual name; empty if none does."""
    is_default = name.startswith("Test")
    is_alike = name.startswith("test") or name.endswith(_ALIKE_CLASSES)
    is_alike = is_alike and not name.startswith("_")
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


def _why_no_test(module: ModuleType, path: NamePath) -> str:
    """Return why the value bound to a name is no test of the module; empty if it may be a test."""
    value = _value_at(module, path)
    if value is _MISSING:  # computed by a class, or unbound
        return ""
    if type(value).__name__ == "FixtureFunctionDefinition" or "_pytestfixturefunction" in getattr(
        value, "__dict__", ()
    ):
        return _FIXTURE
    if isinstance(value, property) and path[0].startswith("Test"):
        return _PROPERTY
    if type(value) is FunctionType and value.__module__ != module.__name__ and len(path) == 1:
        return _IMPORTED if value.__name__ == path[0] and not hasattr(value, "__wrapped__") else ""
    return "" if callable(value) or hasattr(type(value), "__get__") else "is not a function"


def _value_at(module: ModuleType, path: NamePath) -> object:
    value: object = module
    for name in path:
        value = getattr(value, "__dict__", {}).get(name, _MISSING)
    return value


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_DEFINITIONS = (*_FUNCTIONS, ast.ClassDef)


def _blocks(
    body: Sequence[ast.stmt], path: NamePath, *, is_branch: bool = False
) -> Iterator[Tuple[NamePath, Sequence[ast.stmt], bool]]:
    """Yield each block of a module or class: path, statements, and whether it is a branch."""
    yield path, body, is_branch
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from _blocks(node.body, (*path, node.name))
        elif not isinstance(node, _FUNCTIONS):
            for branch in (node, *getattr(node, "handlers", ()), *getattr(node, "cases", ())):
                for field in ("body", "orelse", "finalbody"):
                    inner = getattr(branch, field, None)
                    if inner:
                        yield from _blocks(inner, path, is_branch=True)


def _redefined(block: Sequence[ast.stmt]) -> Iterator[Tuple[Definition, Definition]]:
    """Yield pairs of tests in a block: one, and a later one that replaces it."""
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
    return any(one in name for name in names for one in _KEEPERS)


def _mentions(nodes: Iterable[ast.AST], name: str) -> bool:
    return any(
        isinstance(one, ast.Name) and one.id == name for node in nodes for one in ast.walk(node)
    )
