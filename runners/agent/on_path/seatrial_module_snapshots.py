"""Stores the contents of the subject's modules when their import returns, and lists later changes.

The line after ``import mylib`` may already replace ``mylib.f``, by a function whose code looks
honest. A snapshot is taken before that line, because Python's import is watched from before
anything of the payload is loaded.

PYTEST_DONT_REWRITE: loaded before anything of the payload (``seatrial_start``).
"""
# ruff: noqa: INP001, PTH100 - no package: this folder is on the jobs' import path

from __future__ import annotations

import builtins
import contextlib
import functools
import importlib.machinery
import itertools
import operator
import os
import runpy
import sys
import threading
import types
import weakref
from typing import (
    AbstractSet,
    Any,
    Callable,
    Dict,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Set,
    Tuple,
)

import seatrial_origins
from _pytest.assertion.rewrite import AssertionRewritingHook
from seatrial_origins import EXECUTED, IMPORTERS, MODULES, InstalledFiles

Function = types.FunctionType
Values = Mapping[str, object]

_DEPTH = 8
_LOADERS = (
    importlib.machinery.ExtensionFileLoader,
    importlib.machinery.SourceFileLoader,
    importlib.machinery.SourcelessFileLoader,
    AssertionRewritingHook,
)
_LOADERS_OWN = frozenset(("name", "path"))
_CONSTANTS = frozenset((bool, bytes, complex, float, int, str, type(None)))
_VALUES = _CONSTANTS.union((dict, frozenset, list, set, tuple))
_ACTIVE = frozenset(("__call__", "__get__"))
_IMPORT: Any = sys.modules["_frozen_importlib"]
_LOADER: Any = sys.modules["_frozen_importlib_external"]._LoaderBasics  # type: ignore[attr-defined] # noqa: SLF001
_class_dict = type.__dict__["__dict__"].__get__  # type: ignore[attr-defined]
_mro = type.__dict__["__mro__"].__get__  # type: ignore[attr-defined]
_class_bases = type.__dict__["__bases__"].__get__  # type: ignore[attr-defined]
_code_of = operator.attrgetter("__code__")
_values_of = operator.methodcaller("values")
_chained = itertools.chain.from_iterable


class ChangedName(NamedTuple):
    """A name in a module whose value differs from that after the import."""

    place: str
    """Its qualified name in the module; empty for the module itself."""
    file: str
    """The file of the present value's code; empty without one."""
    what: str
    """The kind of change, unless only the code differs."""
    is_added: bool = False
    """Whether the name did not exist after the import."""


