"""Watches for failed assertions that end in a future, a pool's result or an event loop.

A test or a command passes if it never reads the exception from them. The watched modules are not
imported for this purpose: each is changed when the program itself loads it.
"""
# ruff: noqa: INP001 - not a package: this folder is on the jobs' import path

from __future__ import annotations

import os
import sys
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any, Callable, Dict, List, Optional, Set

_MARK = "_seatrial_failure"
_kept: Dict[object, str] = {}
"""Places of failed assertions whose exception was not read yet, by a mark of each exception."""
_asked: Set[str] = set()
"""Places with an assertion whose exception was read."""
_place: Callable[[AssertionError], str] = str
_see: Callable[[str], None] = str


def watch(place: Callable[[AssertionError], str], see: Callable[[str], None]) -> None:
    """Begin to watch.

    Args:
        place: Returns the place of a failed assertion, such as the running test.
        see: Receives the place of one that an event loop had to drop.
    """
    global _place, _see
    _place, _see = place, see
    os.register_at_fork(after_in_child=_kept.clear)  # its parent may still ask for them
    for name, change in _CHANGES.items():
        if name in sys.modules:
            change(sys.modules[name])
    sys.meta_path.insert(0, _Finder)


def kept() -> List[str]:
    """Return the places of failed assertions whose exceptions were never read.

    A place with one read exception is left out: ``Executor.map`` raises the first one, and its
    caller does not read the others.
    """
    return [place for place in _kept.values() if place not in _asked]


class _Outcome:
    """Attribute with the exception of a future or of a pool's result; notes each access."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, owner: Optional[object], _: object = None) -> Any:  # noqa: ANN401
        if owner is None:
            return self
        values = vars(owner)
        mark = values.pop(_MARK, None)
        if mark is not None:
            _asked.add(_kept.pop(mark, ""))
        try:
            return values[self._name]
        except KeyError:
            raise AttributeError(self._name) from None

    def __set__(self, owner: object, value: object) -> None:
        values = vars(owner)
        values[self._name] = value
        # The function of a pool may return an assertion instead of raising it.
        if isinstance(value, AssertionError) and not values.get("_success"):
            mark = object()
            _kept[mark] = _place(value)
            values[_MARK] = mark


def _change_futures(module: Any) -> None:  # noqa: ANN401
    module.Future._exception = _Outcome("_exception")  # noqa: SLF001


def _change_pools(module: Any) -> None:  # noqa: ANN401
    module.ApplyResult._value = _Outcome("_value")  # noqa: SLF001


def _change_loops(module: Any) -> None:  # noqa: ANN401
    handle = module.BaseEventLoop.default_exception_handler

    def default_exception_handler(self: object, context: Dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, AssertionError):
            _see(_place(error))
        handle(self, context)

    module.BaseEventLoop.default_exception_handler = default_exception_handler


_CHANGES: Dict[str, Callable[[Any], None]] = {
    "asyncio.base_events": _change_loops,
    "concurrent.futures._base": _change_futures,
    "multiprocessing.pool": _change_pools,
}


class _Finder:
    """Import finder for the modules that are watched."""

    @staticmethod
    def find_spec(name: str, path: Any, _: object = None) -> Optional[ModuleSpec]:  # noqa: ANN401
        """Return the spec of a module that is watched, else None."""
        change = _CHANGES.get(name)
        spec = PathFinder.find_spec(name, path) if change is not None else None
        loader: Any = spec.loader if spec is not None else None
        if not hasattr(loader, "exec_module"):
            return None
        run = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            del loader.exec_module
            run(module)
            assert change is not None
            change(module)

        loader.exec_module = exec_module
        return spec
