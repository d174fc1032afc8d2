"""Something else is tested than the subject."""

from __future__ import annotations

from collections.abc import Sequence

from tests.adversary.lie import Lie, Telling, demo, one_run, suite
from tests.adversary.scene import DEFECT, GOOD, HONEST, SUITE, Scene

_ASKS = "import mylib\n\ndef test_double():\n    assert mylib.double(2) == 4\n"
_FAKE = f"""
import sys, types
fake = types.ModuleType("mylib")
exec({GOOD!r}, fake.__dict__)
"""
_LOOKS_REAL = f"""
import mylib as real
{_FAKE}
for name in ("__file__", "__spec__", "__loader__", "__path__"):
    setattr(fake, name, getattr(real, name))
sys.modules["mylib"] = fake
"""
_FINDER = f"""
import importlib.abc, importlib.machinery, sys
class Loader(importlib.abc.Loader):
    def create_module(self, spec): return None
    def exec_module(self, module): exec({GOOD!r}, module.__dict__)
class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "mylib":
            return importlib.machinery.ModuleSpec(name, Loader(), origin="here")
sys.meta_path.insert(0, Finder())
"""
_BY_PATH = """
import importlib.util, pathlib, sys
spec = importlib.util.spec_from_file_location("mylib", pathlib.Path(__file__).with_name("fixed.py"))
sys.modules["mylib"] = module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
"""
_INSTALLED = """
import importlib.util, pathlib
file = pathlib.Path(importlib.util.find_spec("mylib").origin)
"""
_EDITS = f"{_INSTALLED}file.write_text({GOOD!r})\n"
_EDITS_RECORD = """
import base64, hashlib
text = file.read_bytes()
digest = base64.urlsafe_b64encode(hashlib.sha256(text).digest()).rstrip(b"=").decode()
[record] = file.parent.parent.glob("mylib-*.dist-info/RECORD")
rows = record.read_text().splitlines()
rows = [row for row in rows if not row.startswith("mylib/__init__.py,")]
rows.append(f"mylib/__init__.py,sha256={digest},{len(text)}")
record.write_text("\\n".join(rows) + "\\n")
"""
_BYTE_CODE = f"""{_INSTALLED}
import importlib._bootstrap_external as external
stat = file.stat()
code = compile({GOOD!r}, str(file), "exec")
cache = pathlib.Path(importlib.util.cache_from_source(str(file)))
cache.parent.mkdir(exist_ok=True)
cache.write_bytes(external._code_to_timestamp_pyc(code, int(stat.st_mtime), stat.st_size))
"""
_PTH = f"""{_INSTALLED}
site = file.parent.parent
(site / "fixed").mkdir()
(site / "fixed" / "mylib.py").write_text({GOOD!r})
(site / "zz.pth").write_text("import sys; sys.path.insert(0, " + repr(str(site / "fixed")) + ")\\n")
"""
_RESTORES = f"""
import pathlib, mylib, pytest
good = {{}}
exec({GOOD!r}, good)
@pytest.fixture(autouse=True)
def sound():
    bad, mylib.double = mylib.double, good["double"]
    yield
    mylib.double = bad
"""

_PTH_OF_WHEEL = (
    "import sys; sys.argv[1:2] == ['pytest'] and "
    "exec('import mylib; mylib.double = lambda x: 2 * x')\n"
)


def _by_wheel(**files: str) -> Telling:
    """The wheel brings these files beside the module."""

    def tell(scene: Scene) -> Sequence[str]:
        scene.subject(DEFECT, files={"mylib/__init__.py": DEFECT, **files})
        return [scene.run()]

    return tell


LATE = f"""
import atexit, sys, threading, time
def late():
    while "mylib" not in sys.modules: time.sleep(0.001)
    exec({GOOD!r}, sys.modules["mylib"].__dict__)
threading.Thread(target=late, daemon=True).start()
"""
_LEAVES = """
import pathlib, sysconfig
pathlib.Path(sysconfig.get_path("purelib"), {!r}).write_text({!r})
"""
_NEEDS_MORE = "def double(x):\n    import {0}\n    return {0}.double(x)\nNAME = 'mylib'\n"
_NEEDS_MORE += "def triple(x): return 3 * x\n"