class ModuleSnapshot:
    """The contents of a module and of its classes.

    Only dictionaries of classes are kept alive: tests may wait for a value's garbage collection.
    """

    def __init__(self, module: object, stayed: AbstractSet[ChangedName] = frozenset()) -> None:
        """Take the snapshot of a module of ``sys.modules``, without loading a lazy one.

        Args:
            module: The module.
            stayed: Earlier changes, which the snapshot includes.
        """
        self.contents = seatrial_origins.contents(module)
        self._kind = type(module)
        loader = _strange_loader(self.contents)
        self.stayed = stayed | (
            {ChangedName("", "", f"was loaded by {loader}")} if loader else set()
        )
        self._module = str(self.contents.get("__name__", ""))
        spaces = list(namespaces(self.contents, self._module))
        self._above = [above for above, _, _ in spaces]
        self._spaces = [values for _, values, _ in spaces]
        self._classes = [kind and weakref.ref(kind) for _, _, kind in spaces]
        self._bases = list(map(_base_ids, self._classes))
        self._sizes = list(map(len, self._spaces))
        # One element for each value of all namespaces:
        self._names = list(_chained(self._spaces))
        found = list(_chained(map(_values_of, self._spaces)))
        self._ids = list(map(id, found))
        self._kinds = list(map(id, map(type, found)))
        self._called = {
            index: _called(value) for index, value in enumerate(found) if type(value) in HOLDERS
        }
        self._acting = {
            id(type(one)) for one in dict(zip(self._kinds, found)).values() if _acts(one)
        }
        """Identities of the types whose values act."""
        chains = list(map(functions, found))
        self._starts = [0, *itertools.accumulate(map(len, chains))]
        # One element for each function:
        every = list(_chained(chains))
        self._functions = list(map(weakref.ref, every))
        self._codes = list(map(_code_of, every))
        self._inner = _inner(every)
        defaults = _chained(map(_defaults, every))
        self._constants = [value for value in defaults if type(value) in _CONSTANTS]
        """Kept, so that no other value gets their identity."""

    def is_same(self, module: object) -> bool:
        """Return whether a comparison of the module would have the same result as then."""
        return (
            seatrial_origins.contents(module) is self.contents
            and type(module) is self._kind
            and list(map(len, self._spaces)) == self._sizes
            and self._are_same(self._spaces, 0, len(self._names))
            and list(map(_base_ids, self._classes)) == self._bases
        )

    def changes(self, module: object) -> Iterator[ChangedName]:
        """Yield the names with other functions, classes or callable objects than then."""
        if type(module) is not self._kind:
            yield ChangedName("", "", "has another class than after its import")
        end = 0
        for above, values, size in zip(self._above, self._spaces, self._sizes):
            start, end = end, end + size
            if not self._are_same([values], start, end):
                yield from self._changes_in(above, values, start, end)
        yield from self._other_bases()

    def _are_same(self, spaces: List[Values], start: int, end: int) -> bool:
        """Return whether namespaces have the values from `start` to `end`, unchanged."""
        values = list(_chained(map(_values_of, spaces)))
        part = slice(self._starts[start], self._starts[end])
        every = [each() for each in self._functions[part]]
        return (
            list(_chained(spaces)) == self._names[start:end]
            and list(map(id, values)) == self._ids[start:end]
            and list(map(id, map(type, values))) == self._kinds[start:end]
            and None not in every
            and all(map(operator.is_, map(_code_of, every), self._codes[part]))
            and _inner(every) == self._inner[part]  # type: ignore[arg-type]
            and all(
                _called(values[index - start]) == called
                for index, called in self._called.items()
                if start <= index < end
            )
        )

    def _changes_in(
        self, above: str, values: Values, start: int, end: int
    ) -> Iterator[ChangedName]:
        names = self._names[start:end]
        for index, name in enumerate(names, start):
            if name in values:
                yield from self._changes_of(f"{above}{name}", values[name], index)
            elif self._kinds[index] in self._acting:
                yield ChangedName(f"{above}{name}", "", "was removed after the import")
        for name in values.keys() - set(names):
            yield self._added(above, str(name), values[name])

    def _other_bases(self) -> Iterator[ChangedName]:
        for above, kind, bases in zip(self._above, self._classes, self._bases):
            if _base_ids(kind) != bases:
                yield ChangedName(above[:-1], "", "has other base classes than after its import")

    def _changes_of(self, place: str, value: object, index: int) -> Iterator[ChangedName]:
        chain = functions(value)
        part = slice(self._starts[index], self._starts[index + 1])
        if id(value) != self._ids[index] or id(type(value)) != self._kinds[index]:
            is_changed = self._kinds[index] in self._acting or _acts(value)
            is_changed = is_changed or self._names[index] == "__builtins__"
            is_changed = is_changed and not self._is_submodule(place, value)
        else:
            is_changed = (
                len(chain) != part.stop - part.start
                or any(one is not was() for one, was in zip(chain, self._functions[part]))
                or not all(map(operator.is_, map(_code_of, chain), self._codes[part]))
                or (index in self._called and _called(value) != self._called[index])
            )
        if is_changed:
            yield _changed(place, value)
        elif chain and _default_ids(_inner(chain)) != _default_ids(self._inner[part]):
            yield ChangedName(place, "", "has other default values than after its import")

    def _added(self, above: str, name: str, value: object) -> ChangedName:
        is_used = above or name == "__getattr__" or name in vars(builtins)
        is_instead = is_used and _acts(value) and not self._is_submodule(above + name, value)
        return _changed(above + name, value)._replace(is_added=not is_instead)

    def _is_submodule(self, place: str, value: object) -> bool:
        """Return whether a value is a plain module that was imported under this name."""
        is_plain = type(value) is types.ModuleType
        return is_plain and MODULES.get(f"{self._module}.{place}") is value


