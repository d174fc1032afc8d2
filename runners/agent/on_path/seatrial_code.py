"""Compares the functions of the subject's loaded modules with the code compiled from its files.

The file name of a code object proves nothing, because its compiler chooses it. So each installed
file is compiled again, or read from the installer's ``.pyc`` where that has not changed since the
agent recorded it before the payload's first job.

PYTEST_DONT_REWRITE: loaded before anything of the payload (``seatrial_start``).
"""
# ruff: noqa: INP001, PTH100, PTH112, PTH118, PTH120, PTH208 - no package; plain text is quick

from __future__ import annotations

import _imp
import ast
import functools
import json
import marshal
import operator
import os
import sys
import types
from typing import Dict, FrozenSet, Iterator, List, Mapping, NamedTuple, Optional, Set, Tuple

import _pytest.assertion.rewrite
import seatrial_origins
from seatrial_module_snapshots import (
    ChangedName,
    Function,
    Imports,
    ModuleSnapshot,
    watch_files,
)
from seatrial_origins import InstalledFiles, ModuleProblem

_compile, _exec, _loads, _open = compile, exec, marshal.loads, open
_frozen, _stat, _fstat, _sha256 = _imp.get_frozen_object, os.stat, os.fstat, seatrial_origins.sha256
_BYTE_CODE = seatrial_origins.GIVEN.get("SEATRIAL_BYTE_CODE", "")
_REWRITER = str(_pytest.assertion.rewrite.__file__)

SOURCE_LIMIT = 40_000_000
"""Bytes of source that one process compiles at most: about 5 s, and three times all of torch."""

_OPTIMIZED = 0x1  # inspect.CO_OPTIMIZED, which code of functions has, and of classes has not
_FROZEN = "<frozen "
_UNNAMED = ("<", "__annotate__")  # the latter: annotations since Python 3.14
_PYC_HEADER = 16
_CACHE = "__pycache__"
_TAG = f".{sys.implementation.cache_tag}.pyc"
_FIX = (
    "leave the loading of the subject to Python's import, and switch off what rewrites code as it"
    " is imported, such as typeguard's import hook (--typeguard-packages)"
)

Mark = Tuple[int, int, int, int]


class ComparedModules(NamedTuple):
    """The result of a comparison of the subject's modules."""

    problems: List[ModuleProblem]
    """Names of modules with functions that do not come from the modules' files."""
    replaced: List[Tuple[str, str]]
    """Replaced functions by full name, with the file of the replacement."""
    changed: List[Tuple[str, ChangedName]]
    """Changes since the import, by module name."""
    left_out: List[str]
    """Names of modules that were not compared: unreadable, or beyond `SOURCE_LIMIT`."""


class _WrongCodeError(Exception):
    """A function of a module does not come from the module's file; the text names it."""


class _Source:
    """The code objects that a file compiles to, and the names of its functions."""

    def __init__(self, file: str, byte_code: Optional[bytes] = None) -> None:
        """Compile the file, or use its byte code; a file that cannot be compiled has no code.

        Raises:
            OSError: the file cannot be read.
        """
        self.file = file
        self.names: Set[str] = set()
        """Functions of its module and of its classes, as in ``__qualname__``."""
        self.makes_functions = False
        """Whether its code executes text, or creates functions in another way."""
        self.is_compiled = byte_code is None
        self._codes: Dict[int, Tuple[types.CodeType, ...]] = {}
        """By first line."""
        self.size = 0
        """Bytes that were compiled."""
        self._is_rewritten = False
        try:
            code = _loaded(byte_code) if byte_code else self._compiled()
        except (SyntaxError, ValueError, EOFError, TypeError, ImportError):
            return
        used: Set[str] = set()
        self._add(code, used)
        self._name(code, "")
        self.makes_functions = not used.isdisjoint(("exec", "eval", "FunctionType"))

    def has(self, code: types.CodeType) -> bool:
        """Return whether the file compiles to this code, plainly or as pytest rewrites asserts."""
        key = code.co_firstlineno
        found = self._codes.get(key, ())
        if (_IS_STRICT and code in found) or any(_alike(code, each) for each in found):
            return True
        if self._is_rewritten or key not in self._codes or self.file.startswith(_FROZEN):
            return False
        self._is_rewritten = True
        text = _read(self.file)
        if b"assert" in text:
            for each in _rewritten(text, self.file):
                self._add(each, set())
        return self.has(code)

    def _compiled(self) -> types.CodeType:
        if self.file.startswith(_FROZEN):
            name = self.file[len(_FROZEN) : -1]
            code = _frozen(name.replace("importlib._bootstrap", "_frozen_importlib"))
            assert isinstance(code, types.CodeType)
            return code
        text = _read(self.file)
        if self.file.endswith(".pyc"):  # installed without its source, and listed in RECORD
            return _loaded(text)
        self.size = len(text)
        return _compile(text, self.file, "exec", dont_inherit=True)  # type: ignore[no-any-return]

    def _add(self, code: types.CodeType, used: Set[str]) -> None:
        waiting = [code]
        for one in waiting:
            line = one.co_firstlineno
            self._codes[line] = (*self._codes.get(line, ()), one)
            used.update(one.co_names)
            waiting += [each for each in one.co_consts if type(each) is types.CodeType]

    def _name(self, code: types.CodeType, above: str) -> None:
        for each in code.co_consts:
            if type(each) is types.CodeType and not each.co_name.startswith(_UNNAMED):
                if each.co_flags & _OPTIMIZED:
                    self.names.add(above + each.co_name)
                else:
                    self._name(each, f"{above}{each.co_name}.")


