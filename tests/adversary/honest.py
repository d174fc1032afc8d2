"""Payloads that tell the truth, in the shapes that people write them: none may be suspected.

`python -m tests.adversary.honest [WORD ...]` runs each with a sound subject and asks two gates, one
that says no more than where and the shipped gates/release.yaml: both have to say PASS. The real
projects come from the package index, at pinned digests.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tests.adversary.lie import demo, suite
from tests.adversary.scene import GOOD, HONEST, POLICY, SUITE, RefusedError, Scene, release_spec
from tests.adversary.stage import a_stage

Files = Mapping[str, str]


@dataclass(frozen=True)
class Shape:
    """One shape of an honest payload."""

    name: str
    files: Files = field(default_factory=lambda: HONEST)
    jobs: str = SUITE
    manifest: str = ""
    pip: tuple[str, ...] = ()
    subject: Files | None = None
    """The wheel's files, where they are not one module."""
    wheel: bool = True
    """Whether there is a wheel: otherwise the payload is what is tested."""


@dataclass(frozen=True)
class Project:
    """A release on the package index: the wheel is the subject, the source's tests the payload."""

    name: str
    version: str
    sdist: str
    """sha256 of the source archive."""
    wheel: str
    """sha256 of the wheel."""
    tests: tuple[str, ...] = ("tests",)
    """Arguments for pytest."""
    kept: tuple[str, ...] = ("tests",)
    """What of the source is the payload."""
    pip: tuple[str, ...] = ()


_REPORTS = """
import pytest
@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    setattr(item, "rep_" + report.when, report)
@pytest.fixture(autouse=True)
def told(request):
    yield
    assert request.node.rep_call.passed
"""
_EVENTS = """
import json, os, mylib
def say(**event):
    with open(os.environ["SEATRIAL_EVENTS"], "a") as out:
        out.write(json.dumps(event) + "\\n")
"""


def _test(body: str, imports: str = "mylib") -> Files:
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    return {"t/test_a.py": f"import {imports}\n\ndef test_a(tmp_path, monkeypatch):\n{lines}"}


