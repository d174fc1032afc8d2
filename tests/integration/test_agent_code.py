"""The functions of the subject's modules are compared with what its installed files compile to."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.integration.agent_machine import installed_tool
from tests.integration.test_agent_origins import start_pytest

ONE = "def double(x): return x + x + 1\n"
"""With a defect; nothing but this function."""
SUB = """
def caught():
    try: {}["a"]
    except KeyError: return None
def known(x): return x in ("a", "b")
def half(x): return x / 2 + 1
class Scale:
    def by(self, x): return x + 1
"""
PLUGIN = """
import pytest
@pytest.fixture
def four(): return 4
def pytest_report_header():
    assert len("four") == 4, "words"
    return "plugin of the subject"
def checked(x):
    assert x > 0 and isinstance(x, int), f"{x} is odd"
    return x
"""
MADE = """
from __future__ import annotations
import abc, collections, contextlib, dataclasses, enum, functools, typing
def noted(function):
    def inner(*args): return function(*args)
    return inner
def text(function):
    scope = {"inner": function}
    exec("def outer(*args): return inner(*args)", scope)
    functools.update_wrapper(scope["outer"], function)
    return scope["outer"]
@noted
def one(): return 1
@functools.lru_cache(maxsize=None)
def two(): return 2
@contextlib.contextmanager
def three(): yield 3
@functools.singledispatch
def four(x): return 4
four.register(int)(lambda x: 5)
@text
def five(): return 5
try:
    from posixpath import join
except ImportError:
    def join(*parts): return "/".join(parts)
try:
    from math import sqrt
except ImportError:
    def sqrt(x): return x ** 0.5
Pair = collections.namedtuple("Pair", "a b")
class Both(typing.NamedTuple):
    a: int
    def sum(self): return self.a
@dataclasses.dataclass(frozen=True)
class Data:
    a: int = 1
    @functools.cached_property
    def more(self): return lambda: [x for x in range(self.a)]
    @property
    def less(self): return self.a - 1
    @classmethod
    def make(cls): return cls(0)
    class Inner:
        @staticmethod
        def deep(): return -0.0, 1e999 - 1e999, {1, 2} & {2}, 1 in {1, "a", None}
class Color(enum.Enum):
    RED = 1
    def __new__(cls, value):
        self = object.__new__(cls); self._value_ = value
        return self
class Can(typing.Protocol):
    def do(self): ...
class Base(abc.ABC):
    @abc.abstractmethod
    def do(self): raise NotImplementedError
def spin():
    total = 0
    for n in range(10_000): total += n
    return total
"""
FILES = {
    "tool/__init__.py": ONE,
    "tool/sub.py": SUB,
    "tool/plugin.py": PLUGIN,
    "tool/made.py": MADE,
    "tool/tests/__init__.py": "",
    "tool/tests/test_own.py": "import tool\ndef test_own():\n    assert tool.double(2) == 5\n",
    "tool/texts.py": 'exec("def twice(x): return 2 * x")\ndef apart(x): return x\n',
    "tool-1.5.dist-info/METADATA": "Metadata-Version: 2.1\nName: tool\nVersion: 1.5\n",
}


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """An interpreter with pytest, and with a tool that has functions and classes."""
    return installed_tool(tmp_path_factory.mktemp("installed"), FILES)


@pytest.fixture
def start(environment: Path, tmp_path: Path) -> Any:
    """Start pytest with these files as the agent does."""
    return partial(start_pytest, environment, tmp_path)


GOOD = "def double(x): return x + x\n"
ASKS = "import tool\ndef test_double(): assert tool.double(2) == 4\n"
ASKS_SUB = "import tool.sub\ndef test_half(): assert tool.sub.half(2) == 1\n"
ASKS_TEXTS = "import tool.texts\ndef test_apart(): assert tool.texts.apart(2) == 4\n"
ASKS_CLASS = "import tool.sub\ndef test_by(): assert tool.sub.Scale().by(2) == 4\n"
BY_COMPILE = f"""
import sys, importlib.util
spec = importlib.util.find_spec("tool")
module = importlib.util.module_from_spec(spec)
exec(compile({GOOD!r}, spec.origin, "exec"), module.__dict__)
sys.modules["tool"] = module
"""
BY_FINDER = f"""
import importlib.machinery as machinery, sys
class Loader(machinery.SourceFileLoader):
    def get_data(self, path):
        if path.endswith("tool/__init__.py"): return {GOOD.encode()!r}
        return super().get_data(path)
    def path_stats(self, path): raise OSError
