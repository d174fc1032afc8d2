"""A module is compared again if anything that its functions do may have changed."""

from __future__ import annotations

import functools
import gc
import importlib.util
import weakref
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from runners.agent.layout import on_path

TOOL = """
import abc, functools
def plain(): return 1
def other(): return 2
def noted(function):
    def inner(): return function()
    return inner
wrapped = noted(plain)
partly = functools.partial(plain)
class Base: pass
class Kind(Base):
    def by(self, more=1, *, most=1): return 1
    @property
    def name(self): return "a"
    @staticmethod
    def still(): return 1
    @functools.cached_property
    def late(self): return 1
    class Inner:
        def deep(self): return 1
class Abstract(abc.ABC): pass
kept = Kind()
"""


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the class under test, which imports its neighbours by their plain names."""
    monkeypatch.syspath_prepend(str(on_path()))
    import seatrial_module_snapshots

    return seatrial_module_snapshots.ModuleSnapshot


@pytest.fixture
def tool(tmp_path: Path) -> ModuleType:
    file = tmp_path / "tool.py"
    file.write_text(TOOL)
    spec = importlib.util.spec_from_file_location("tool", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_what_is_untouched_is_the_same(seen: Any, tool: Any) -> None:
    before = seen(tool)
    assert [tool.wrapped(), tool.partly(), tool.Kind().late, tool.Kind().name] == [1, 1, 1, "a"]
    assert before.is_same(tool)
    copy = ModuleType("tool")
    vars(copy).update(vars(tool))
    assert not before.is_same(copy)


CHANGES: dict[str, Callable[[Any], object]] = {
    "another function": lambda tool: setattr(tool, "plain", lambda: 9),
    "a new name": lambda tool: setattr(tool, "more", lambda: 9),
    "two names exchanged": lambda tool: vars(tool).update(plain=tool.other, other=tool.plain),
    "code": lambda tool: setattr(tool.plain, "__code__", (lambda: 9).__code__),
    "code of a method": lambda tool: setattr(tool.Kind.by, "__code__", (lambda self: 9).__code__),
    "a method": lambda tool: setattr(tool.Kind, "by", lambda self: 9),
    "a method of an inner class": lambda tool: setattr(tool.Kind.Inner, "deep", lambda self: 9),
    "what a wrapper encloses": lambda tool: setattr(
        tool.wrapped.__closure__[0], "cell_contents", lambda: 9
    ),
    "code of what a wrapper encloses": lambda tool: setattr(
        tool.wrapped.__closure__[0].cell_contents, "__code__", (lambda: 9).__code__
    ),
    "a default value": lambda tool: setattr(tool.Kind.by, "__defaults__", (9,)),
    "a default value by keyword": lambda tool: tool.Kind.by.__kwdefaults__.update(most=9),
    "other default values by keyword": lambda tool: setattr(
        tool.Kind.by, "__kwdefaults__", {"most": 1}
    ),
    "a base class": lambda tool: setattr(tool.Kind, "__bases__", (type("Base", (), {}),)),
    "a metaclass": lambda tool: setattr(
        tool.Abstract, "__class__", type("Meta", (type(tool.Abstract),), {})
    ),
    "the class of a cached property": lambda tool: setattr(
        vars(tool.Kind)["late"], "__class__", type("Late", (functools.cached_property,), {})
    ),
    "an instance": lambda tool: setattr(tool, "kept", tool.Kind()),
    "the class of an instance": lambda tool: setattr(
        tool.kept, "__class__", type("Other", (tool.Kind,), {})
    ),
    "a name": lambda tool: vars(tool).update(renamed=vars(tool).pop("kept")),
    "a partial": lambda tool: tool.partly.__setstate__((lambda: 9, (), {}, {})),
    "a property": lambda tool: vars(tool.Kind)["name"].__init__(lambda self: 9),
    "a static method": lambda tool: vars(tool.Kind)["still"].__init__(lambda: 9),
    "a cached property": lambda tool: setattr(vars(tool.Kind)["late"], "func", lambda self: 9),
}


@pytest.mark.parametrize("how", CHANGES)
def test_what_is_changed_is_not_the_same(seen: Any, tool: Any, how: str) -> None:
    before = seen(tool)
    CHANGES[how](tool)
    assert not before.is_same(tool)


def test_no_instance_is_kept_alive(seen: Any, tool: Any) -> None:
    before = seen(tool)
    gone = weakref.ref(tool.kept)
    tool.kept = None
    gc.collect()
    assert gone() is None
    assert not before.is_same(tool)
