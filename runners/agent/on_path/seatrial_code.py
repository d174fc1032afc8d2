"""Compares the functions of the subject's loaded modules with what its installed files compile to.

A code object names a file, but whoever compiles it chooses which. So each installed file is
compiled again here. Its ``.pyc`` is not read, as a payload may have written it.

PYTEST_DONT_REWRITE: loaded before anything of the payload (``seatrial_start``).
"""
# ruff: noqa: INP001 - no package: this folder is on the jobs' import path

from __future__ import annotations

import _imp
import ast
import functools
import marshal
import os
import types
from typing import Dict, FrozenSet, Iterator, List, Mapping, NamedTuple, Optional, Set, Tuple

import _pytest.assertion.rewrite
import seatrial_origins
from seatrial_origins import Installed, Problem

_compile, _exec, _loads, _open = compile, exec, marshal.loads, open
_frozen = _imp.get_frozen_object
_REWRITER = str(_pytest.assertion.rewrite.__file__)

SOURCE_LIMIT = 40_000_000
"""Bytes of source that one process compiles at most: about 5 s, and three times all of torch."""

_OPTIMIZED = 0x1  # inspect.CO_OPTIMIZED, which code of functions has, and of classes has not
_FROZEN = "<frozen "
_UNNAMED = ("<", "__annotate__")  # the latter: annotations since Python 3.14
_PYC_HEADER = 16
_DEPTH = 8
_FIX = (
    "leave the loading of the subject to Python's import, and switch off what rewrites code as it"
    " is imported, such as typeguard's import hook (--typeguard-packages)"
)
_class_dict = type.__dict__["__dict__"].__get__  # type: ignore[attr-defined]

Function = types.FunctionType


class Compared(NamedTuple):
    """What a look at the subject's modules came to."""

    problems: List[Problem]
    """Modules whose functions are not those of their files."""
    replaced: List[Tuple[str, str]]
    """Functions of a file in place of which there is another, by full name, with its file."""
    left_out: List[str]
    """Modules that were not compared: unreadable, or beyond `SOURCE_LIMIT`."""


class _WrongCodeError(Exception):
    """The text says which function of a module is not its file's."""


class _Source:
    """The code objects that a file compiles to, and the names of its functions."""

    def __init__(self, file: str) -> None:
        """Compile it; a file that cannot be compiled has no code.

        Raises:
            OSError: it cannot be read.
        """
        self.file = file
        self.names: Set[str] = set()
        """Functions of its module and of its classes, as in ``__qualname__``."""
        self.makes_functions = False
        """Whether it executes text, or makes functions otherwise."""
        self._codes: Dict[Tuple[str, int], List[types.CodeType]] = {}
        self._text = b"" if file.startswith(_FROZEN) else _read(file)
        self.size = len(self._text)
        self._is_rewritten = False
        try:
            code = _compiled(self._text, file)
        except (SyntaxError, ValueError, EOFError, TypeError, ImportError):
            return
        used: Set[str] = set()
        self._add(code, used)
        self._name(code, "")
        self.makes_functions = not used.isdisjoint(("exec", "eval", "FunctionType"))

    def has(self, code: types.CodeType) -> bool:
        """Return whether the file compiles to this code, plainly or as pytest rewrites asserts."""
        key = code.co_name, code.co_firstlineno
        if any(_alike(code, each) for each in self._codes.get(key, ())):
            return True
        if self._is_rewritten or b"assert" not in self._text or key not in self._codes:
            return False
        self._is_rewritten = True
        for each in _rewritten(self._text, self.file):
            self._add(each, set())
        return self.has(code)

    def _add(self, code: types.CodeType, used: Set[str]) -> None:
        self._codes.setdefault((code.co_name, code.co_firstlineno), []).append(code)
        used.update(code.co_names)
        for each in code.co_consts:
            if type(each) is types.CodeType:
                self._add(each, used)

    def _name(self, code: types.CodeType, above: str) -> None:
        for each in code.co_consts:
            if type(each) is types.CodeType and not each.co_name.startswith(_UNNAMED):
                if each.co_flags & _OPTIMIZED:
                    self.names.add(above + each.co_name)
                else:
                    self._name(each, f"{above}{each.co_name}.")