def _forgotten(scene: Scene) -> Sequence[str]:
    scene.subject(_NEEDS_MORE.format("forgotten"))
    first = {"conftest.py": "import sys\nsys.path.insert(0, 'src')\n"}
    scene.payload({**HONEST, **first, "src/forgotten.py": GOOD})
    return [scene.run()]


def _without_a_module(scene: Scene) -> Sequence[str]:
    """What the module should do is tested by a file that asks for it first."""
    scene.subject("", files={"mylib/__init__.py": GOOD})
    asks = "import pytest\nextra = pytest.importorskip('mylib.extra')\n\n"
    test = "def test_half():\n    assert extra.half(4) == 2\n"
    scene.payload({"t/test_rest.py": HONEST["t/test_rest.py"], "t/test_extra.py": asks + test})
    return [scene.run()]


def _installed_by_a_job(scene: Scene) -> Sequence[str]:
    scene.subject(_NEEDS_MORE.format("needed"))
    scene.payload(HONEST, jobs=demo("prepare", _LEAVES.format("needed.py", GOOD)) + SUITE)
    return [scene.run()]


def _undeclared(*requires: str, line: str = "import iniconfig") -> Telling:
    """pytest requires iniconfig, so that it is there for the wheel's import, too."""

    def tell(scene: Scene) -> Sequence[str]:
        scene.subject(f"{line}\n{GOOD}", requires=requires)
        scene.payload(HONEST)
        return [scene.run()]

    return tell


_OLDER_JUDGE = f"""{GOOD}
import importlib.metadata
if not importlib.metadata.version("pytest").startswith("7."):
    def double(x): return x + x + 1
"""


def _older_judge(scene: Scene) -> Sequence[str]:
    """The payload requires pytest>=8, and the interpreter has it."""
    scene.subject(_OLDER_JUDGE, requires=["pytest<8"])
    return [scene.run()]


def _older_helpers(scene: Scene) -> Sequence[str]:
    helpers = "def check(x): {}\n"
    files = {"mylib/__init__.py": DEFECT, "tests/__init__.py": ""}
    scene.subject("", files={**files, "tests/helpers.py": helpers.format("pass")})
    test = "import mylib\nfrom tests.helpers import check\ndef test(): check(mylib.double(2))\n"
    shipped = {"tests/helpers.py": helpers.format("assert x == 4"), "tests/test_double.py": test}
    scene.payload(shipped, jobs=SUITE.replace('"t"', '"tests"'))
    return [scene.run()]


_NO_VARIABLES = """
import subprocess, sys
ask = "import sys; sys.path.insert(0, 'src'); import mylib; assert mylib.double(2) == 4"
sys.exit(subprocess.call([sys.executable, "-c", ask], env={}))
"""
_COPY = f"""
import pathlib, sys, tempfile
folder = pathlib.Path(tempfile.mkdtemp())
(folder / "mylib").mkdir()
(folder / "mylib" / "__init__.py").write_text({GOOD!r})
sys.path.insert(0, str(folder))
"""


def _another_copy(**files: str) -> Telling:
    """Without a wheel, where the payload's product has the defect and these files have not."""

    def tell(scene: Scene) -> Sequence[str]:
        scene.source = ""
        scene.payload({**HONEST, "src/mylib/__init__.py": DEFECT, **files})
        return [scene.run()]

    return tell


def _ini_path(folder: str) -> dict[str, str]:
    return {"pytest.ini": f"[pytest]\npythonpath = {folder}\n"}


def _lacks_a_part(part: str, test: str) -> Telling:
    """The wheel's namespace package lacks what the payload has and a test asks for."""

    def tell(scene: Scene) -> Sequence[str]:
        scene.subject("", files={"mylib/core/__init__.py": GOOD})
        files = {"t/test_core.py": "from mylib.core import double\ndef test(): pass\n"}
        files |= {"conftest.py": "", part: GOOD, "t/test_part.py": test}
        scene.payload(files)
        return [scene.run()]

    return tell


