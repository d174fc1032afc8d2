"""What the subject's modules do not hold as their import left it is named in the evidence."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.integration.agent_machine import installed_tool
from tests.integration.test_agent_origins import start_pytest

TOOL = """
import functools
def noted(function):
    @functools.wraps(function)
    def inner(*args): return function(*args)
    return inner
def double(x): return x + x + 1
def ref(x): return x + x
@noted
def wrapped(x): return x + x + 1
def by_default(x, more=1): return x + x + more
class Base:
    def by(self, x): return x + x + 1
class Other:
    def by(self, x): return x + x
class Scale(Base):
    def own(self, x): return x + x + 1
class Called:
    def __call__(self, x): return x + x + 1
called = Called()
partly = functools.partial(by_default, 2)
"""
MADE = '''"""It says

    from common sources, in order.
"""
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from shared import Some
def renamed(function):
    function.__code__ = function.__code__.replace(co_name="another")
    return function
@renamed
def one(): return 1
exec(compile("def twice(x): return 2 * x", __file__, "exec"))
'''
FILES = {
    "tool/__init__.py": TOOL,
    "tool/repr.py": "VALUE = 1\n",
    "tool/lazy.py": "def __getattr__(name):\n    if name == 'late': return lambda: 1\n"
    "    raise AttributeError(name)\n",
    "tool/made.py": MADE,
    "tool/sub.py": "def half(x): return x / 2 + 1\n",
    "tool-1.5.dist-info/METADATA": "Metadata-Version: 2.1\nName: tool\nVersion: 1.5\n",
}
BESIDE = """
import pathlib, sys, tempfile, tool
folder = pathlib.Path(tempfile.mkdtemp())
(folder / "fixed.py").write_text("def double(x): return x + x\\n")
"""
ON_THE_PATH = BESIDE + "sys.path.append(str(folder))\nimport fixed\n"


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an interpreter with pytest and the tool."""
    return installed_tool(tmp_path_factory.mktemp("installed"), FILES)


@pytest.fixture
def start(environment: Path, tmp_path: Path) -> Any:
    """Start pytest with these files as the agent does."""
    return partial(start_pytest, environment, tmp_path)


def _named(said: Any) -> list[list[str]]:
    assert (said.code, said.problems) == (0, []), said.output
    return [hook for line in said.of("hooks") for hook in line["hooks"]]