class CodeComparison:
    """Compares what is loaded of one distribution, with each file compiled once per process."""

    def __init__(self, installed: Installed, payload: str) -> None:
        """`payload` is the payload's folder, or empty."""
        self._installed = installed
        self._below = payload.rstrip(os.sep) + os.sep if payload else ""
        self._sources: Dict[str, _Source] = {}
        self._left_out: Set[str] = set()
        """Files that cannot be read."""
        self._scopes: FrozenSet[int] = frozenset()
        self._bytes = 0
        self._is_installed: Dict[str, bool] = {}
        self._good: Dict[int, types.CodeType] = {}
        """By identity, which stays theirs as they are kept here."""

    def look(self, loaded: Mapping[str, object]) -> Compared:
        """Compare the modules of ``sys.modules``, or of a part of it."""
        found = Compared([], [], [])
        modules = self._installed.of(loaded)
        self._scopes = frozenset(id(seatrial_origins.contents(one)) for one in modules.values())
        named: Set[types.CodeType] = set()
        for name, module in modules.items():
            file = next(iter(seatrial_origins.files_of(module)), "")
            if not file.endswith((".py", ".pyc")) or not self._belongs(file):
                continue
            source = self._source(file)
            if source is None:
                found.left_out.append(name)
                continue
            try:
                rows = self._compare(name, seatrial_origins.contents(module), source)
            except _WrongCodeError as error:
                found.problems.append(Problem(name, file, str(error), _FIX))
                continue
            found.replaced.extend(
                (f"{name}.{place}", code.co_filename) for place, code in rows if code not in named
            )
            named.update(code for _, code in rows)
        return found

    def _compare(
        self, name: str, told: Mapping[str, object], source: _Source
    ) -> List[Tuple[str, types.CodeType]]:
        """Return the functions that are not the file's; raises _WrongCodeError if it is not it."""
        own, missing = False, set(source.names)
        rows: List[Tuple[str, types.CodeType]] = []
        aliens: Dict[str, Function] = {}
        for place, value in _members(told, name):
            functions = list(_functions(value))
            is_listed = place in missing
            missing.discard(place)
            mine = [one for one in functions if self._belongs(one.__code__.co_filename)]
            good = [one for one in mine if self._is_good(one.__code__)]
            own = own or any(one.__code__.co_filename == source.file for one in good)
            for one in mine:
                if not self._is_good(one.__code__):
                    if not good or id(one.__globals__) in self._scopes:
                        raise _WrongCodeError(
                            f"{name}.{place} says that it comes from {one.__code__.co_filename},"
                            " but that file does not compile to its code"
                        )
                    rows.append((place, one.__code__))
            if is_listed and functions and not mine and self._is_alien(functions):
                aliens[place] = functions[0]
        rows += [(place, one.__code__) for place, one in aliens.items()]
        wrong = [
            place
            for place, one in aliens.items()
            if one.__globals__ is told
            and not (source.makes_functions and one.__code__.co_filename.startswith("<"))
        ]
        is_all = aliens.keys() | missing == source.names
        is_made = missing or len(aliens) > 1 or told.get("__spec__") is None
        if aliens and not own and is_all and is_made:
            wrong += aliens
        if wrong:
            raise _WrongCodeError(
                f"{name} names {source.file} as its file, but {name}.{wrong[0]} comes from"
                f" {seatrial_origins.below_payload(aliens[wrong[0]].__code__.co_filename)}"
            )
        return rows

    def _belongs(self, file: str) -> bool:
        if file not in self._is_installed:
            self._is_installed[file] = (
                "\0" not in file and self._installed.path_of(file) is not None
            )
        return self._is_installed[file]

    def _is_good(self, code: types.CodeType) -> bool:
        if self._good.get(id(code)) is code:
            return True
        source = self._source(code.co_filename)
        if source is None or source.has(code):
            self._good[id(code)] = code
            return True
        return False

    def _is_alien(self, functions: List[Function]) -> bool:
        """Return whether none of these functions is of the file that it names.

        Libraries take functions of other files in place of their own, such as faster ones.
        """
        for one in functions:
            file = one.__code__.co_filename
            if not (self._below and file.startswith(self._below)):
                other = self._source(file)
                if other is None and file not in self._left_out:
                    return False  # beyond the limit, so nothing is known of it
                if other is not None and other.has(one.__code__):
                    return False
        return True

    def _source(self, file: str) -> Optional[_Source]:
        """Return what a file compiles to; None if it is unreadable or beyond the limit."""
        if file not in self._sources:
            if file in self._left_out or self._bytes > SOURCE_LIMIT:
                return None
            try:
                source = _Source(file)
            except (OSError, ValueError):  # ValueError: a name that no file can have
                self._left_out.add(file)
                return None
            self._bytes += source.size
            self._sources[file] = source
        return self._sources[file]