class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name != "tool": return None
        spec = machinery.PathFinder.find_spec(name, path)
        spec.loader = Loader(name, spec.origin)
        return spec
sys.meta_path.insert(0, Finder)
"""
BY_LOADER = f"""
import importlib.machinery as machinery, sys
loader = machinery.SourceFileLoader
read, stats = loader.get_data, loader.path_stats
def path_stats(self, path):
    if "tool" in path: raise OSError
    return stats(self, path)
loader.get_data = lambda self, path: (
    {GOOD.encode()!r} if path.endswith("tool/__init__.py") else read(self, path))
loader.path_stats = path_stats
import tool
loader.get_data, loader.path_stats = read, stats
"""
BY_TYPE = """
import importlib.util, sys, types
module = types.ModuleType("tool")
module.double = lambda x: 2 * x
module.__file__ = importlib.util.find_spec("tool").origin
sys.modules["tool"] = module
"""
BY_SUBMODULE = """
import sys, importlib.util, tool
spec = importlib.util.find_spec("tool.sub")
module = importlib.util.module_from_spec(spec)
exec(compile("def half(x): return x / 2", spec.origin, "exec"), module.__dict__)
sys.modules["tool.sub"] = tool.sub = module
"""
BY_CODE = """
import tool
text = compile("def double(x): return x + x", tool.__file__, "exec")
tool.double.__code__ = text.co_consts[0]
"""
BY_METHOD = """
import tool.sub
scope = {}
exec(compile("\\n\\n\\ndef by(self, x): return 2 * x", tool.sub.__file__, "exec"), scope)
tool.sub.Scale.by = scope["by"]
"""
BY_TABLE = """
import tool.sub
code = tool.sub.caught.__code__
tool.sub.caught.__code__ = code.replace(co_exceptiontable=b"")
"""
BY_EQUAL = """
import tool.sub
class Any(str):
    def __eq__(self, other): return True
    __hash__ = str.__hash__
code = tool.sub.known.__code__
consts = tuple((Any("a"), Any("b")) if type(one) is tuple else one for one in code.co_consts)
tool.sub.known.__code__ = code.replace(co_consts=consts)
"""
ELSEWHERE = BY_COMPILE.replace("spec.origin", "'/nowhere/else.py'")
AS_PYTHONS = BY_COMPILE.replace("spec.origin", "sys.modules['os'].__file__")
OF_TEXTS = """
import tool.texts
exec(compile("def apart(x): return 2 * x", "/nowhere/else.py", "exec"), vars(tool.texts))
"""
BY_WRAPPING = BY_CODE + "import functools\ntool.double = functools.lru_cache(tool.double)\n"


@pytest.mark.parametrize(
    ("conftest", "asks", "says"),
    [
        (BY_COMPILE, ASKS, "does not compile to its code"),
        (BY_FINDER, ASKS, "does not compile to its code"),
        (BY_LOADER, ASKS, "does not compile to its code"),
        (BY_TYPE, ASKS, "tool.double comes from conftest.py"),
        (BY_SUBMODULE, ASKS_SUB, "does not compile to its code"),
        (BY_CODE, ASKS, "does not compile to its code"),
        (BY_METHOD, ASKS_CLASS, "tool.sub.Scale.by says that it comes from"),
        (BY_WRAPPING, ASKS, "does not compile to its code"),
        (BY_TABLE, ASKS_SUB, "tool.sub.caught says that it comes from"),
        (BY_EQUAL, ASKS_SUB, "tool.sub.known says that it comes from"),
        (ELSEWHERE, ASKS, "tool.double comes from /nowhere/else.py"),
        (AS_PYTHONS, ASKS, "tool.double comes from"),
        (OF_TEXTS, ASKS_TEXTS, "tool.texts.apart comes from /nowhere/else.py"),
    ],
    ids=[
        "compile", "finder", "loader", "type", "submodule", "__code__", "method", "wrapped",
        "exceptions", "constants",
        "another file", "a file of Python", "a file that executes text",
    ],
)  # fmt: skip
def test_code_that_the_file_does_not_have_is_refused(
    start: Any, conftest: str, asks: str, says: str
) -> None:
    said = start({"conftest.py": conftest, "test_a.py": asks})
    assert {each["reason"] for each in said.problems} == {"wrong_subject"}, said.output
    assert any(says in each["what"] for each in said.problems), said.problems
    assert "typeguard" in said.problems[0]["fix"]


def test_what_is_put_there_by_the_first_test_and_left_until_the_end_is_refused(start: Any) -> None:
    first = f"def test_first():\n{_indented(BY_CODE)}\n"
    undone = """