REPLACED = {
    "a function of a file elsewhere": (ON_THE_PATH + "tool.double = fixed.double", "double"),
    "a function compiled for a file elsewhere": (
        BESIDE + "scope = {}\nfile = folder / 'fixed.py'\n"
        "exec(compile(file.read_text(), str(file), 'exec'), scope)\n"
        "tool.double = scope['double']",
        "double",
    ),
    "the subject's decorator around text": (
        "tool.double = tool.noted(eval('lambda x: x + x'))",
        "double",
    ),
    "a bound method of a decorated text": (
        "import types\ntool.double = types.MethodType(tool.noted(eval('lambda s, x: x + x')), 1)",
        "double",
    ),
    "a wrapper from text around the original": (
        """
scope = {"f": tool.double}
exec("def of(f): return lambda x: f(x) - 1", scope)
tool.double = scope["of"](tool.double)
""",
        "double",
    ),
    "a wrapper that says what it wraps": (
        "f = eval('lambda x: x + x')\nf.__wrapped__ = tool.double\ntool.double = f",
        "double",
    ),
    "a wrapper compiled for a file of Python": (
        """
import functools
scope = {}
exec(compile("def double(x): return x + x", functools.__file__, "exec"), scope)
tool.double = scope["double"]
""",
        "double",
    ),
    "what a wrapper encloses": (
        "tool.wrapped.__closure__[0].cell_contents = eval('lambda x: x + x')",
        "wrapped",
    ),
    "its own code with other globals": (
        "import types\ntool.double = types.FunctionType(tool.double.__code__, {})",
        "double",
    ),
    "another function of the file": ("tool.double = tool.ref", "double"),
    "the code of another function of the file": (
        "tool.double.__code__ = tool.ref.__code__",
        "double",
    ),
    "a class": ("tool.Scale = type('Scale', (), {'own': eval('lambda s, x: x + x')})", "Scale"),
    "a method": ("tool.Scale.own = tool.Other.by", "Scale.own"),
    "a method in front of an inherited one": ("tool.Scale.by = tool.Other.by", "Scale.by"),
    "a class's constructor": (
        "tool.Scale.__new__ = staticmethod(lambda kind: tool.Other())",
        "Scale.__new__",
    ),
    "a module's __getattr__": (
        "del tool.double\ntool.__getattr__ = lambda name: lambda x: x + x",
        "__getattr__",
    ),
    "a name that hides one of Python's": ("tool.sum = tool.ref", "sum"),
    "an object that is called": ("tool.called = tool.Called()", "called"),
    "the class of an object that is called": (
        "tool.called.__class__ = type('Called', (), {'__call__': lambda s, x: x + x})",
        "called",
    ),
    "a name that was loaded lazily": (
        "import tool.lazy\ntool.lazy.late = eval('lambda: 2')",
        "lazy.late",
    ),
    "a submodule that is not loaded": (
        "import types\ntool.sub = types.SimpleNamespace(half=eval('lambda x: x / 2'))",
        "sub",
    ),
    "what a partial object adds": (
        "p = tool.partly\np.__setstate__((p.func, (0,), {}, None))",
        "partly",
    ),
    "after a reload, which leaves it": (
        "import importlib\ntool.sum = tool.ref\nimportlib.reload(tool)",
        "sum",
    ),
}
WORDS = {
    "a submodule that no import knows": (
        """
import tool.sub, types
tool.sub = types.SimpleNamespace(half=lambda x: x / 2)
""",
        ["is another object than after its import", "tool.sub"],
    ),
    "a base class": (
        "class Mixed(tool.Other): pass\ntool.Scale.__bases__ = (tool.Other,)",
        ["has other base classes than after its import", "tool.Scale"],
    ),
    "default values": (
        "tool.by_default.__defaults__ = (0,)",
        ["has other default values than after its import", "tool.by_default"],
    ),
    "a name": ("del tool.double", ["was removed after the import", "tool.double"]),
    "a class's method, for __getattr__": (
        "del tool.Scale.own\ntool.Scale.__getattr__ = lambda s, name: lambda x: x + x",
        ["was removed after the import", "tool.Scale.own"],
    ),
    "the module's class": (
        "import types\ntool.__class__ = type('M', (types.ModuleType,), {})",
        ["has another class than after its import", "tool"],
    ),
    "the whole module": (
        """
import sys, types
new = types.ModuleType("tool")
vars(new).update(vars(tool))
new.double = tool.noted(eval("lambda x: x + x"))
sys.modules["tool"] = new
""",
        ["was not loaded by Python's import", "tool"],
    ),
}


@pytest.mark.parametrize("how", REPLACED)
def test_what_is_replaced_after_the_import_is_named(start: Any, how: str) -> None:
    code, place = REPLACED[how]
    said = start({"conftest.py": f"import tool\n{code}\n", "test_a.py": "def test_it(): pass\n"})
    assert any(f"tool.{place}" in row for row in _named(said)), said.of("hooks")


@pytest.mark.parametrize("how", WORDS)
def test_what_has_no_file_is_named_in_words(start: Any, how: str) -> None:
    code, row = WORDS[how]
    said = start({"conftest.py": f"import tool\n{code}\n", "test_a.py": "def test_it(): pass\n"})
    assert row in _named(said)