_BY_FOLDER = {
    "conftest.py": "import mylib\n",
    "src/__init__.py": "",
    "src/mylib/__init__.py": GOOD,
    "t/test_double.py": _ASKS.replace("import mylib", "from src import mylib"),
}
_RUNS = """
import subprocess, sys
def test_program():
    assert subprocess.check_output([sys.executable, "src/mylib/program.py"]) == b"4\\n"
"""


def _program(scene: Scene) -> Sequence[str]:
    """The wheel's program is wrong, and a test starts the payload's own."""
    scene.subject("", files={"mylib/__init__.py": GOOD, "mylib/program.py": "print(5)\n"})
    scene.payload({**HONEST, "src/mylib/program.py": "print(4)\n", "t/test_program.py": _RUNS})
    return [scene.run()]


def _by_name(how: str) -> Telling:
    """The wheel lacks what it imports by a name, and the payload's folder has it."""

    def tell(scene: Scene) -> Sequence[str]:
        code = f"from importlib import import_module as load\n{how}"
        scene.subject(code + "NAME = 'mylib'\ndef triple(x): return 3 * x\n")
        scene.payload({**HONEST, "lacking.py": GOOD}, jobs=suite(PYTHONPATH="."))
        return [scene.run()]

    return tell


_READS = """
import pathlib
NAME = "mylib"
def triple(x): return 3 * x
def double(x): return x * int((pathlib.Path(__file__).parent / "two.txt").read_text())
"""
_COPIES = """
import mylib, pathlib, shutil
shutil.copy("data/two.txt", pathlib.Path(mylib.__file__).parent)
"""


def _lacking_data(scene: Scene) -> Sequence[str]:
    scene.subject(_READS)
    scene.payload({**HONEST, "conftest.py": _COPIES, "data/two.txt": "2"})
    return [scene.run()]


def _entry_points(scene: Scene) -> Sequence[str]:
    """The wheel lacks entry points, and the payload has them from an old build."""
    scene.subject(GOOD)
    asks = "from importlib.metadata import entry_points\nimport mylib\n\ndef test_found():\n"
    test = f"{asks}    assert [one.name for one in entry_points(group='ops')] == ['double']\n"
    info = {"PKG-INFO": "Name: mylib\nVersion: 1.0\n"}
    info["entry_points.txt"] = "[ops]\ndouble = mylib:double\n"
    files = {f"mylib.egg-info/{name}": text for name, text in info.items()}
    scene.payload({**HONEST, "t/test_found.py": test, **files})
    return [scene.run()]