class _ByteCode:
    """The ``.pyc`` files that the installer wrote for a distribution, as the agent saw them."""

    def __init__(self, installed: InstalledFiles, digest: str) -> None:
        """Prepare to read byte code.

        Without a `digest` from the agent, or if a file has changed since, there is no byte code.
        ``Files.byte_code_digest`` computes the same text.
        """
        marks = dict(_marks(installed)) if digest else {}
        rows = sorted([file, *mark] for file, mark in marks.items())
        is_same = _sha256(json.dumps(rows).encode()).hexdigest() == digest
        self._marks = marks if is_same else {}

    def of(self, file: str) -> Optional[bytes]:
        """Return the byte code of a source, or None."""
        folder, name = os.path.split(file)
        path = f"{folder}{os.sep}{_CACHE}{os.sep}{name[:-3]}{_TAG}"
        if path not in self._marks:
            return None
        with _open(path, "rb") as stream:
            return stream.read() if _mark(_fstat(stream.fileno())) == self._marks[path] else None


def _marks(installed: InstalledFiles) -> Iterator[Tuple[str, Mark]]:
    folders = {os.path.dirname(path) for path in installed.files if path.endswith(".py")}
    for folder in folders:
        cache = os.path.join(installed.home, folder, _CACHE)
        for name in os.listdir(cache) if os.path.isdir(cache) else ():
            if name.endswith(".pyc"):
                path = os.path.join(cache, name)
                yield path, _mark(_stat(path))


def _mark(status: os.stat_result) -> Mark:
    """Return inode, size and times in ns of a file; only root can set the last, its ctime."""
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