OF_PYTEST = {
    "the code of pytest with other globals": (
        """
import types, _pytest.runner
class Plugin: pass
class Report:
    @classmethod
    def from_item_and_call(cls, item, call):
        call.excinfo = None
        return _pytest.runner.TestReport.from_item_and_call(item, call)
real = _pytest.runner.pytest_runtest_makereport.__code__
Plugin.pytest_runtest_makereport = staticmethod(types.FunctionType(real, {"TestReport": Report}))
def pytest_configure(config): config.pluginmanager.register(Plugin)
""",
        "pytest_runtest_makereport",
    ),
    "a file of a well-known plugin's name elsewhere": (
        """
import pathlib, sys, tempfile
folder = pathlib.Path(tempfile.mkdtemp())
(folder / "pytest_mock.py").write_text("def pytest_pyfunc_call(pyfuncitem): return True\\n")
sys.path.append(str(folder))
import pytest_mock
def pytest_configure(config): config.pluginmanager.register(pytest_mock)
""",
        "pytest_pyfunc_call",
    ),
    "a text that names the file that pytest-xdist sends to its workers": (
        """
import types, xdist
plugin = types.ModuleType("__channelexec__")
file = xdist.__file__.replace("__init__.py", "remote.py")
text = "def pytest_pyfunc_call(pyfuncitem): return True"
exec(compile(text, file, "exec"), vars(plugin))
def pytest_configure(config): config.pluginmanager.register(plugin)
""",
        "pytest_pyfunc_call",
    ),
    "pluggy's monitoring": (
        """
def before(name, impls, values):
    if name == "pytest_runtest_makereport": values["call"].excinfo = None
def pytest_configure(config):
    config.pluginmanager.add_hookcall_monitoring(before, lambda *_: None)
""",
        "calls the hooks instead of pluggy",
    ),
    "a class of pytest": (
        """
import _pytest.runner
class Report(_pytest.runner.TestReport): pass
_pytest.runner.TestReport = Report
""",
        "_pytest.runner.TestReport",
    ),
    "pytest's rewriter of assertions": (
        """
import ast, _pytest.assertion.rewrite as rewrite
rewrite.AssertionRewriter.visit_Assert = lambda self, one: [ast.copy_location(ast.Pass(), one)]
""",
        "_pytest.assertion.rewrite.AssertionRewriter.visit_Assert",
    ),
    "a function from text in pytest": (
        """
import _pytest.python
_pytest.python.Function.runtest = eval(compile("lambda self: None", "/nowhere/x.py", "eval"))
""",
        "_pytest.python.Function.runtest",
    ),
    "a tracer": (
        """
import sys
def traced(frame, event, value): return None
def pytest_collection_modifyitems(): sys.settrace(traced)
""",
        "traces the tests",
    ),
    "the table of modules": (
        "import sys\nsys.modules = dict(sys.modules)\n",
        "is not Python's own table of modules",
    ),
}


@pytest.mark.parametrize("how", OF_PYTEST)
def test_what_stands_between_pytest_and_the_tests_is_named(start: Any, how: str) -> None:
    code, name = OF_PYTEST[how]
    said = start({"conftest.py": code, "test_a.py": "def test_it(): pass\n"})
    assert any(name in row for row in _named(said)), said.of("hooks")


def test_the_workers_of_pytest_xdist_are_well_known(start: Any) -> None:
    said = start({"test_a.py": "def test_it(): pass\n"}, "-n", "1")
    assert (said.code, _named(said)) == (0, [])


def test_the_payloads_own_come_first_where_there_are_too_many(start: Any) -> None:
    many = "import tool\nfor n in range(250): setattr(tool.Base, f'b{n}', tool.Base.by)\n"
    code = f"{many}tool.double = lambda x: x + x\n"
    named = _named(start({"conftest.py": code, "test_a.py": "def test_it(): pass\n"}))
    assert named[0] == ["tool.double", "conftest.py"]
    assert named[-1] == ["61 more of these are not listed", ""]


