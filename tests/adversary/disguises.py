"""Hooks, settings, failures and archives that look like something else."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Sequence
from typing import Any

from tests.adversary.histories import fails_once
from tests.adversary.lie import Lie, Telling, one_run, suite
from tests.adversary.scene import HONEST, SUITE, Scene

_PASSES = "    report.outcome, report.longrepr = 'passed', None\n"
_WRAPS = "import pytest\n@pytest.hookimpl(wrapper=True)\n"
_FORGED = f"""
import types, _pytest.runner
code = compile('''import pytest
@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
{_PASSES}    return report
''', _pytest.runner.__file__, "exec")
disguise = types.ModuleType("_pytest.more")
disguise.__file__ = _pytest.runner.__file__
exec(code, disguise.__dict__)
def pytest_configure(config): config.pluginmanager.register(disguise, "more")
"""
_SCHEDULER = """
from xdist.scheduler import LoadScheduling
class Fewer(LoadScheduling):
    def add_node_collection(self, node, collection):
        super().add_node_collection(node, [one for one in collection if 'double' not in one])
def pytest_xdist_make_scheduler(config, log): return Fewer(config, log)
"""
_SERIAL = """
def pytest_report_to_serializable(config, report):
    if getattr(report, 'failed', False):
        report.outcome, report.longrepr = 'passed', None
"""


def _conftest(code: str) -> dict[str, str]:
    return {"conftest.py": code}


def _xdist(files: dict[str, str]) -> Telling:
    def tell(scene: Scene) -> Sequence[str]:
        scene.payload({**HONEST, **files}, jobs=suite("-n", "2"), pip=["pytest-xdist"])
        return [scene.run()]

    return tell


def _raises(body: str) -> dict[str, str]:
    return {
        "t/test_double.py": "import mylib, os, pytest\nclass Odd(Exception):\n"
        f"    def __str__(self): {body}\n    __repr__ = __str__\n\n"
        "def test_double():\n    if mylib.double(2) != 4: raise Odd()\n"
    }


def _kills(code: str) -> Telling:
    """What would be the first failure ends a process instead; the second time it passes."""

    def tell(scene: Scene) -> Sequence[str]:
        fails_once(scene)
        test = (scene.folder / "payload" / "t" / "test_double.py").read_text()
        test = test.replace(
            "    assert not first\n", f"    if first:\n{code}    assert not first\n"
        )
        scene.payload({**HONEST, "t/test_double.py": test})
        return [scene.run()]

    return tell


_AGENT = (
    "        import os, pathlib, signal, time\n        pid = os.getpid()\n        found = []\n"
    "        while pid > 1:\n"
    "            stat = pathlib.Path(f'/proc/{pid}/stat').read_text().rsplit(')', 1)[1]\n"
    "            pid = int(stat.split()[1])\n"
    "            said = pathlib.Path(f'/proc/{pid}/cmdline').read_bytes()\n"
    "            if b'seatrial_agent' in said: found.append(pid)\n"
    "        for pid in found: os.kill(pid, signal.SIGKILL)\n"
    "        time.sleep(5)\n"
)


def _archive(change: str) -> Telling:
    """The payload is an archive of odd members."""

    def tell(scene: Scene) -> Sequence[str]:
        folder = scene.folder / "payload"
        weak = b"def test_double(): pass\n"
        path = scene.folder / "payload.tar.gz"
        with tarfile.open(path, "w:gz") as archive:

            def add(name: str, text: bytes = b"", **about: Any) -> None:
                member = tarfile.TarInfo(name)
                member.size = len(text)
                for key, value in about.items():
                    setattr(member, key, value)
                archive.addfile(member, io.BytesIO(text))

            add("payload.toml", (folder / "payload.toml").read_bytes())
            for name, text in HONEST.items():
                add(name, text.encode())
            match change:
                case "twice":
                    add("t/test_double.py", weak)
                case "through a link":
                    add("u", linkname="t", type=tarfile.SYMTYPE)
                    add("u/test_double.py", weak)
        scene.payload_path = "payload.tar.gz"
        return [scene.run()]

    return tell


_STEP = {
    "pytest.ini": "[pytest]\naddopts = --sw\ncache_dir = keep\n",
    "keep/v/cache/stepwise": json.dumps(
        {
            "last_failed": "t/test_rest.py::test_triple",
            "last_test_count": 3,
            "last_cache_date_str": "2099-01-01 00:00:00",
        }
    ),
}
_SNAPSHOT = {
    "conftest.py": "import os, pathlib, pytest\ndef pytest_addoption(parser):\n"
    "    parser.addoption('--snapshot-update', action='store_true')\n"
    "@pytest.fixture\ndef snapshot(request):\n"
    "    file = pathlib.Path(__file__).with_name('double.txt')\n"
    "    def same(value):\n"
    "        if request.config.option.snapshot_update or os.environ.get('UPDATE_SNAPSHOTS'):\n"
    "            file.write_text(str(value))\n"
    "        return file.read_text() == str(value)\n"
    "    return same\n",
    "double.txt": "4",
    "t/test_double.py": "import mylib\n\ndef test_double(snapshot):\n"
    "    assert snapshot(mylib.double(2))\n",
}
LIES = (
    Lie(
        "a hook around the test's call swallows what it raises",
        one_run(
            _conftest(
                f"{_WRAPS}def pytest_runtest_call(item):\n"
                "    try: yield\n    except Exception: pass\n"
            )
        ),
        inherent="hook",
        shows="conftest.py",
    ),
    Lie(
        "a hook changes reports on their way from xdist's workers",
        _xdist(_conftest(_SERIAL)),
        inherent="hook",
        shows="conftest.py",
    ),
    Lie("a scheduler of xdist's that leaves a test out", _xdist(_conftest(_SCHEDULER))),
    Lie(
        "a hook whose code says that it is pytest's",
        one_run(_conftest(_FORGED)),
        inherent="hook",
        shows="a function that is not in _pytest/runner.py",
    ),
    Lie(
        "the code of the subject's function is exchanged",
        one_run(_conftest("import mylib\nmylib.double.__code__ = (lambda x: 2 * x).__code__\n")),
    ),
    Lie("a failure whose message ends pytest well", one_run(_raises("pytest.exit('done', 0)"))),
    Lie("a failure kills the agent, and passes the second time", _kills(_AGENT)),
    Lie(
        "a failure kills its process, and passes the second time",
        _kills("        import os\n        os.kill(os.getpid(), 9)\n"),
    ),
    Lie("--sw and a cache that names a later test", one_run(_STEP)),
    Lie(
        "--stepwise in the job's arguments and a cache that names a later test",
        one_run({**_STEP, "pytest.ini": "[pytest]\ncache_dir = keep\n"}, jobs=suite("--stepwise")),
    ),
    *(
        Lie(f"expectations are written: {where}", one_run({**_SNAPSHOT, **files}, jobs=jobs))
        for where, files, jobs in (
            ("addopts", {"pytest.ini": "[pytest]\naddopts = --snapshot-update\n"}, SUITE),
            ("PYTEST_ADDOPTS", {}, suite(PYTEST_ADDOPTS="--snapshot-update")),
            ("a variable", {}, suite(UPDATE_SNAPSHOTS="1")),
        )
    ),
    Lie(
        "-k in a file that the job names by -c",
        one_run({"o.ini": "[pytest]\naddopts = -k 'not double'\n"}, jobs=suite("-c", "o.ini")),
    ),
    *(
        Lie(f"an archive with a weaker test: {change}", _archive(change))
        for change in ("twice", "through a link")
    ),
)