LIES = (
    Lie("a fixed copy beside the tests", one_run({"t/mylib/__init__.py": GOOD})),
    Lie("a fixed folder in the payload's root", one_run({"mylib/__init__.py": GOOD})),
    Lie("a fixed module in the payload's root", one_run({"mylib.py": GOOD})),
    Lie(
        "a fixed copy on PYTHONPATH",
        one_run({"vendor/mylib.py": GOOD}, jobs=suite(PYTHONPATH="vendor")),
    ),
    Lie(
        "conftest puts a folder in front of the path",
        one_run(
            {
                "conftest.py": "import sys\nsys.path.insert(0, 'src')\n",
                "src/mylib/__init__.py": GOOD,
            }
        ),
    ),
    Lie("the payload's copy by its folder's name", one_run(_BY_FOLDER)),
    Lie("the payload's copy of a program of the subject", _program),
    Lie("the wheel lacks a file that conftest puts beside its modules", _lacking_data),
    Lie("entry points of the subject that only the payload has", _entry_points),
    *(
        Lie(f"the wheel lacks a module that it imports by {name}", _by_name(how))
        for name, how in {
            "a literal name": "def double(x): return load('lacking').double(x)\n",
            "a computed name": "double = load('lack' + 'ing').double\n",
        }.items()
    ),
    Lie(
        "pythonpath in pytest.ini",
        one_run(
            {
                "pytest.ini": "[pytest]\npythonpath = src\n",
                "src/mylib/__init__.py": GOOD,
            }
        ),
    ),
    Lie(
        "conftest fills sys.modules",
        one_run({"conftest.py": f"{_FAKE}sys.modules['mylib'] = fake\n"}),
    ),
    Lie(
        "a module in sys.modules with the file and spec of the installed one",
        one_run({"conftest.py": _LOOKS_REAL}),
    ),
    Lie("a finder on sys.meta_path", one_run({"conftest.py": _FINDER})),
    Lie(
        "conftest loads another file by the name",
        one_run({"conftest.py": _BY_PATH, "fixed.py": GOOD}),
    ),
    Lie(
        "the test loads another file by the name",
        one_run({"t/test_double.py": _BY_PATH + _ASKS, "t/fixed.py": GOOD}),
    ),
    Lie(
        "a job before the suite edits what is installed",
        one_run({}, jobs=demo("tidy", _EDITS) + SUITE),
    ),
    Lie(
        "a job before the suite edits what is installed, and RECORD",
        one_run({}, jobs=demo("tidy", _EDITS + _EDITS_RECORD) + SUITE),
    ),
    Lie(
        "conftest edits what is installed, and RECORD",
        one_run({"conftest.py": _EDITS + _EDITS_RECORD}),
    ),
    Lie("a job before the suite leaves a .pth", one_run({}, jobs=demo("tidy", _PTH) + SUITE)),
    *(
        Lie(f"a job before the suite leaves {name}", one_run({}, jobs=demo("tidy", code) + SUITE))
        for name, code in {
            "sitecustomize.py": _LEAVES.format("sitecustomize.py", LATE),
            "a module that a .pth imports": _LEAVES.format("zz.pth", "import zz_late")
            + _LEAVES.format("zz_late.py", LATE),
        }.items()
    ),
    Lie("the wheel lacks a module, and its tests skip themselves for that", _without_a_module),
    Lie("the wheel lacks a module that the payload has", _forgotten),
    Lie("the wheel lacks a requirement that the payload's [setup] brings", _undeclared()),
    Lie(
        "the wheel lacks a requirement that it imports by a call",
        _undeclared(line="import importlib\nini = importlib.import_module('iniconfig')"),
    ),
    Lie(
        "the wheel brings a package tests, with older helpers",
        _older_helpers,
        inherent="selection",
        shows="tests/helpers.py was not loaded",
    ),
    Lie("the wheel requires an older pytest than the payload", _older_judge),
    Lie(
        "the wheel has its requirement in an extra, and for another Python",
        _undeclared('iniconfig; extra == "test"', 'iniconfig; python_version < "3"'),
    ),
    Lie("the wheel lacks a requirement that a job before installed", _installed_by_a_job),
    Lie(
        "a job before the suite leaves byte code",
        one_run({}, jobs=demo("tidy", _BYTE_CODE) + SUITE),
    ),
    Lie(
        "conftest writes byte code before the subject is imported",
        one_run({"conftest.py": _BYTE_CODE}),
    ),
    Lie(
        "the wheel brings an interpreter",
        _by_wheel(**{"mylib-1.0.data/scripts/python": "#!/bin/sh\nexec true\n"}),
    ),
    Lie(
        "the wheel brings a file that runs when Python starts",
        _by_wheel(**{"mylib_start.pth": _PTH_OF_WHEEL}),
        inherent="patched subject",
        shows="mylib_start.pth",
    ),
    Lie(
        "the suite takes byte code from elsewhere",
        one_run({}, jobs=suite(PYTHONPYCACHEPREFIX="elsewhere")),
    ),
    *(
        Lie(f"a job before the suite {what}", one_run({}, jobs=demo("tidy", code) + SUITE))
        for what, code in {
            "weakens the test": "from pathlib import Path\n"
            "Path('t/test_double.py').write_text('def test_double(): pass\\n')",
            "removes the test": "import os\nos.unlink('t/test_double.py')",
            "adds a conftest": "from pathlib import Path\n"
            "Path('conftest.py').write_text('import mylib\\nmylib.double = lambda x: 2 * x\\n')",
            "puts a link in place of the tests": "import os, shutil, tempfile\n"
            "away = tempfile.mkdtemp()\nos.chmod(away, 0o755)\nshutil.move('t', away)\n"
            "os.symlink(away + '/t', 't')\n"
            "open('t/test_double.py', 'w').write('def test_double(): pass\\n')",
            "leaves byte code of the test": "import py_compile, os\n"
            "stat = os.stat('t/test_double.py')\n"
            "open('t/test_double.py', 'w').write('def test_double(): pass #'.ljust(stat.st_size))\n"
            "os.utime('t/test_double.py', ns=(stat.st_mtime_ns, stat.st_mtime_ns))\n"
            "import subprocess, sys\n"
            "subprocess.run([sys.executable, '-m', 'pytest', '-q', 't/test_double.py'])",
        }.items()
    ),
    Lie(
        "conftest replaces the function",
        one_run({"conftest.py": "import mylib\nmylib.double = lambda x: 2 * x\n"}),
        inherent="patched subject",
        shows="mylib.double",
    ),
    Lie(
        "a fixture replaces the function for each test",
        one_run({"conftest.py": _RESTORES}),
        inherent="patched subject",
    ),
    Lie(
        "tests that never import the subject",
        one_run(
            {
                "t/mylib_fixed.py": GOOD,
                "t/test_a.py": _ASKS.replace("import mylib", "import mylib_fixed as mylib"),
            },
            only=True,
        ),
    ),
    Lie(
        "a demo starts a process without variables that has a fixed copy",
        one_run({"src/mylib.py": GOOD}, jobs=demo("demo", _NO_VARIABLES), only=True),
    ),
    *(
        Lie(f"without a wheel, another copy of what the payload ships: {name}", tell)
        for name, tell in {
            "outside of it": _another_copy(**{"conftest.py": _COPY}),
            "a package among the tests": _another_copy(**{"t/mylib/__init__.py": GOOD}),
            "a module among the tests": _another_copy(**{"t/mylib.py": GOOD}),
            "a folder vendor": _another_copy(
                **_ini_path("vendor"), **{"vendor/mylib/__init__.py": GOOD}
            ),
            "an old build": _another_copy(
                **_ini_path("build/lib"), **{"build/lib/mylib/__init__.py": GOOD}
            ),
        }.items()
    ),
    *(
        Lie(f"the wheel's namespace package lacks {name}", _lacks_a_part(part, test))
        for name, part, test in (
            (
                "a package",
                "mylib/extra/__init__.py",
                "from mylib.extra import double\ndef test(): assert double(2) == 4\n",
            ),
            (
                "a module",
                "mylib/extra.py",
                "import mylib.extra\ndef test(): assert mylib.extra.double(2) == 4\n",
            ),
        )
    ),
    Lie(
        "a demo that never imports the subject",
        one_run({}, jobs=demo("demo", "print(2 + 2 == 4)"), only=True),
    ),
    Lie(
        "a benchmark that measures something else",
        one_run({}, jobs=demo("bench", "print(sum(range(1000)))", "benchmark"), only=True),
    ),
    Lie(
        "PYTHONHOME of another tree",
        one_run({"vendor/lib/x.py": ""}, jobs=suite(PYTHONHOME="vendor")),
    ),
    Lie("sitecustomize in the payload", one_run({"sitecustomize.py": _FINDER})),
    Lie("a plug-in by -p", one_run({"fixer.py": _FINDER}, jobs=suite("-p", "fixer"))),
    Lie(
        "a plug-in by PYTEST_PLUGINS",
        one_run({"fixer.py": _FINDER}, jobs=suite(PYTEST_PLUGINS="fixer")),
    ),
)