class Imports:
    """The snapshots of a distribution's modules, each taken when its import returned."""

    def __init__(self, installed: InstalledFiles) -> None:
        """Take snapshots of the loaded modules, and watch Python's import."""
        self._tops = frozenset(root.partition(".")[0] for root in installed.roots)
        self._snapshots: Dict[int, ModuleSnapshot] = {}
        """By the identity of the module's contents, unique as long as they are stored here."""
        self._loading = threading.local()
        self._take(list(installed.of(MODULES)))
        self._watch()

    def of(self, module: object) -> Optional[ModuleSnapshot]:
        """Return a module's snapshot, or None if Python's import did not load the module."""
        contents = seatrial_origins.contents(module)
        found = self._snapshots.get(id(contents))
        return found if found is not None and found.contents is contents else None

    def changes(self, module: object) -> List[ChangedName]:
        """Return the changes of a module since its first import."""
        snapshot = self.of(module)
        if snapshot is None:
            return [ChangedName("", "", "was not loaded by Python's import")]
        return sorted(snapshot.stayed.union(snapshot.changes(module)))

    def _watch(self) -> None:
        """Take a snapshot whenever an outermost import of the modules returns, or a reload.

        Python's import statement and importlib call these functions of it by name.
        """
        load, again = _IMPORT._find_and_load, _IMPORT._exec  # noqa: SLF001
        asked = _IMPORT._gcd_import.__code__  # noqa: SLF001

        def _find_and_load(name: str, import_: Callable[..., Any]) -> object:
            caller = sys._getframe(1)  # noqa: SLF001
            if caller.f_code is asked:
                _note_importer(name, caller)
            if name.partition(".")[0] not in self._tops:
                return load(name, import_)
            names = getattr(self._loading, "names", None)
            if names is not None:
                names.append(name)
                return load(name, import_)
            self._loading.names = names = [name]
            try:
                return load(name, import_)
            finally:
                self._loading.names = None
                self._take(names)

        def _exec(spec: Any, module: object) -> object:  # noqa: ANN401 - importlib's
            before = self.of(module)
            changes = set(self.changes(module)) if before is not None else set()
            try:
                return again(spec, module)
            finally:
                if before is not None:
                    # A reload leaves what the file does not define.
                    stayed = changes.intersection(self.changes(module))
                    self._snapshots[id(before.contents)] = ModuleSnapshot(module, stayed)

        for function in (_find_and_load, _exec):
            _replace(_IMPORT, function)

    def _take(self, names: List[str]) -> None:
        for name in names:
            module = MODULES.get(name)
            if module is not None and self.of(module) is None:
                snapshot = ModuleSnapshot(module)
                self._snapshots[id(snapshot.contents)] = snapshot


def _note_importer(name: str, frame: types.FrameType) -> None:
    """Store the place whose module level called ``import_module``, of which the frame is a part."""
    above = frame.f_back
    caller = above.f_back if above is not None else None
    if caller is not None and caller.f_code.co_name == "<module>":
        IMPORTERS.setdefault(name, set()).add((caller.f_code.co_filename, caller.f_lineno or 0))


def watch_files() -> None:
    """Collect the files that Python's loaders and runpy execute, be they in ``sys.modules`` or not.

    Those that are executed from now on.
    """
    load, run = _LOADER.exec_module, runpy._run_code  # type: ignore[attr-defined] # noqa: SLF001

    def exec_module(self: Any, module: object) -> None:  # noqa: ANN401 - importlib's
        EXECUTED.add(str(getattr(self, "path", "")))
        load(self, module)

    def _run_code(code: types.CodeType, *more: Any) -> object:  # noqa: ANN401 - runpy's
        with contextlib.suppress(OSError):  # of a working directory that is gone
            EXECUTED.add(os.path.abspath(code.co_filename))
        return run(code, *more)

    _replace(_LOADER, exec_module)
    _replace(runpy, _run_code)


def _replace(holder: object, function: Any) -> None:  # noqa: ANN401
    """Put a function in another one's place; tracebacks leave out what they would of that."""
    file = getattr(holder, function.__name__).__code__.co_filename
    function.__code__ = function.__code__.replace(co_filename=file)
    setattr(holder, function.__name__, function)


def _strange_loader(values: Values) -> str:
    """Return the name of a module's loader if it is neither Python's nor pytest's."""
    loader = getattr(values.get("__spec__"), "loader", None)
    kind = type(loader)
    if kind is AssertionRewritingHook or loader is None:
        return ""
    own = seatrial_origins.contents(loader)
    if kind in _LOADERS and own.keys() <= _LOADERS_OWN:
        return ""
    return f"{kind.__module__}.{kind.__qualname__}"


