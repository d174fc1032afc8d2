"""Stores the contents of the subject's modules when their import returns, and lists later changes.

The line after ``import mylib`` may already replace ``mylib.f``, by a function whose code looks
honest. A snapshot is taken before that line, because Python's import is watched from before
anything of the payload is loaded.

PYTEST_DONT_REWRITE: loaded before anything of the payload (``seatrial_start``).
"""
# ruff: noqa: INP001 - no package: this folder is on the jobs' import path

from __future__ import annotations

import builtins
import functools
import importlib.machinery
import operator
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
from seatrial_origins import MODULES, InstalledFiles

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
_class_dict = type.__dict__["__dict__"].__get__  # type: ignore[attr-defined]
_mro = type.__dict__["__mro__"].__get__  # type: ignore[attr-defined]
_class_bases = type.__dict__["__bases__"].__get__  # type: ignore[attr-defined]
_code_of = operator.attrgetter("__code__")


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
        self.told = seatrial_origins.contents(module)
        self._kind = type(module)
        loader = _strange_loader(self.told)
        self.stayed = stayed | (
            {ChangedName("", "", f"was loaded by {loader}")} if loader else set()
        )
        name = str(self.told.get("__name__", ""))
        self._held = [_Held(name, *each) for each in namespaces(self.told, name)]

    def is_same(self, module: object) -> bool:
        """Return whether a comparison of the module would have the same result as then."""
        return (
            seatrial_origins.contents(module) is self.told
            and type(module) is self._kind
            and all(each.is_same() for each in self._held)
        )

    def changes(self, module: object) -> Iterator[ChangedName]:
        """Yield the names with other functions, classes or callable objects than then."""
        if type(module) is not self._kind:
            yield ChangedName("", "", "has another class than after its import")
        for each in self._held:
            if not each.is_same():
                yield from each.changes()


class _Held:
    """The code and the enclosed values of the contents of a module or a class."""

    def __init__(self, module: str, above: str, values: Values, kind: Optional[type]) -> None:
        self._module = module
        self._above = above
        self._values = values
        self._class = weakref.ref(kind) if kind is not None else None
        self._bases = self._base_ids()
        self._names = list(values)
        found = list(values.values())
        self._identities = _identities(found)
        kinds = dict(zip(self._identities[len(found) :], found))
        self._acting = {kind for kind, value in kinds.items() if _acts(value)}
        """Identities of the types whose values act."""
        chains = list(map(functions, found))
        self._counts = list(map(len, chains))
        every = [one for chain in chains for one in chain]
        self._functions = list(map(weakref.ref, every))
        self._codes = list(map(_code_of, every))
        self._inner = list(map(_inner, every))
        self._called = {
            name: _called(one) for name, one in zip(self._names, found) if type(one) in HOLDERS
        }

    def is_same(self) -> bool:
        """Return whether the values, and those that functions enclose, are unchanged."""
        values = self._values
        if list(values) != self._names or _identities(list(values.values())) != self._identities:
            return False
        every = [each() for each in self._functions]
        return (
            None not in every
            and all(map(operator.is_, map(_code_of, every), self._codes))
            and list(map(_inner, every)) == self._inner  # type: ignore[arg-type]
            and all(_called(values[name]) == called for name, called in self._called.items())
            and self._base_ids() == self._bases
        )

    def changes(self) -> Iterator[ChangedName]:
        """Yield the changes of all callable values."""
        if self._base_ids() != self._bases:
            yield ChangedName(self._above[:-1], "", "has other base classes than after its import")
        end = 0
        for index, name in enumerate(self._names):
            start, end = end, end + self._counts[index]
            if name in self._values:
                yield from self._changes_of(name, self._values[name], index, slice(start, end))
            elif self._did_act(index):
                yield ChangedName(self._above + name, "", "was removed after the import")
        for name in self._values.keys() - set(self._names):
            yield self._added(str(name), self._values[name])

    def _changes_of(
        self, name: str, value: object, index: int, part: slice
    ) -> Iterator[ChangedName]:
        chain = functions(value)
        if [id(value), id(type(value))] != self._identities[index :: len(self._names)]:
            is_changed = self._did_act(index) or _acts(value) or name == "__builtins__"
            is_changed = is_changed and not self._is_submodule(name, value)
        else:
            before = [each() for each in self._functions[part]]
            is_changed = (
                len(chain) != len(before)
                or not all(map(operator.is_, chain, before))
                or not all(map(operator.is_, map(_code_of, chain), self._codes[part]))
                or (name in self._called and _called(value) != self._called[name])
            )
        if is_changed:
            yield _changed(self._above + name, value)
        elif list(map(_defaults, chain)) != [each and each[0] for each in self._inner[part]]:
            what = "has other default values than after its import"
            yield ChangedName(self._above + name, "", what)

    def _did_act(self, index: int) -> bool:
        return self._identities[len(self._names) + index] in self._acting

    def _added(self, name: str, value: object) -> ChangedName:
        is_used = self._above or name == "__getattr__" or name in vars(builtins)
        is_instead = is_used and _acts(value) and not self._is_submodule(name, value)
        return _changed(self._above + name, value)._replace(is_added=not is_instead)

    def _is_submodule(self, name: str, value: object) -> bool:
        """Return whether a value is a plain module that was imported under this name."""
        is_plain = type(value) is types.ModuleType
        return is_plain and MODULES.get(f"{self._module}.{self._above}{name}") is value

    def _base_ids(self) -> Optional[List[int]]:
        kind = self._class() if self._class is not None else None
        return None if kind is None else list(map(id, _class_bases(kind)))


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
        told = seatrial_origins.contents(module)
        found = self._snapshots.get(id(told))
        return found if found is not None and found.told is told else None

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

        def _find_and_load(name: str, import_: Callable[..., Any]) -> object:
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
                    self._snapshots[id(before.told)] = ModuleSnapshot(module, stayed)

        for function in (_find_and_load, _exec):
            # Tracebacks and warnings leave frames of this file's name out.
            file = load.__code__.co_filename
            function.__code__ = function.__code__.replace(co_filename=file)
            setattr(_IMPORT, function.__name__, function)

    def _take(self, names: List[str]) -> None:
        for name in names:
            module = MODULES.get(name)
            if module is not None and self.of(module) is None:
                snapshot = ModuleSnapshot(module)
                self._snapshots[id(snapshot.told)] = snapshot


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


def _identities(values: List[object]) -> List[int]:
    return [*map(id, values), *map(id, map(type, values))]


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


def _inner(function: Function) -> Optional[Tuple[object, object]]:
    """Return what identifies a function's default values and what it encloses; None without any."""
    defaults = _defaults(function)
    if defaults is None and function.__closure__ is None:
        return None
    return defaults, [each for value in _cells(function) for each in _called(value)]


def _defaults(function: Function) -> Optional[List[Tuple[int, str]]]:
    """Return the identities of default values, and the text of those that are constants."""
    values, named = function.__defaults__, function.__kwdefaults__
    if values is None and named is None:
        return None
    every = [*(values or ()), *(named or {}).values()]
    return [(id(one), repr(one) if type(one) in _CONSTANTS else "") for one in every]