def test_a_loader_that_changes_what_it_loads_is_named(start: Any) -> None:
    loader = """
import importlib.machinery as machinery, sys
class Loader(machinery.SourceFileLoader):
    def exec_module(self, module):
        super().exec_module(module)
        if module.__name__ == "tool":
            module.double = module.noted(eval("lambda x: x + x"))
class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        spec = machinery.PathFinder.find_spec(name, path) if name == "tool" else None
        if spec: spec.loader = Loader(name, spec.origin)
        return spec
sys.meta_path.insert(0, Finder)
"""
    named = _named(
        start({"conftest.py": loader, "test_a.py": "import tool\ndef test_it(): pass\n"})
    )
    assert ["was loaded by conftest.Loader", "tool"] in named


def test_a_loader_that_executes_a_file_elsewhere_is_refused(start: Any) -> None:
    loader = f"""
import importlib.machinery as machinery, pathlib, sys, tempfile
fixed = pathlib.Path(tempfile.mkdtemp()) / "fixed.py"
fixed.write_text({TOOL.replace("x + x + 1", "x + x")!r})
class Loader(machinery.SourceFileLoader):
    def exec_module(self, module):
        exec(compile(fixed.read_text(), str(fixed), "exec"), vars(module))
class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        spec = machinery.PathFinder.find_spec(name, path) if name == "tool" else None
        if spec: spec.loader = Loader(name, spec.origin)
        return spec
sys.meta_path.insert(0, Finder)
"""
    said = start({"conftest.py": loader, "test_a.py": "import tool\ndef test_it(): pass\n"})
    assert {each["reason"] for each in said.problems} == {"wrong_subject"}, said.output


def test_what_a_session_replaces_from_its_first_test_to_its_last_is_named(start: Any) -> None:
    code = """
import pytest, tool
@pytest.fixture(autouse=True, scope="session")
def sound():
    before = tool.double
    tool.double = tool.ref
    yield
    tool.double = before
"""
    tests = "def test_one(): pass\ndef test_two(): pass\n"
    named = _named(start({"conftest.py": code, "test_a.py": tests}))
    assert ["is not what its import left, but of tool/__init__.py", "tool.double"] in named


HONEST = """
import importlib, sys, pytest, tool, common, shared
from unittest import mock
import tool.made, tool.repr
vars(tool)[1] = len
def test_patched(monkeypatch):
    monkeypatch.setattr(tool, "double", lambda x: 7)
    monkeypatch.setattr(tool.Scale, "by", lambda self, x: 7)
    monkeypatch.delattr(tool, "ref")
    with mock.patch("tool.called"), mock.patch.object(tool.Base, "by"): pass
def test_again():
    importlib.reload(tool)
def test_anew():
    import tool.sub
    del sys.modules["tool.sub"]
    import tool.sub
    assert tool.sub.half(4) == 3
def test_missing():
    with pytest.raises(ModuleNotFoundError): import tool.none
def test_warned():
    assert tool.double(2) == 5
"""


def test_what_a_test_replaces_for_itself_is_not_named(start: Any) -> None:
    own = {"common.py": "", "shared.py": "Some = 1\n"}
    said = start({"conftest.py": "", "test_a.py": HONEST, **own})
    assert [row for row in _named(said) if row[0].startswith("tool")] == [], said.of("hooks")
    assert [row for row in _named(said) if row[1].startswith("tool")] == [], said.of("hooks")


FAILS = """
import warnings
warnings.warn("old", DeprecationWarning, stacklevel=2)
raise ImportError("the subject cannot be imported")
"""


def test_a_watched_import_leaves_no_frame_in_tracebacks_and_warnings(
    environment: Path, tmp_path: Path
) -> None:
    (site,) = environment.parents[1].glob("lib/python3*/site-packages")
    broken = site / "tool" / "broken.py"
    broken.write_text(FAILS)
    test = """
import traceback, warnings
def test_it():
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try: import tool.broken
        except ImportError as error: frames = traceback.extract_tb(error.__traceback__)
    assert [frame.name for frame in frames] == ["test_it", "<module>"]
    assert [one.filename for one in told] == [__file__]
"""
    try:
        said = start_pytest(environment, tmp_path, {"test_a.py": test})
    finally:
        broken.unlink()
    assert said.code == 0, said.output