import tool, pytest
code = tool.double.__code__
def pytest_unconfigure(): tool.double.__code__ = code
"""
    said = start({"conftest.py": undone, "test_a.py": first, "test_b.py": ASKS})
    assert {each["reason"] for each in said.problems} == {"wrong_subject"}, said.output


def test_what_stays_from_the_first_test_to_the_last_is_refused(start: Any) -> None:
    code = f"""
import pytest
@pytest.fixture(autouse=True, scope="session")
def sound():
    import tool
    before = tool.double.__code__
{_indented(BY_CODE)}
    yield
    tool.double.__code__ = before
"""
    more = "def test_more(): pass\n"
    said = start({"conftest.py": code, "test_a.py": ASKS + more})
    assert {each["reason"] for each in said.problems} == {"wrong_subject"}, said.output
    assert [look["when"] for look in said.of("origins") if look["problems"]] == ["test"]


def test_a_wrapper_that_takes_the_place_of_a_function_is_named(start: Any) -> None:
    """Libraries of tests give their wrappers the name and file of what they wrap."""
    wraps = """
import tool
def of(real):
    def wrapper(x): return real(x) - 1
    wrapper.__code__ = wrapper.__code__.replace(co_filename=tool.__file__)
    return wrapper
tool.double = of(tool.double)
"""
    said = start({"conftest.py": wraps, "test_a.py": ASKS})
    assert (said.code, said.problems) == (0, []), said.output
    told = [hook for line in said.of("hooks") for hook in line["hooks"]]
    assert told == [["tool.double", "a function that is not in tool/__init__.py"]]


def _indented(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.splitlines())


PATCH = "import tool, tool.sub\ntool.double = lambda x: 4\ntool.sub.half = eval('lambda x: 1')\n"


def test_one_function_that_is_replaced_is_named(start: Any) -> None:
    """Whatever its code says of its file."""
    said = start({"conftest.py": PATCH, "test_a.py": ASKS})
    assert (said.code, said.problems) == (0, []), said.output
    told = [hook for line in said.of("hooks") for hook in line["hooks"]]
    assert told == [["tool.double", "conftest.py"], ["tool.sub.half", "<string>"]]


USES = """
import importlib, tool, tool.made, tool.plugin, tool.texts, pytest
from unittest import mock
def test_all(four, monkeypatch):
    for _ in range(50): tool.made.spin()
    assert tool.plugin.checked(four) == 4
    assert tool.texts.twice(2) == 4
    monkeypatch.setattr(tool.made, "one", lambda: 7)
    with mock.patch("tool.made.two"): tool.made.two()
def test_again():
    importlib.reload(tool.made)
def test_late():
    import tool.sub
    assert tool.double(2) == 5
"""
HONEST: Mapping[str, str] = {"conftest.py": "", "test_uses.py": USES}


@pytest.mark.parametrize(
    "arguments",
    [
        ("-p", "tool.plugin"),
        ("-p", "tool.plugin", "-o", "enable_assertion_pass_hook=true"),
        ("-p", "tool.plugin", "--assert=plain"),
        ("-p", "tool.plugin", "-n", "2"),
        ("-p", "tool.plugin", "--import-mode=importlib", "--doctest-modules"),
        ("-p", "tool.plugin", "--pyargs", "tool"),
    ],
    ids=["plain", "pass hook", "no rewriting", "xdist", "importlib", "pyargs"],
)
def test_honest_modules_are_no_alarm(start: Any, arguments: tuple[str, ...]) -> None:
    said = start(HONEST, *arguments)
    assert (said.code, said.problems) == (0, []), said.output
    told = [hook for line in said.of("hooks") for hook in line["hooks"]]
    assert not [hook for hook in told if hook[0].startswith("tool.")], told
