"""What another job, a requirement or a wheel leaves for the suite to find."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Sequence
from pathlib import Path

import iniconfig
import six

from tests.adversary.lie import Lie, Telling, demo, one_run, suite
from tests.adversary.scene import DEFECT, GOOD, HONEST, SUITE, Scene
from tests.adversary.subjects import LATE

_STRICT = HONEST["t/test_double.py"]
_WEAK = "def test_double(): pass\n"
_DAEMON = f"""
import os, time
weak = {_WEAK!r}
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    for fd in range(256):
        try: os.close(fd)
        except OSError: pass
    end = time.time() + 60
    while time.time() < end:
        try:
            with open("t/test_double.py") as file: text = file.read()
            if text != weak:
                with open("t/test_double.py", "w") as file: file.write(weak)
        except OSError: pass
        time.sleep(0.005)
    os._exit(0)
os.wait()
"""
_HELPED = {
    "t/helpers.py": "def same(a, b):\n    assert a == b\n",
    "t/test_double.py": "import mylib\nfrom helpers import same\n\n"
    "def test_double():\n    same(mylib.double(2), 4)\n",
}
_SHADOWS = (
    "import os\nos.makedirs('t/helpers')\n"
    "open('t/helpers/__init__.py', 'w').write('def same(a, b): pass\\n')\n"
)
_NAMESPACED = {
    "tests/helpers.py": _HELPED["t/helpers.py"],
    "t/test_double.py": _HELPED["t/test_double.py"].replace("from h", "from tests.h"),
    "pytest.ini": "[pytest]\npythonpath = .\n",
}
_WEAK_MODULE = (
    "import sys, types\nweak = types.ModuleType('tests.helpers')\n"
    "weak.same = lambda a, b: None\nsys.modules['tests.helpers'] = weak\n"
)
_HOOK = (
    "import pytest\n@pytest.hookimpl(hookwrapper=True)\n"
    "def pytest_runtest_makereport(item, call):\n    report = (yield).get_result()\n"
    "    report.outcome, report.longrepr = 'passed', None\n"
)
_FIXES = f"\nimport mylib\nexec({GOOD!r}, mylib.__dict__)\n"


def _after(code: str, files: dict[str, str] | None = None) -> Telling:
    return one_run(files or {}, jobs=demo("tidy", code) + SUITE)


def _turned_link(scene: Scene) -> Sequence[str]:
    """The folder of tests is a link in the payload, which a job before turns to another."""
    files = {f"strict/{name[2:]}": text for name, text in HONEST.items()}
    files |= {**files, "weak/test_double.py": _WEAK, "weak/test_rest.py": HONEST["t/test_rest.py"]}
    code = "import os\nos.unlink('t')\nos.symlink('weak', 't')"
    scene.payload(files, jobs=demo("tidy", code) + SUITE)
    (scene.folder / "payload" / "t").symlink_to("strict")
    return [scene.run()]


def _installs_over(scene: Scene) -> Sequence[str]:
    """A requirement of the payload has the module that is under test, without the defect."""
    broken = Path(six.__file__).read_text() + "\nPY3 = False\n"
    scene.subject("", files={"six.py": broken})
    test = "import six\n\ndef test_three():\n    assert six.PY3\n"
    scene.payload({"t/test_three.py": test}, pip=[f"six=={six.__version__}"])
    return [scene.run()]


def _brings(**files: str) -> Telling:
    def tell(scene: Scene) -> Sequence[str]:
        scene.subject("", files={"mylib/__init__.py": DEFECT, **files})
        return [scene.run()]

    return tell


def _brings_pytests(scene: Scene) -> Sequence[str]:
    """The wheel has a module that pytest imports, in the version that is installed."""
    text = Path(iniconfig.__file__).read_text() + LATE
    scene.subject("", files={"mylib/__init__.py": DEFECT, "iniconfig/__init__.py": text})
    version = importlib.metadata.version("iniconfig")
    scene.payload(HONEST, pip=[f"iniconfig=={version}"])
    return [scene.run()]


def _entry(name: str, module: str) -> dict[str, str]:
    return {"mylib-1.0.dist-info/entry_points.txt": f"[pytest11]\n{name} = {module}\n"}


def _own_interpreter(scene: Scene) -> Sequence[str]:
    """The interpreter is a program of the payload, which adds to each environment it makes."""
    code = (
        "import sys; sys.argv[1:2] == ['pytest'] and "
        "exec('import mylib; mylib.double = lambda x: 2 * x')"
    )
    wrapper = (
        f'#!/bin/sh\n{scene.stage.python} "$@"\ncode=$?\nfor one in "$@"; do\n'
        '  for site in "$one"/lib/python3*/site-packages; do\n'
        f'    [ -d "$site" ] && cat >"$site/zz.pth" <<\'END\'\n{code}\nEND\n'
        "  done\ndone\nexit $code\n"
    )
    text = (
        f'schema = 1\nname = "{scene.product}"\nversion = "1"\n[python]\n'
        'candidates = ["tools/python3"]\n[setup]\npip = ["pytest>=8"]\n' + SUITE
    )
    scene.payload({**HONEST, "payload.toml": text, "tools/python3": wrapper}, jobs=SUITE)
    (scene.folder / "payload" / "tools" / "python3").chmod(0o755)
    return [scene.run()]


_SAVED = {
    "t/test_double.py": "import plistlib\nimport mylib\n\n"
    "def test_double():\n"
    "    assert plistlib.loads(plistlib.dumps(mylib.double(2))) == 4\n",
}
_PLISTS = "open('t/plistlib.py', 'w').write('def dumps(x): return x\\ndef loads(x): return 4\\n')"
_CHECKED = {
    "t/test_double.py": "import toolz\nimport mylib\n\n"
    "def test_double():\n    assert toolz.last([mylib.double(2)]) == 4\n",
}
_TOOLS = (
    "import os\nos.makedirs('t/toolz')\n"
    "open('t/toolz/__init__.py', 'w').write('def last(x): return 4\\n')\n"
)
_PLUGIN = (
    "import os\nos.makedirs('left-1.dist-info')\n"
    "open('left-1.dist-info/METADATA', 'w').write('Name: left\\nVersion: 1\\n')\n"
    "open('left-1.dist-info/entry_points.txt', 'w').write('[pytest11]\\nleft = left\\n')\n"
    f"open('left.py', 'w').write({_HOOK!r})\n"
)
_CUSTOM = (
    "import os\nos.makedirs('sitecustomize')\n"
    f"open('sitecustomize/__init__.py', 'w').write({_FIXES!r})\n"
)


def _before_a_requirement(scene: Scene) -> Sequence[str]:
    files = {**HONEST, **_CHECKED}
    scene.payload(files, jobs=demo("tidy", _TOOLS) + SUITE, pip=["toolz==1.1.0"])
    return [scene.run()]


LIES = (
    Lie(
        "a job before puts a module of Python's beside the tests",
        _after(_PLISTS, _SAVED),
    ),
    Lie("a job before puts a package of the environment beside the tests", _before_a_requirement),
    Lie(
        "a job before leaves a plug-in with its entry point",
        one_run({}, jobs=demo("tidy", _PLUGIN) + suite(PYTHONPATH=".")),
    ),
    Lie(
        "a job before leaves a package that Python runs at its start",
        one_run({}, jobs=demo("tidy", _CUSTOM) + suite(PYTHONPATH=".")),
    ),
    Lie("a process of a job before writes the test while the suite runs", _after(_DAEMON)),
    Lie("a job before turns a link of the payload to weaker tests", _turned_link),
    Lie("a job before puts a package beside a module of the tests", _after(_SHADOWS, _HELPED)),
    Lie(
        "a job before puts a module beside a folder of modules",
        _after(f"open('tests.py', 'w').write({_WEAK_MODULE!r})", _NAMESPACED),
    ),
    Lie(
        "a job before puts a folder of modules into another folder",
        _after(
            "import os\nos.makedirs('t/tests')\n"
            "open('t/tests/helpers.py', 'w').write('def same(a, b): pass\\n')\n",
            _NAMESPACED,
        ),
    ),
    Lie(
        "a job before closes the folder of the failing test",
        _after(
            "import os\nos.chmod('t/deep', 0)",
            {"t/deep/test_double.py": _STRICT, "t/test_double.py": _WEAK},
        ),
    ),
    Lie("a requirement of the payload installs over the subject", _installs_over),
    Lie("the wheel brings a module that pytest imports", _brings_pytests),
    Lie(
        "the wheel brings a module of pytest's",
        _brings(**{"_pytest/_version.py": "version = '9.9'\nversion_tuple = (9, 9)\n" + _FIXES}),
    ),
    Lie(
        "the wheel brings a plug-in of pytest's",
        _brings(**_entry("mylib", "mylib_plugin"), **{"mylib_plugin.py": _HOOK}),
        inherent="hook",
        shows="mylib_plugin.py",
    ),
    Lie(
        "the wheel brings a plug-in by the name of a well-known one",
        _brings(**_entry("pytest_mock", "pytest_mock"), **{"pytest_mock.py": _HOOK}),
        inherent="hook",
        shows="pytest_mock.py",
    ),
    Lie(
        "PYTHONUSERBASE with a usercustomize.py",
        one_run(
            {
                f"vendor/lib/python3.{minor}/site-packages/usercustomize.py": _FIXES
                for minor in range(9, 15)
            },
            jobs=suite(PYTHONUSERBASE="vendor"),
        ),
    ),
    Lie("the interpreter is a program of the payload", _own_interpreter),
)
