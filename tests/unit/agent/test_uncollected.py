"""What has a usual name for tests and is not collected is found, and nothing of an honest suite."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from runners.agent.layout import on_path


@pytest.fixture
def uncollected(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the module under test, which is imported by its plain name."""
    monkeypatch.syspath_prepend(str(on_path()))
    import seatrial_uncollected

    return seatrial_uncollected


@pytest.fixture
def lost(uncollected: Any) -> Callable[[str], list[tuple[str, str]]]:
    """Return a function that tells which tests a source loses."""

    def tell(source: str) -> list[tuple[str, str]]:
        module = _module(source)
        if not uncollected.is_suspect(module, source):
            return []
        found = uncollected.lost_definitions(module, source.encode())
        return [("::".join(path), how) for path, how in found]

    return tell


def _module(source: str) -> ModuleType:
    module = ModuleType("a_suite")
    exec(source, vars(module))
    return module


IMPORT = (
    "helpers = {'__name__': 'helpers'}\nexec('def test_a(): pass', helpers)\n"
    "test_a = helpers['test_a']"
)
CALLED = "def test_a(run):\n def test_c(): pass\n test_c()\n"
"""A test with one in it, which is called."""
FALSE = "is defined under a condition that was false"


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("def test_a(): assert 0\ndef test_a(): pass",
         [("test_a", "is lost: line 2 defines it again")]),
        ("class Any:\n def test_a(self): assert 0\n x = 1\n async def test_a(self): pass",
         [("Any::test_a", "is lost: line 4 defines it again")]),
        ("class TestA:\n def test_a(self): assert 0\nclass TestA:\n def test_b(self): pass",
         [("TestA", "is lost: line 3 defines it again")]),
        ("if True:\n  def test_a(): assert 0\n  def test_a(): pass",
         [("test_a", "is lost: line 3 defines it again")]),
        ("def wrap(f): pass\n@wrap\ndef test_a(): assert 0", [("test_a", "is not a function")]),
        ("def wrap(f): pass\nclass TestA:\n @wrap\n def test_a(self): assert 0",
         [("TestA::test_a", "is not a function")]),
        ("import pytest\n@pytest.fixture\ndef test_a(): assert 0",
         [("test_a", "is a fixture, so that it does not run as a test")]),
        ("class TestA:\n @property\n def test_a(self): assert 0",
         [("TestA::test_a", "is a property")]),
        (f"def test_a(): assert 0\n{IMPORT}", [("test_a", "is lost: an import replaces it")]),
        ("def test_a():\n def test_b(): assert 0",
         [("test_a::test_b", "is within a test that does not call it")]),
        ("if False:\n class TestA:\n  def test_a(self): assert 0", [("TestA", FALSE)]),
        ("try:\n import nothing\nexcept ImportError: pass\nelse:\n def test_a(): assert 0",
         [("test_a", FALSE)]),
        ("class TestA:\n if not True:\n  async def test_a(self): assert 0",
         [("TestA::test_a", FALSE)]),
        ("def keep(f): return f\nif False:\n @keep\n def test_a(): assert 0",
         [("test_a", FALSE)]),
    ],
)  # fmt: skip
def test_a_source_that_loses_a_test(lost: Any, source: str, said: list[tuple[str, str]]) -> None:
    assert lost(source) == said


@pytest.mark.parametrize(
    "source",
    [
        "if True:\n def test_a(): pass\nelse:\n def test_a(): pass",
        "try:\n import json\nexcept ImportError:\n def test_a(): pass\nelse:\n def test_a(): pass",
        "def test_a(): pass\ndef other(f=test_a): pass\ndef test_a(): pass",
        "def test_a(): pass\nkept = test_a\ndef test_a(): pass",
        "class TestA:\n def test_a(self): pass\nclass TestA(TestA):\n def test_b(self): pass",
        (
            "from typing import overload\n@overload\ndef test_a(x: int): ...\n@overload\n"
            "def test_a(x: str): ...\ndef test_a(x): pass"
        ),
        (
            "import functools\n@functools.singledispatch\ndef test_a(x): ...\n"
            "@test_a.register\ndef test_a(x: int): ..."
        ),
        (
            "class A:\n @property\n def test_a(self): pass\n @test_a.setter\n"
            " def test_a(self, value): pass"
        ),
        "class A:\n def test_a(self): pass\nclass B:\n def test_a(self): pass",
        "def outer():\n def test_a(): pass\n def test_a(): pass",
        "def test_a():\n def test_b(): pass\n test_b()",
        "def test_a(make):\n @make\n def test_b(): pass",
        "def test_a(pytester):\n '''\n def test_b(): pass\n'''",
        "import pytest\n@pytest.fixture\ndef test_a(): return 1",
        "import pytest\n@pytest.fixture\ndef test_a():\n assert 1\n yield 1",
        "import pytest\n@pytest.fixture(autouse=True)\ndef test_a(monkeypatch): monkeypatch.undo()",
        "class Shape:\n @property\n def test_a(self): return 1",
        "class TestModel:\n @property\n def test_input(self): return 1",
        f"{CALLED} class T:\n  def test_b(self): assert 0\n run(T)",
        f"{CALLED} def make():\n  class T:\n   def test_step(self): pass\n run(make())",
        f"try:\n raise ImportError\nexcept ImportError:\n def test_a(): pass\n{IMPORT}",
        "import functools\nfrom unittest import mock\n@mock.patch('os.sep', 1)\ndef test_a(): pass",
        "TEXT = '''\ndef test_a(): pass\ndef test_a(): pass\n'''",
        "if True:\n def test_a(): pass",
        "if False:\n class Helper:\n  def run(self): pass\n def helper(): pass",
        "if False:\n class A:\n  def test_a(self): pass\nelse:\n A = object",
        "def test_a(): pass\ndel test_a",
        "TEXT = '''\nif False:\n def test_a(): pass\n'''",
        "if True:\n @lambda f: globals().update(test_a_0=f)\n def test_a(): pass\n del test_a",
        "test_data = [1]\ntest_case = None",
        "class Helper:\n def run(self): pass\nclass Helper:\n def run(self): pass",
        "class A:\n @staticmethod\n def test_a(): pass\n @classmethod\n def test_b(cls): pass",
    ],
)
def test_a_source_that_loses_none(lost: Any, source: str) -> None:
    assert lost(source) == []