def _members(told: Mapping[str, object], module: str) -> Iterator[Tuple[str, object]]:
    """Yield the values of a module, and of the classes that say they are its own, by name."""
    seen: Set[int] = set()
    waiting: List[Tuple[str, Mapping[str, object]]] = [("", told)]
    while waiting:
        above, values = waiting.pop()
        for key, value in list(values.items()):
            if type not in type(value).__mro__:
                yield above + str(key), value
                continue
            inner = _class_dict(value)
            if id(value) not in seen and inner.get("__module__") == module:
                seen.add(id(value))
                waiting.append((f"{above}{key}.", inner))


def _functions(value: object, depth: int = _DEPTH) -> Iterator[Function]:
    """Yield the function that a value calls, and those that it wraps.

    Values are recognised by their exact types: reading an attribute would load a lazy value.
    """
    kind = type(value)
    inner: List[object] = []
    if kind is Function:
        assert isinstance(value, Function)
        yield value
        inner = [value.__dict__.get("__wrapped__"), *_enclosed(value)]
    elif kind in _HOLDERS:
        inner = [getattr(value, name, None) for name in _HOLDERS[kind]]
    if depth:
        for one in inner:
            yield from _functions(one, depth - 1)


def _enclosed(function: Function) -> Iterator[object]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # noqa: PERF203 - not filled yet
            continue


_HOLDERS: Dict[type, Tuple[str, ...]] = {
    types.MethodType: ("__func__",),
    staticmethod: ("__func__",),
    classmethod: ("__func__",),
    property: ("fget", "fset", "fdel"),
    functools.partial: ("func",),
    functools.partialmethod: ("func",),
    functools.cached_property: ("func",),
    type(functools.lru_cache(maxsize=None)(len)): ("__wrapped__",),
}


def _read(file: str) -> bytes:
    with _open(file, "rb") as stream:
        return stream.read()


def _compiled(text: bytes, file: str) -> types.CodeType:
    if file.startswith(_FROZEN):
        name = file[len(_FROZEN) : -1]
        code = _frozen(name.replace("importlib._bootstrap", "_frozen_importlib"))
    elif file.endswith(".pyc"):  # installed without its source, and listed in RECORD
        code = _loads(text[_PYC_HEADER:])
    else:
        code = _compile(text, file, "exec", dont_inherit=True)
    assert isinstance(code, types.CodeType)
    return code


def _alike(one: types.CodeType, other: types.CodeType) -> bool:
    """Return whether two code objects do the same; their files and columns may differ."""
    if one == other:
        return True
    return all(_of(one, part) == _of(other, part) for part in _PARTS) and _same_constants(
        one.co_consts, other.co_consts
    )


def _of(code: types.CodeType, part: str) -> object:
    return getattr(code, part)


_PARTS = (
    "co_name", "co_argcount", "co_posonlyargcount", "co_kwonlyargcount", "co_flags", "co_code",
    "co_names", "co_varnames", "co_freevars", "co_cellvars",
)  # fmt: skip


def _same_constants(some: Tuple[object, ...], others: Tuple[object, ...]) -> bool:
    if len(some) != len(others):
        return False
    return all(
        _alike(one, other)
        if isinstance(one, types.CodeType) and isinstance(other, types.CodeType)
        else type(one) is type(other) and (one == other or repr(one) == repr(other))
        for one, other in zip(some, others)
    )


class _PassHook:
    """pytest's configuration, as far as its rewriter reads it."""

    def getini(self, _name: str) -> bool:
        """Return that pytest_assertion_pass is called."""
        return True


def _rewritten(text: bytes, file: str) -> Iterator[types.CodeType]:
    """Yield what pytest makes of a file, without and with its hook for assertions that pass."""
    scope = _rewriter()
    for config in (None, _PassHook()):
        tree = _compile(text, file, "exec", ast.PyCF_ONLY_AST, dont_inherit=True)
        scope["rewrite_asserts"](tree, text, file, config)  # type: ignore[operator]
        yield _compile(tree, file, "exec", dont_inherit=True)


@functools.lru_cache(maxsize=None)
def _rewriter() -> Dict[str, object]:
    """Execute a copy of pytest's rewriter, of the file: the loaded one may have been patched."""
    scope: Dict[str, object] = {"__name__": "_pytest.assertion.rewrite", "__file__": _REWRITER}
    _exec(_compile(_read(_REWRITER), _REWRITER, "exec", dont_inherit=True), scope)
    return scope


_COMPARISON: List[CodeComparison] = []


def compared(loaded: Mapping[str, object]) -> Compared:
    """Compare the subject's modules with its files; nothing is found without a subject."""
    subject = seatrial_origins.required_distributions().subject
    if subject is None:
        return Compared([], [], [])
    if not _COMPARISON:
        _COMPARISON.append(
            CodeComparison(subject, seatrial_origins.GIVEN.get("SEATRIAL_PAYLOAD", ""))
        )
    return _COMPARISON[0].look(loaded)