class CodeComparison:
    """Compares the loaded modules of one distribution with its files; compiles each file once."""

    def __init__(self, installed: InstalledFiles, imports: Imports) -> None:
        """Prepare the comparison of `installed`; `imports` are the same distribution's."""
        self._installed = installed
        self._imports = imports
        self._byte_code = _ByteCode(installed, _BYTE_CODE)
        self._sources: Dict[str, _Source] = {}
        self._left_out: Set[str] = set()
        """Files that cannot be read."""
        self._scopes: FrozenSet[int] = frozenset()
        self._bytes = 0
        self._is_installed: Dict[str, bool] = {}
        self._good: Dict[int, types.CodeType] = {}
        """By identity, which is unique as long as they are stored here."""
        self._seen: Dict[str, ModuleSnapshot] = {}
        """Modules whose functions all come from their files, by name."""

    def look(self, loaded: Mapping[str, object]) -> ComparedModules:
        """Compare the modules of ``sys.modules``, or of a part of it."""
        found = ComparedModules([], [], [], [])
        modules = self._installed.of(loaded)
        self._scopes = frozenset(id(seatrial_origins.contents(one)) for one in modules.values())
        named: Set[types.CodeType] = set()
        for name, module in modules.items():
            snapshot = self._imports.of(module)
            same = snapshot if snapshot is not None and snapshot.is_same(module) else None
            if same is not None and same is self._seen.get(name) and not same.stayed:
                continue
            file = next(iter(seatrial_origins.files_of(module)), "")
            if not self._belongs(file):
                continue
            if same is None or same.stayed:
                found.changed.extend((name, each) for each in self._changes(name, module))
            if file.endswith((".py", ".pyc")) and not self._is_seen(name, module, same):
                now = same or ModuleSnapshot(module)
                rows = self._replaced(name, now, file, found)
                if rows is not None and not rows:
                    self._seen[name] = now
                found.replaced.extend(
                    (f"{name}.{place}", code.co_filename)
                    for place, code in rows or ()
                    if code not in named
                )
                named.update(code for _, code in rows or ())
        return found

    def _replaced(
        self, name: str, module: ModuleSnapshot, file: str, found: ComparedModules
    ) -> Optional[List[Tuple[str, types.CodeType]]]:
        """Return the functions that do not come from the file; None if they cannot be compared."""
        source = self._source(file)
        if source is None:
            found.left_out.append(name)
            return None
        try:
            return self._compare(name, module, source)
        except _WrongCodeError as error:
            found.problems.append(ModuleProblem(name, file, str(error), _FIX))
            return None
        finally:
            self._forget(source)

    def _is_seen(self, name: str, module: object, same: Optional[ModuleSnapshot]) -> bool:
        """Return whether a module is unchanged since its comparison; `same` is its snapshot."""
        seen = self._seen.get(name)
        return seen is not None and (seen is same or seen.is_same(module))

    def _changes(self, name: str, module: object) -> Iterator[ChangedName]:
        """Yield the changes of a module since its import.

        Additions count only if their code is not from the environment, or if they hide a submodule.
        """
        for each in self._imports.changes(module):
            is_mock = each.file.endswith("unittest/mock.py")
            is_strange = each.file and (is_mock or not is_in_the_environment(each.file))
            child = f"{name}.{each.place}"
            value = seatrial_origins.contents(module).get(each.place)
            is_hiding = (
                self._installed.has(child) and seatrial_origins.MODULES.get(child) is not value
            )
            if not each.is_added or is_strange or is_hiding:
                yield each

    def _compare(
        self, name: str, module: ModuleSnapshot, source: _Source
    ) -> List[Tuple[str, types.CodeType]]:
        """Return the functions that do not come from the file. Raises _WrongCodeError."""
        own, contents = False, module.contents
        missing = source.names.difference(place for place, _ in module.called())
        missing = missing and missing.difference(module.values())
        rows: List[Tuple[str, types.CodeType]] = []
        aliens: Dict[str, Function] = {}
        for place, called in module.called():
            mine = [one for one in called if self._belongs(one.__code__.co_filename)]
            good = [one for one in mine if self._is_good(one.__code__)]
            own = own or any(one.__code__.co_filename == source.file for one in good)
            for one in mine if len(good) < len(mine) and not source.makes_functions else ():
                if one not in good:
                    if not good or id(one.__globals__) in self._scopes:
                        raise _WrongCodeError(
                            f"{name}.{place} says that it comes from {one.__code__.co_filename},"
                            " but that file does not compile to its code"
                        )
                    rows.append((place, one.__code__))
            if place in source.names and not mine and self._is_alien(called, contents):
                aliens[place] = called[0]
        rows += [(place, one.__code__) for place, one in aliens.items()]
        wrong = [
            place
            for place, one in aliens.items()
            if one.__globals__ is contents
            and not (source.makes_functions and one.__code__.co_filename.startswith("<"))
        ]
        is_all = aliens.keys() | missing == source.names
        is_made = missing or len(aliens) > 1 or contents.get("__spec__") is None
        if aliens and not own and is_all and is_made:
            wrong += aliens
        if wrong:
            raise _WrongCodeError(
                f"{name} names {source.file} as its file, but {name}.{wrong[0]} comes from"
                f" {seatrial_origins.below_payload(aliens[wrong[0]].__code__.co_filename)}"
            )
        return rows

    def _forget(self, source: _Source) -> None:
        """Drop a source that was not compiled: its byte code can be read again."""
        if not source.is_compiled:
            del self._sources[source.file]

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

    def _is_alien(self, called: List[Function], contents: Mapping[str, object]) -> bool:
        """Return whether none of the functions comes from the installed file that its code names.

        Libraries replace their own functions by those of other files, such as faster ones.
        """
        for one in called:
            file = one.__code__.co_filename
            if one.__globals__ is not contents and is_in_the_environment(file):
                other = self._source(file)
                if other is None and file not in self._left_out:
                    return False  # beyond the limit, so nothing is known of it
                if other is not None and other.has(one.__code__):
                    return False
        return True

    def _source(self, file: str) -> Optional[_Source]:
        """Return the code of a file; None if it is unreadable or beyond the limit."""
        if file not in self._sources:
            if file in self._left_out or self._bytes > SOURCE_LIMIT:
                return None
            try:
                source = _Source(file, self._byte_code.of(file))
            except (OSError, ValueError):  # ValueError: a name that no file can have
                self._left_out.add(file)
                return None
            self._bytes += source.size
            self._sources[file] = source
        return self._sources[file]