def test_a_source_that_is_not_what_was_imported(uncollected: Any) -> None:
    ((path, how),) = uncollected.lost_definitions(ModuleType("a_suite"), b"def (:")
    assert (path, how) == ((), "cannot be parsed, so it was not searched for lost tests")


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("class ScaleTests:\n def test_a(self): pass", {"ScaleTests": "python_classes"}),
        ("class ScaleTest:\n def test_a(self): pass", {"ScaleTest": "python_classes"}),
        ("class TestA:\n __test__ = False\n def test_a(self): pass",
         {"TestA": "__test__ = False"}),
        ("class TestA:\n def test_a(self): pass\n test_a.__test__ = False",
         {"TestA::test_a": "__test__ = False"}),
        ("class TestA:\n class InnerTests:\n  def test_a(self): pass",
         {"TestA::InnerTests": "python_classes"}),
        ("def test_a(): pass\ntest_a.__test__ = False", {"test_a": "__test__ = False"}),
        ("def Test_a(): pass", {"Test_a": "python_functions"}),
        ("def Testing(): pass", {}),
        ("class TestA:\n __test__ = False\n value = 1", {}),
        ("class _SharedTests:\n def test_a(self): pass", {}),
        ("class Latest:\n def test_a(self): pass", {}),
        (("import abc\nclass BaseTests(abc.ABC):\n @abc.abstractmethod\n def made(self): ...\n"
         " def test_a(self): pass"), {}),
        ("class BaseTests:\n def test_a(self): pass\nclass TestA(BaseTests): pass", {}),
        (("class TestBase:\n __test__ = False\n def test_a(self): pass\n"
         "class TestA(TestBase): __test__ = True"), {}),
        ("import unittest\nTestCase = unittest.TestCase", {}),
    ],
)  # fmt: skip
def test_definitions_with_a_usual_name(
    uncollected: Any, source: str, said: Mapping[str, str]
) -> None:
    module = _module(source)
    collected = {id(one) for one in getattr(vars(module).get("TestA"), "__mro__", ())[1:]}
    found = uncollected.uncollected_definitions(module, collected)
    assert {"::".join(path): why for path, why in found} == said


def test_a_conftest_has_fixtures_and_no_tests(uncollected: Any) -> None:
    module = _module(
        "import pytest\n@pytest.fixture\ndef test_client(): pass\n"
        "def test_a(): pass\nclass TestA:\n def test_a(self): pass\n"
    )
    found = uncollected.uncollected_definitions(module, set(), is_ignored=True)
    said = {("test_a",): "python_files", ("TestA",): "python_files"}
    assert dict(found) == said


@pytest.mark.parametrize(
    ("file", "more", "found"),
    [
        ("test_a.py", (), True),
        ("deep/er/a_test.py", (), True),
        ("node_modules/test_a.py", (), True),
        ("check.py", (), False),
        ("env/lib/test_a.py", ("env/pyvenv.cfg",), False),
        ("lib/site-packages/numpy/test_a.py", (), False),
        ("node_modules/gyp/test_a.py", ("node_modules/gyp/package.json",), False),
    ],
)
def test_a_folder_with_tests(
    uncollected: Any, tmp_path: Path, file: str, more: tuple[str, ...], found: bool
) -> None:
    for name in (file, *more):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert uncollected.holds_test_files(tmp_path, uncollected.USUAL_FILES) is found


def test_a_large_folder_is_not_searched_to_its_end(
    uncollected: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "test_a.py").touch()
    monkeypatch.setattr(uncollected, "_ENTRIES", 2)
    assert not uncollected.holds_test_files(tmp_path, uncollected.USUAL_FILES)