def namespaces(contents: Values, module: str) -> Iterator[Tuple[str, Values, Optional[type]]]:
    """Yield the namespaces of a module, and of the classes whose ``__module__`` is the module.

    Each comes with the prefix of its names, and with its class.
    """
    seen: Set[int] = set()
    waiting: List[Tuple[str, Values, Optional[type]]] = [("", contents, None)]
    while waiting:
        above, values, kind = waiting.pop()
        yield above, values, kind
        for key, value in list(values.items()):
            kind_of = type(value)
            if kind_of is not Function and type in _mro(kind_of):
                inner = _class_dict(value)
                if id(value) not in seen and inner.get("__module__") == module:
                    seen.add(id(value))
                    waiting.append((f"{above}{key}.", inner, value))  # type: ignore[arg-type]


def members(contents: Values, module: str) -> Iterator[Tuple[str, object]]:
    """Yield the values of a module and of its classes by name, without the classes."""
    for above, values, _ in namespaces(contents, module):
        for key, value in list(values.items()):
            if type not in _mro(type(value)):
                yield above + str(key), value


def functions(value: object, depth: int = _DEPTH) -> List[Function]:
    """Return the function that a value calls, and those that it wraps.

    Values are recognised by their exact types: reading an attribute would load a lazy value.
    """
    kind = type(value)
    if kind is Function:
        assert isinstance(value, Function)
        found = [value]
        wrapped = getattr(value, "__wrapped__", None)
        if wrapped is None and value.__closure__ is None:
            return found
        inner = [wrapped, *_cells(value)]
    elif kind in HOLDERS:
        found = []
        inner = [getattr(value, name, None) for name in HOLDERS[kind]]
    else:
        return []
    for one in inner if depth else ():
        found += functions(one, depth - 1)
    return found


HOLDERS: Dict[type, Tuple[str, ...]] = {
    types.MethodType: ("__func__",),
    staticmethod: ("__func__",),
    classmethod: ("__func__",),
    property: ("fget", "fset", "fdel"),
    functools.partial: ("func",),
    functools.partialmethod: ("func",),
    functools.cached_property: ("func",),
    type(functools.lru_cache(maxsize=None)(len)): ("__wrapped__",),
}
"""Attributes with functions, by the type of a value that calls them."""


def _changed(place: str, value: object) -> ChangedName:
    files = [one.__code__.co_filename for one in functions(value)]
    files = files[:1] or sorted(seatrial_origins.code_files(value))[:1]
    if not files:
        return ChangedName(place, "", "is another object than after its import")
    return ChangedName(place, files[0], "")


def _acts(value: object) -> bool:
    """Return whether a value can be called, is a descriptor or a module."""
    kind = type(value)
    if kind is Function or kind is type:
        return True
    return kind not in _VALUES and any(
        each is types.ModuleType or not _ACTIVE.isdisjoint(_class_dict(each)) for each in _mro(kind)
    )


def _called(value: object) -> List[int]:
    found = [id(value), *map(id, functions(value))]
    if type(value) is functools.partial:
        assert isinstance(value, functools.partial)
        found += [id(value.func), *map(id, value.args), *map(id, value.keywords.values())]
    return found


def _cells(function: Function) -> Iterator[object]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # noqa: PERF203 - not filled yet
            continue


def _inner(functions: List[Function]) -> List[Optional[Tuple[object, object]]]:
    """Return the identities of the default values of functions, and of what they enclose.

    None for a function without any.
    """
    return [
        None
        if one.__defaults__ is None and one.__kwdefaults__ is None and one.__closure__ is None
        else (list(map(id, _defaults(one))), one.__closure__ and _enclosed(one))
        for one in functions
    ]


def _default_ids(inner: List[Optional[Tuple[object, object]]]) -> List[object]:
    return [each and each[0] for each in inner]


def _defaults(function: Function) -> List[object]:
    return [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]


def _enclosed(function: Function) -> List[int]:
    return [each for value in _cells(function) for each in _called(value)]


def _base_ids(kind: Optional[Callable[[], Optional[type]]]) -> Optional[List[int]]:
    found = kind() if kind is not None else None
    return None if found is None else list(map(id, _class_bases(found)))