SHAPES = (
    Shape("one folder of tests"),
    Shape("src layout", {**HONEST, "src/mylib/__init__.py": GOOD}),
    Shape(
        "flat layout, the package excluded",
        {**HONEST, "mylib/__init__.py": GOOD},
        manifest='exclude = ["mylib"]\n',
    ),
    Shape("tests are a package", {**HONEST, "t/__init__.py": "", "t/conftest.py": ""}),
    Shape(
        "two test files of one name",
        {
            "t/a/__init__.py": "",
            "t/b/__init__.py": "",
            "t/__init__.py": "",
            "t/a/test_x.py": HONEST["t/test_double.py"],
            "t/b/test_x.py": HONEST["t/test_rest.py"],
        },
    ),
    Shape("import mode importlib", jobs=suite("--import-mode=importlib")),
    Shape(
        "a namespace package",
        {"t/test_a.py": "from acme.mylib import X\n\ndef test_a():\n    assert X == 1\n"},
        subject={"acme/mylib/__init__.py": "X = 1\n"},
    ),
    Shape(
        "without a wheel, tests in a folder of the product's name",
        {
            "src/mylib/__init__.py": GOOD,
            "src/mylib/part.py": "def half(x): return x / 2\n",
            "tests/__init__.py": "",
            "tests/mylib/__init__.py": "",
            "helpers.py": "def main(): return 1\n",
            "tests/conftest.py": "import sys\nsys.path.insert(0, 'tests/more')\nimport helpers\n",
            "tests/more/helpers.py": "def check(): pass\n",
            "tests/mylib/helpers.py": "def half(x): return x / 2\n",
            "tests/mylib/test_part.py": "from mylib.part import half\n"
            "from .helpers import half as wanted\ndef test_half(): assert half(4) == wanted(4)\n",
        },
        jobs='[[job]]\nid = "suite"\nkind = "suite"\npytest = ["tests"]\n'
        'env = {PYTHONPATH = "src"}\n',
        wheel=False,
    ),
    Shape(
        "tests inside the installed package",
        {},
        jobs='[[job]]\nid = "suite"\nkind = "suite"\npytest = ["--pyargs", "mylib"]\n',
        subject={
            "mylib/__init__.py": GOOD,
            "mylib/tests/__init__.py": "",
            "mylib/tests/test_a.py": HONEST["t/test_double.py"],
        },
    ),
    Shape("two processes of pytest-xdist", jobs=suite("-n", "2"), pip=("pytest-xdist",)),
    Shape(
        "subtests",
        {
            "t/test_a.py": "import mylib\n\ndef test_a(subtests):\n    for n in range(3):\n"
            "        with subtests.test(n=n):\n            assert mylib.double(n) == 2 * n\n",
        },
    ),
    Shape(
        "unittest with subTest",
        {
            "t/test_a.py": "import mylib, unittest\nclass TestA(unittest.TestCase):\n"
            "    def test_a(self):\n        for n in range(3):\n"
            "            with self.subTest(n=n):\n"
            "                self.assertEqual(mylib.double(n), 2 * n)\n",
        },
    ),
    Shape(
        "odd parameters",
        {
            "t/test_a.py": "import mylib, pytest\n"
            "@pytest.mark.parametrize('x', ['a::b', 'c/d e', 'é', '[x]', ''])\n"
            "def test_a(x):\n    assert mylib.double(x) == 2 * x\n",
        },
    ),
    Shape(
        "two thousand parameters",
        {
            "t/test_a.py": "import mylib, pytest\n@pytest.mark.parametrize('n', range(2000))\n"
            "def test_a(n):\n    assert mylib.double(n) == 2 * n\n",
        },
    ),
    Shape(
        "doctests of a text",
        {"t/README.txt": ">>> import mylib\n>>> mylib.double(2)\n4\n"},
        jobs=suite("--doctest-glob=*.txt"),
    ),
    Shape("conftest keeps reports for its fixtures", {**HONEST, "conftest.py": _REPORTS}),
    Shape(
        "a plug-in of the payload's",
        {
            **HONEST,
            "t/plug.py": "def pytest_report_header(): return 'hello'\n",
        },
        jobs=suite("-p", "plug", PYTHONPATH="t"),
    ),
    Shape(
        "conftest adds a folder of helpers to the path",
        {
            "t/conftest.py": "import pathlib, sys\n"
            "sys.path.insert(0, str(pathlib.Path(__file__).parent / 'lib'))\n",
            "t/lib/asking.py": "import mylib\ndef ask(): return mylib.double(2)\n",
            "t/test_a.py": "import asking\n\ndef test_a():\n    assert asking.ask() == 4\n",
        },
    ),
    Shape(
        "a module is replaced for one test",
        _test(
            "monkeypatch.setitem(sys.modules, 'mylib', object())\nassert sys.modules['mylib']",
            "sys, mylib",
        ),
    ),
    Shape(
        "a function is replaced for one test",
        _test("monkeypatch.setattr(mylib, 'double', lambda x: 0)\nassert mylib.double(2) == 0"),
    ),
    Shape(
        "the subject is imported again",
        _test("assert importlib.reload(mylib).double(2) == 4", "importlib, mylib"),
    ),
    Shape(
        "the subject is imported in the test",
        {"t/test_a.py": "def test_a():\n    import mylib\n    assert mylib.double(2) == 4\n"},
    ),
    Shape(
        "the subject runs in a child",
        _test(
            "code = 'import mylib; print(mylib.double(2))'\n"
            "assert subprocess.check_output([sys.executable, '-c', code]).strip() == b'4'",
            "subprocess, sys",
        ),
    ),
    Shape(
        "a forked child that exits at once",
        _test(
            "child = os.fork()\nif child == 0: os._exit(0)\nassert os.waitpid(child, 0)[1] == 0",
            "os, mylib",
        ),
    ),
    Shape(
        "multiprocessing",
        {
            "t/test_a.py": "import multiprocessing, mylib\n\ndef test_a():\n"
            "    with multiprocessing.Pool(2) as pool:\n"
            "        assert pool.map(mylib.double, [1, 2]) == [2, 4]\n"
        },
    ),
    Shape(
        "failed assertions on purpose in futures and tasks",
        {
            "t/test_a.py": "import asyncio, mylib, pytest\n"
            "from concurrent.futures import ThreadPoolExecutor, wait\n"
            "def check(n): assert mylib.double(n) == 0\nasync def acheck(): check(1)\n"
            "def test_a():\n    with ThreadPoolExecutor(2) as pool:\n"
            "        (done,), _ = wait([pool.submit(check, 1)])\n"
            "        assert isinstance(done.exception(), AssertionError)\n"
            "        with pytest.raises(AssertionError): list(pool.map(check, (1, 2)))\n"
            "def test_b():\n"
            "    async def main(): return await asyncio.gather(acheck(), return_exceptions=True)\n"
            "    assert isinstance(asyncio.run(main())[0], AssertionError)\n"
        },
    ),
    Shape(
        "a demo that asks its futures, and expects failed assertions of some",
        jobs=demo(
            "demo",
            "import mylib\nfrom concurrent.futures import ThreadPoolExecutor, wait\n"
            "def check(want): assert mylib.double(1) == want\n"
            "with ThreadPoolExecutor(2) as pool:\n"
            "    assert pool.submit(check, 2).result() is None\n"
            "    (done,), _ = wait([pool.submit(check, 3)])\n"
            "    assert isinstance(done.exception(), AssertionError)\n"
            "    try: list(pool.map(check, (3, 4)))\n"
            "    except AssertionError: print('wrong results are found')",
        ),
    ),
    Shape(
        "tests that two branches define",
        {
            "t/test_a.py": "import sys, mylib\nif sys.version_info < (3,):\n"
            "    def test_a(): assert 0\nelse:\n"
            "    def test_a(): assert mylib.double(2) == 4\n"
        },
    ),
    Shape(
        "file descriptors are turned elsewhere",
        _test(
            "kept = os.dup(1)\nfile = os.open(tmp_path / 'x', os.O_CREAT | os.O_WRONLY)\n"
            "os.dup2(file, 1)\nos.close(file)\nprint('hello')\nos.dup2(kept, 1)\nos.close(kept)",
            "os, mylib",
        ),
    ),
    Shape(
        "what the recorder needs is replaced for one test",
        _test(
            "for name in ('os.write', 'os.getpid', 'json.dumps', 'json.JSONEncoder.encode',"
            " 'time.sleep'):\n    monkeypatch.setattr(name, lambda *a, **k: 0)\n"
            "assert mylib.double(2) == 4",
        ),
    ),
    Shape(
        "another working directory",
        _test("monkeypatch.chdir(tmp_path)\nassert mylib.double(2) == 4"),
    ),
    Shape(
        "a skip for want of a GPU",
        {
            **HONEST,
            "t/test_gpu.py": "import pytest\n\ndef test_gpu(): pytest.skip('needs a GPU')\n",
        },
    ),
    Shape(
        "a module that wants an optional package",
        {**HONEST, "t/test_more.py": "import pytest\npytest.importorskip('nothing_like_it')\n"},
    ),
    Shape(
        "a known defect, expected to fail",
        {
            **HONEST,
            "t/test_bug.py": "import pytest\n@pytest.mark.xfail(reason='#1')\n"
            "def test_bug(): assert False\n",
        },
    ),
    Shape(
        "hypothesis",
        {
            "t/test_a.py": "import mylib\nfrom hypothesis import given, strategies as st\n"
            "@given(st.integers())\ndef test_a(n):\n    assert mylib.double(n) == 2 * n\n"
        },
        pip=("hypothesis",),
    ),
    Shape(
        "pytest-asyncio",
        {
            "t/test_a.py": "import pytest, mylib\n@pytest.mark.asyncio\nasync def test_a():\n"
            "    assert mylib.double(2) == 4\n"
        },
        pip=("pytest-asyncio",),
    ),
    Shape(
        "snapshots that are compared",
        {
            "t/test_a.py": "import mylib\n\ndef test_a(snapshot):\n"
            "    assert mylib.double(2) == snapshot\n",
            "t/__snapshots__/test_a.ambr": "# serializer version: 1\n# name: test_a\n  4\n# ---\n",
        },
        pip=("syrupy",),
    ),
    Shape("the first failure would end it", {**HONEST, "pytest.ini": "[pytest]\naddopts = -x\n"}),
    Shape("a random order", jobs=suite("-p", "randomly"), pip=("pytest-randomly",)),
    Shape(
        "a demo that speaks of failures",
        jobs=demo(
            "demo",
            "import mylib\nprint('0 failed, 3 passed')\n"
            "print('0 of 3 tests failed\\nall checks passed: True\\nits range:\\n1..3')\n"
            "print('a failed retry was repeated: [PASS] net')\n"
            "print('Results: 8/8 demos passed')",
        ),
    ),
    Shape(
        "a demo that speaks of samples, replicas and a class FAIL",
        jobs=demo(
            "demo",
            "import mylib\nprint('quorum: 2 of 3 replicas ok\\n120/500 samples passed')\n"
            "print('student A: passed 7 out of 8\\n| PASS | 0.91 |\\n| FAIL | 0.88 |')\n"
            "print('| | PASS | FAIL |\\n| PASS | 90 | 3 |\\n| FAIL | 2 | 88 |')",
        ),
    ),
    Shape(
        "a demo with a suite for another machine",
        jobs=demo(
            "demo", "import mylib\nprint('Ran 2 tests in 0.1s\\n\\nOK (skipped=2)\\n[PASS] double')"
        ),
    ),
    Shape(
        "a demo of a program that refuses its input",
        jobs=demo(
            "demo",
            "import subprocess, sys, mylib\n"
            "code = 'import mylib; raise ValueError(mylib.NAME)'\n"
            "end = subprocess.run([sys.executable, '-c', code], capture_output=True)\n"
            "assert end.returncode == 1 and b'ValueError: mylib' in end.stderr\nprint('refused')",
        ),
    ),
    Shape(
        "a demo that heeds what pytest says",
        jobs=demo(
            "demo",
            "import pytest, sys\nassert pytest.main(['nowhere', '-p', 'no:terminal']) == 4\n"
            "sys.exit(pytest.main(['t']))",
        ),
    ),
    Shape(
        "a demo in an optimized Python",
        {**HONEST, "d.py": "import mylib, sys\nif mylib.double(2) != 4: sys.exit(1)\n"},
        jobs='[[job]]\nid = "demo"\nkind = "demo"\ncommand = ["{python}", "-O", "d.py"]\n',
    ),
    Shape(
        "a demo with checks",
        jobs=demo(
            "demo",
            _EVENTS + "say(check='double', outcome='passed', value=4.0, unit='', tolerance=0.1)",
        ),
    ),
    Shape(
        "a benchmark",
        jobs=demo(
            "bench",
            _EVENTS + "say(metric='speed', samples=[1.0, 1.1], unit='ms', direction='lower')",
            "benchmark",
        ),
    ),
    Shape(
        "conftest writes a cache into the subject's folder",
        {
            **HONEST,
            "conftest.py": "import mylib, pathlib\n"
            "(pathlib.Path(mylib.__file__).parent / 'seen.json').write_text('[1]')\n",
        },
    ),
    Shape(
        "the subject imports a module of the payload by a name that a test gives",
        {
            "plug.py": "def ask(): return 4\n",
            "t/test_a.py": "import mylib\n\ndef test_a():\n"
            "    assert mylib.load('plug').ask() == 4\n",
        },
        jobs=suite(PYTHONPATH="."),
        subject={
            "mylib/__init__.py": "import importlib\n"
            "def load(name): return importlib.import_module(name)\n"
        },
    ),
    Shape(
        "an example beside the tests has a folder of the subject's name",
        {
            **HONEST,
            "examples/mylib/__init__.py": "WIDTH = 3\n",
            "t/test_example.py": "import mylib, pathlib, runpy\n\ndef test_example():\n"
            "    place = pathlib.Path(__file__).parent.parent / 'examples/mylib/__init__.py'\n"
            "    assert runpy.run_path(str(place))['WIDTH'] == 3\n",
        },
    ),
    Shape(
        "nothing but the payload",
        {
            "src/own/__init__.py": GOOD,
            "t/test_a.py": "import own\n\ndef test_a():\n    assert own.double(2) == 4\n",
        },
        jobs=suite(PYTHONPATH="src"),
        wheel=False,
    ),
)
PROJECTS = (
    Project(
        "blinker",
        "1.9.0",
        "b4ce2265a7abece45e7cc896e98dbebe6cead56bcf805a3d23136d145f5445bf",
        "ba0efaa9080b619ff2f3459d1d500c57bddea4a6b424b60a91141db6fd2f08bc",
        tests=("tests", "-o", "asyncio_default_fixture_loop_scope=function"),
        kept=("tests", "pyproject.toml"),
        pip=("pytest-asyncio",),
    ),
    Project(
        "click",
        "8.5.1",
        "9bbfada76703fd1d784b83eea012e3e8c6a001a876543ef104fa56aaaeb072b4",
        "8bb5376d2006950386f8c6427613334a2acadc5f559cb80e638d00b4df957e37",
        tests=("tests", "-m", "not stress", "-p", "no:asyncio"),
        kept=("tests", "pyproject.toml"),
    ),
    Project(
        "idna",
        "3.20",
        "a7db850025b95ded1eae8a46181a1a6c56c92c96f0e2b005d9ff8dc0210cab44",
        "ab7ae7122974553370f0bdb919e1a960b2cd1bc1ef0276416d896db81c14582c",
    ),
    Project(
        "iniconfig",
        "2.3.1",
        "67f4b9c50da0dedf52af349e7749a80a9057a5031199791b906c3bb3ae878960",
        "9121e2c1fdb355232495be3194c8dfe87ccc2d5dee45947b78e68f499790d7a7",
        tests=("testing",),
        kept=("testing",),
    ),
    Project(
        "itsdangerous",
        "2.2.0",
        "e0050c0b7da1eea53ffaf149c0cfbb5c6e2e2b69c4bef22c81fa6eb73e5f6173",
        "c6242fc49e35958c8b15141343aa660db5fc54d4f13a1db01a3f5891b98700ef",
        pip=("freezegun",),
    ),
    Project(
        "markupsafe",
        "3.0.4",
        "2e9ad7dd851bf45fab9f75cbff4cb493fee9979e8d8c7c9c3ee119022518edd6",
        "6da83a088f8ef93b2d483a8232a4dbf4d69d3d8496b568a03c56becac43e1808",
    ),
    Project(
        "more-itertools",
        "11.2.1",
        "cbf08fd0af284dc69718b9b76a8e6203df624d70209ea511e4219d350c856f63",
        "35a7377edd1dd6608dcb2cdf534ded55ea32d49448875ad042cd3f879fb1ded0",
    ),
    Project(
        "packaging",
        "26.3",
        "94edc256424af38762eb31306eed28beb9f0efc50a8837492c9d6fd6004aed79",
        "d7193f7c8e4e93f444fde0262bf90af30e16fa0ad0ad44cb553c87339b23cd1c",
        pip=("pretend", "hypothesis", "tomli_w"),
    ),
    Project(
        "six",
        "1.17.0",
        "ff70335d468e7eb6ec65b95b99d3a2836546063f63acc5171de367e834932a81",
        "4721f391ed90541fddacab5acf947aa0d3dc7d27b2e1e8eda2be8970586c3274",
        tests=("test_six.py",),
        kept=("test_six.py",),
    ),
    Project(
        "toolz",
        "1.2.0",
        "9667a038e9d6ecba37995e26cb2f59ec6420b6ad8dd9677de59db9b956b08490",
        "890f820b1cb8152785aaf9386d8707770110809035800985ca65cb24ce1120ef",
        tests=("--pyargs", "toolz"),
        kept=("README.rst",),
    ),
)
"""Releases of other people."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.adversary.honest", description=__doc__)
    parser.add_argument("words", nargs="*", help="only those with one of these words in their name")
    parser.add_argument("--place", choices=("local", "ssh"), default="local")
    given = parser.parse_args()
    tellers: list[tuple[str, Callable[[Scene], None]]] = [
        *((shape.name, partial(put_shape, shape)) for shape in SHAPES),
        *((project.name, partial(put_project, project)) for project in PROJECTS),
    ]
    chosen = [t for t in tellers if not given.words or any(w in t[0] for w in given.words)]
    alarms = 0
    with tempfile.TemporaryDirectory(prefix="honest-") as folder:
        Path(folder).chmod(0o755)
        with a_stage(given.place, Path(folder) / "stage") as stage:
            for number, (name, put) in enumerate(chosen):
                scene = Scene(stage, Path(folder) / f"{number}", f"honest-{number}")
                alarm = false_alarm(scene, put)
                alarms += bool(alarm)
                print(f"{'ALARM' if alarm else 'ok':5}  {name:48}  {alarm}", flush=True)
    print(f"{len(chosen)} honest payloads, {alarms} false alarms")
    return 1 if alarms else 0


def false_alarm(scene: Scene, put: Callable[[Scene], None]) -> str:
    """What keeps it from passing; empty where nothing does."""
    try:
        put(scene)
        run = scene.run()
        verdicts = [scene.check(run, spec=spec) for spec in (POLICY, release_spec(POLICY))]
    except RefusedError as error:
        return f"refused: {error}"
    wrong = [v for v in verdicts if v.decision != "PASS"]
    return "; ".join(f"{rule}: {said}" for v in wrong[:1] for rule, said in v.rules.items())


def put_shape(shape: Shape, scene: Scene) -> None:
    """Make the subject and the payload of a shape."""
    scene.subject(GOOD, files=shape.subject)
    if not shape.wheel:
        scene.source = ""
    scene.payload(shape.files, jobs=shape.jobs, manifest=shape.manifest, pip=shape.pip)


def put_project(project: Project, scene: Scene) -> None:
    """Fetch a release; its digests are those that are pinned. Raises CalledProcessError."""
    sdist = _fetched(project, scene.folder, project.sdist, "--no-binary")
    scene.wheel(_fetched(project, scene.folder, project.wheel, "--only-binary"), project.name)
    scene.version = project.version
    words = ", ".join(f'"{word}"' for word in project.tests)
    jobs = f'[[job]]\nid = "suite"\nkind = "suite"\npytest = [{words}]\n'
    scene.payload({}, jobs=jobs, pip=project.pip)
    with tarfile.open(sdist) as archive:
        archive.extractall(scene.folder / "source")
    [source] = (scene.folder / "source").iterdir()
    for name in project.kept:
        copy = shutil.copytree if (source / name).is_dir() else shutil.copy
        copy(source / name, scene.folder / "payload" / name)


def _fetched(project: Project, folder: Path, digest: str, form: str) -> Path:
    into = folder / form.strip("-")
    wanted = folder / "wanted.txt"
    wanted.write_text(f"{project.name}=={project.version} --hash=sha256:{digest}\n")
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet")
    words = ("--no-deps", form, ":all:", "--require-hashes", "-r", str(wanted), "-d", str(into))
    subprocess.run((*pip, *words), check=True)
    [found] = into.iterdir()
    return found


if __name__ == "__main__":
    sys.exit(main())