@pytest.mark.parametrize(
    ("text", "defines"),
    [
        ("def test_a(): pass\n", True),
        ("class A:\n    async def test_a(self): pass\n", True),
        ("def ask(): pass\n", False),
        ("def ask():\n    def test_a(): pass\n", False),
    ],
)
def test_a_file_that_defines_tests(
    uncollected: Any, tmp_path: Path, text: str, defines: bool
) -> None:
    (tmp_path / "tests_a.py").write_text(text)
    assert uncollected.file_defines_tests(tmp_path / "tests_a.py") is defines


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("scaleTest.py", True),
        ("Test_scale.py", True),
        ("check_scale.py", True),
        ("scale_tests.py", True),
        ("scale.py", False),
        ("conftest.py", False),
    ],
)
def test_a_file_of_a_name_like_a_usual_one(uncollected: Any, name: str, is_one: bool) -> None:
    assert uncollected.is_alike(name) is is_one


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("source", "kinds"),
    [
        ("def same(a, b):\n    assert (a == b, 'differ')\n", {"a tuple"}),
        ("def f():\n    assert (\n  1 == 2,\n  '(',\n)\n", {"a tuple"}),
        ("def f(): \n assert(1, 2)", {"a tuple"}),
        ("def f(a):\n    assert (x > 1 for x in a)\n", {"a generator expression"}),
        ("def f(a):\n    assert (\n        x > 1\n        for x in a\n    ), 'no'\n",
         {"a generator expression"}),
        ("def f():\n    assert lambda: 1 == 2\n", {"a function"}),
        ("def good(): pass\ndef f():\n    assert good\n", {"a function"}),
        ("def good(): pass\ndef f():\n    assert good, 'no'  # here\n", {"a function"}),
        ("def good(): pass\ndef f(good):\n    assert good\n", set()),
        ("def good(): pass\ndef f():\n    good = 1\n    assert good\n", set()),
        ("def good(): return 1\ndef f():\n    assert good()\n    assert good is not None\n", set()),
        ("good = 1\ndef f():\n    assert good\n", set()),
        ("def f(a):\n    assert all(x > 1 for x in a)\n    assert (sum(x for x in a))\n", set()),
        ("def f(a):\n    assert (lambda: 1)() == 1\n", set()),
        ("def same(a, b):\n    assert (a == b), 'differ'\nassert (1) == (1)", set()),
        ("assert (\n 1\n  == 1\n), (1, 2)\nassert (1, 2) == (1, 2)", set()),
        ("def f(): assert ()", set()),
        ("TEXT = '''\nassert (1 == 2, 'text')\n'''", set()),
        ("# assert (1, 2)\nx = 1", set()),
    ],
)  # fmt: skip
def test_an_assertion_that_is_always_true(uncollected: Any, source: str, kinds: set[str]) -> None:
    assert uncollected.always_true(_module(source), source.encode()) == kinds


def test_a_source_that_cannot_be_parsed_asserts_nothing(uncollected: Any) -> None:
    assert uncollected.always_true(_module(""), b"assert (1, 2)\ndef (:") == set()


@pytest.mark.parametrize(
    ("body", "is_idle"),
    [
        ("a == b", True),
        ("a in b", True),
        ("a is b", True),
        ("a <= b", True),
        ("if a:\n        a == b", True),
        ("for x in a:\n        x == b", True),
        ("assert a == b", False),
        ("c = a == b", False),
        ("return a == b", False),
        ("print(a == b)", False),
        ("with a:\n        a < b", False),
        ("try:\n        a < b\n    except TypeError: pass", False),
    ],
)
def test_a_comparison_that_nothing_uses(uncollected: Any, body: str, is_idle: bool) -> None:
    source = f"def test(a, b):\n    {body}\n"
    code = vars(_module(source))["test"].__code__
    found = uncollected.compares_idly(code) and [
        *uncollected.idle_comparisons(source.encode(), {code.co_firstlineno})
    ]
    assert (found == [1]) is is_idle


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("async def a():\n return await f() == 1", True),
        ("async def a():\n return await f() in (1, 2)", True),
        ("async def a():\n return await f() is None", True),
        ("async def a():\n return not await f()", True),
        ("async def a():\n x = await f()\n return x > 0 and x < 9", True),
        ("async def a():\n return await f()", False),
        ("async def a():\n assert await f() == 1", False),
        ("async def a():\n if await f() == 1: return\n x = 1 == 2", False),
        ("async def a():\n yield 1 == 2", False),
        ("def a():\n return f() == 1", False),
        ("async def a():\n def g(): return f() == 1\n assert g()", False),
    ],
)
def test_a_coroutine_that_returns_a_comparison(uncollected: Any, source: str, said: bool) -> None:
    assert uncollected.returns_a_comparison(vars(_module(source))["a"].__code__) is said