_ENVIRONMENT = tuple(
    os.path.join(each, "")
    for entry in sys.path
    if entry and entry not in os.environ.get("PYTHONPATH", "").split(os.pathsep)
    for each in (os.path.abspath(entry), os.path.realpath(entry))
)
"""Folders on the path before the payload's are added."""


def is_in_the_environment(file: str) -> bool:
    """Return whether a file belongs to Python or to an installed package."""
    return file.startswith((_FROZEN, *_ENVIRONMENT)) or os.path.realpath(file).startswith(
        _ENVIRONMENT
    )


def _read(file: str) -> bytes:
    with _open(file, "rb") as stream:
        return stream.read()


def _loaded(byte_code: bytes) -> types.CodeType:
    code = _loads(byte_code[_PYC_HEADER:])
    assert isinstance(code, types.CodeType)
    return code


def _alike(one: types.CodeType, other: types.CodeType) -> bool:
    """Return whether two code objects do the same; their files, names and columns may differ.

    ``==`` alone is not used: some versions of Python leave the table of exceptions out of it.
    """
    return bool(_parts(one) == _parts(other)) and _same(one.co_consts, other.co_consts)


def _is_strict() -> bool:
    """Return whether ``==`` of code objects compares the table of exceptions, if there is one."""
    code = _is_strict.__code__
    return not hasattr(code, "co_exceptiontable") or code != code.replace(co_exceptiontable=b"!")


_IS_STRICT = _is_strict()
_NAMES = (
    "co_argcount", "co_posonlyargcount", "co_kwonlyargcount", "co_flags", "co_code",
    "co_names", "co_varnames", "co_freevars", "co_cellvars", "co_exceptiontable",
)  # fmt: skip
_parts = operator.attrgetter(*(name for name in _NAMES if hasattr(types.CodeType, name)))


def _same(one: object, other: object) -> bool:
    """Return whether two constants are the same; `__eq__` of a subclass is not called."""
    kind = type(one)
    if kind is not type(other):
        return False
    if kind in _EQUAL:
        return one == other
    if kind is types.CodeType:
        return _alike(one, other)  # type: ignore[arg-type]
    if kind is tuple:
        return len(one) == len(other) and all(map(_same, one, other))  # type: ignore[arg-type, call-overload]
    if kind is frozenset:
        return len(one) == len(other) and all(  # type: ignore[arg-type]
            any(_same(each, its) for its in other)  # type: ignore[attr-defined]
            for each in one  # type: ignore[attr-defined]
        )
    return kind in _CONSTANTS and repr(one) == repr(other)


_EQUAL = frozenset((bool, bytes, int, str, type(None), type(...)))
"""Types for which ``==`` is enough to compare two constants."""
_CONSTANTS = frozenset((complex, float, slice))


class _PassHook:
    """The part of pytest's configuration that its rewriter reads."""

    def getini(self, _name: str) -> bool:
        """Return True: the hook ``pytest_assertion_pass`` is called."""
        return True


def _rewritten(text: bytes, file: str) -> Iterator[types.CodeType]:
    """Yield pytest's code of a file, without and with its hook for passing assertions."""
    scope = _rewriter()
    for config in (None, _PassHook()):
        tree = _compile(text, file, "exec", ast.PyCF_ONLY_AST, dont_inherit=True)
        scope["rewrite_asserts"](tree, text, file, config)  # type: ignore[operator]
        yield _compile(tree, file, "exec", dont_inherit=True)


@functools.lru_cache(maxsize=None)
def _rewriter() -> Dict[str, object]:
    """Load pytest's rewriter again from its file: the loaded one may have been patched."""
    scope: Dict[str, object] = {"__name__": "_pytest.assertion.rewrite", "__file__": _REWRITER}
    _exec(_compile(_read(_REWRITER), _REWRITER, "exec", dont_inherit=True), scope)
    return scope


_COMPARISON: List[CodeComparison] = []


def watch() -> None:
    """Watch the imports of the subject from now on, if there is one."""
    subject = seatrial_origins.required_distributions().subject
    if subject is not None and not _COMPARISON:
        _COMPARISON.append(CodeComparison(subject, Imports(subject)))
        watch_files()


def compared(loaded: Mapping[str, object]) -> ComparedModules:
    """Compare the subject's loaded modules with its files; empty without a subject."""
    watch()
    return _COMPARISON[0].look(loaded) if _COMPARISON else ComparedModules([], [], [], [])
