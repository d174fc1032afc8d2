"""Stores the contents of the subject's modules when their import returns, and lists later changes.

The line after ``import mylib`` may already replace ``mylib.f``, by a function whose code looks
unsuspicious. The snapshot precedes that line, because Python's import is watched before anything
of the payload is loaded.

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
from bisect import bisect_left
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
_defaults_of = operator.attrgetter("__defaults__")
_keyword_defaults_of = operator.attrgetter("__kwdefaults__")
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

    Kept alive are only functions, what wraps them, classes and constants. Tests may wait for the
    garbage collection of other values.
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
        self._classes = [kind for _, _, kind in spaces[1:]]
        self._bases = list(map(_class_bases, self._classes))
        self._sizes = list(map(len, self._spaces))
        # One element for each value of all namespaces:
        self._names = list(_chained(self._spaces))
        found = list(_chained(map(_values_of, self._spaces)))
        self._take_values(found)
        self._take_functions(found)

    def _take_values(self, found: List[object]) -> None:
        kinds = list(map(type, found))
        self._values = [value if kind in _KEPT else _OTHER for value, kind in zip(found, kinds)]
        # One element for each other value:
        self._others = [index for index, kind in enumerate(kinds) if kind not in _KEPT]
        self._other_ids = [id(found[index]) for index in self._others]
        self._other_kinds = [id(kinds[index]) for index in self._others]
        self._acting = {id(kind) for kind in set(kinds) if _acts(kind)}
        """Identities of the types whose values act."""

    def _take_functions(self, found: List[object]) -> None:
        chains = {index: functions(one) for index, one in enumerate(found) if type(one) in _CALLERS}
        self._called = {
            index: _called(found[index]) for index in chains if type(found[index]) is not Function
        }
        lengths = [0] * len(found)
        for index, chain in chains.items():
            lengths[index] = len(chain)
        self._starts = [0, *itertools.accumulate(lengths)]
        # One element for each function:
        self._functions = list(_chained(chains.values()))
        self._codes = list(map(_code_of, self._functions))
        self._defaults = list(map(_defaults_of, self._functions))
        self._keyword_defaults = list(map(_keyword_defaults_of, self._functions))
        self._inner = {
            position: _inner(one)
            for position, one in enumerate(self._functions)
            if one.__closure__ is not None or one.__kwdefaults__ is not None
        }

    def is_same(self, module: object) -> bool:
        """Return whether the module has the same contents as at the snapshot."""
        return (
            seatrial_origins.contents(module) is self.contents
            and type(module) is self._kind
            and list(map(len, self._spaces)) == self._sizes
            and self._are_same(self._spaces, 0, len(self._names))
            and all(map(operator.is_, map(_class_bases, self._classes), self._bases))
        )

    def called(self) -> Iterator[Tuple[str, List[Function]]]:
        """Yield the name of each value that calls functions, with those functions."""
        starts = zip(self._starts, self._starts[1:])
        for place, (start, end) in zip(self._places(), starts):
            if end > start:
                yield place, self._functions[start:end]

    def values(self) -> Dict[str, object]:
        """Return the present values by qualified name, without classes."""
        found = _chained(map(_values_of, self._spaces))
        return {
            place: value
            for place, value in zip(self._places(), found)
            if type not in _mro(type(value))
        }

    def _places(self) -> Iterator[str]:
        above = _chained(map(itertools.repeat, self._above, self._sizes))
        return map("{}{}".format, above, self._names)

    def changes(self, module: object) -> Iterator[ChangedName]:
        """Yield the names with other functions, classes or callable objects than before."""
        if type(module) is not self._kind:
            yield ChangedName("", "", "has another class than after its import")
        end = 0
        for above, values, size in zip(self._above, self._spaces, self._sizes):
            start, end = end, end + size
            if len(values) != size or not self._are_same([values], start, end):
                yield from self._changes_in(above, values, start, end)
        for above, kind, bases in zip(self._above[1:], self._classes, self._bases):
            if list(map(id, _class_bases(kind))) != list(map(id, bases)):
                yield ChangedName(above[:-1], "", "has other base classes than after its import")

    def _are_same(self, spaces: List[Values], start: int, end: int) -> bool:
        """Return whether namespaces have the values number `start` to `end` of the snapshot."""
        values = list(_chained(map(_values_of, spaces)))
        part = slice(self._starts[start], self._starts[end])
        some = slice(bisect_left(self._others, start), bisect_left(self._others, end))
        others = [values[index - start] for index in self._others[some]]
        every = self._functions[part]
        return (
            list(_chained(spaces)) == self._names[start:end]
            and sum(map(operator.is_, values, self._values[start:end])) == len(values) - len(others)
            and list(map(id, others)) == self._other_ids[some]
            and list(map(id, map(type, others))) == self._other_kinds[some]
            and all(map(operator.is_, map(_code_of, every), self._codes[part]))
            and all(map(operator.is_, map(_defaults_of, every), self._defaults[part]))
            and all(
                map(operator.is_, map(_keyword_defaults_of, every), self._keyword_defaults[part])
            )
            and all(
                _inner(self._functions[position]) == inner
                for position, inner in self._inner.items()
                if part.start <= position < part.stop
            )
            and all(
                _called(values[index - start]) == called
                for index, called in self._called.items()
                if start <= index < end
            )
        )

    def _then(self, index: int) -> Tuple[int, int]:
        """Return the identities of a value and of its type, as in the snapshot."""
        value = self._values[index]
        if value is not _OTHER:
            return id(value), id(type(value))
        other = bisect_left(self._others, index)
        return self._other_ids[other], self._other_kinds[other]

    def _changes_in(
        self, above: str, values: Values, start: int, end: int
    ) -> Iterator[ChangedName]:
        names = self._names[start:end]
        for index, name in enumerate(names, start):
            if name in values:
                yield from self._changes_of(f"{above}{name}", values[name], index)
            elif self._then(index)[1] in self._acting:
                yield ChangedName(f"{above}{name}", "", "was removed after the import")
        for name in values.keys() - set(names):
            yield self._added(above, str(name), values[name])

    def _changes_of(self, place: str, value: object, index: int) -> Iterator[ChangedName]:
        chain = functions(value)
        part = slice(self._starts[index], self._starts[index + 1])
        then = self._then(index)
        if then != (id(value), id(type(value))):
            is_changed = then[1] in self._acting or _acts(type(value))
            is_changed = is_changed or self._names[index] == "__builtins__"
            is_changed = is_changed and not self._is_submodule(place, value)
        else:
            is_changed = (
                list(map(id, chain)) != list(map(id, self._functions[part]))
                or not all(map(operator.is_, map(_code_of, chain), self._codes[part]))
                or (index in self._called and _called(value) != self._called[index])
            )
        if is_changed:
            yield _changed(place, value)
        elif self._other_defaults(chain, part.start):
            yield ChangedName(place, "", "has other default values than after its import")

    def _other_defaults(self, chain: List[Function], start: int) -> bool:
        for position, one in enumerate(chain, start):
            if one.__kwdefaults__ is not self._keyword_defaults[position]:
                return True
            was = self._defaults[position] or ()
            if list(map(id, one.__defaults__ or ())) != list(map(id, was)):
                return True
            if one.__kwdefaults__ and _inner(one)[0] != self._inner[position][0]:
                return True
        return False

    def _added(self, above: str, name: str, value: object) -> ChangedName:
        is_used = above or name == "__getattr__" or name in vars(builtins)
        is_instead = is_used and _acts(type(value)) and not self._is_submodule(above + name, value)
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
    """Collect the files that Python's loaders and runpy execute from now on, in `EXECUTED`.

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
    """Replace a function; the new one keeps the old one's file name.

    Tracebacks leave out the frames of the new one where they left out those of the old one.
    """
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
        metas = set(map(type, list(values.values()))) - _NO_CLASSES
        metas = {each for each in metas if type in _mro(each)}
        for key, value in list(values.items()) if metas else ():
            if type(value) in metas:
                inner = _class_dict(value)
                if id(value) not in seen and inner.get("__module__") == module:
                    seen.add(id(value))
                    waiting.append((f"{above}{key}.", inner, value))  # type: ignore[arg-type]


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
        inner = [wrapped, *_enclosed(value)]
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
_DESCRIPTORS = (
    types.BuiltinFunctionType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
)
_CALLERS = frozenset((Function, *HOLDERS))
_NO_CLASSES = _CONSTANTS.union(_CALLERS, _DESCRIPTORS)
_KEPT = _NO_CLASSES | {type}
"""Types of values that the snapshot keeps alive; an instance of them cannot change its class."""
_OTHER = object()


def _changed(place: str, value: object) -> ChangedName:
    files = [one.__code__.co_filename for one in functions(value)]
    files = files[:1] or sorted(seatrial_origins.code_files(value))[:1]
    if not files:
        return ChangedName(place, "", "is another object than after its import")
    return ChangedName(place, files[0], "")


def _acts(kind: type) -> bool:
    """Return whether values of a type can be called, are descriptors or modules."""
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


def _enclosed(function: Function) -> Iterator[object]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # noqa: PERF203 - not filled yet
            continue


def _inner(function: Function) -> Tuple[List[int], List[int]]:
    """Return the identities of a function's keyword defaults, and of its closure's values."""
    values = list(_enclosed(function))
    found = list(map(id, values))
    for value in values:
        if type(value) in _CALLERS:
            found += _called(value)
    return list(map(id, (function.__kwdefaults__ or {}).values())), found
