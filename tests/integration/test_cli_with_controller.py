"""The command line with its real controller: nothing is faked, the payload is a small one."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PATIENCE_S = 120
TESTS = """\
import os, time
import pytest
from hull import buoyancy

@pytest.mark.parametrize("load", range(12))
def test_it_floats(load):
    while load == 5 and os.path.exists(HOLD):
        time.sleep(0.1)
    assert buoyancy(load) == load

def test_it_sinks():
    assert buoyancy(1) == 2
"""


class Project:
    """A project with a home of its own, and the command line in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.hold = folder / "hold"
        """While it is there, one of the tests waits."""
        for name, text in {
            "project/pyproject.toml": '[project]\nname = "hull"\nversion = "1.0"\n',
            "project/src/hull/__init__.py": "def buoyancy(load):\n    return load\n",
            "project/tests/test_hull.py": TESTS.replace("HOLD", repr(str(self.hold))),
        }.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)

    def start(self, *args: str) -> subprocess.Popen[str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith("SEATRIAL_") and k != "CI"}
        return subprocess.Popen(
            [sys.executable, "-m", "orchestrator", *args],
            cwd=self.folder / "project",
            env=kept | {"PYTHONPATH": str(ROOT), "SEATRIAL_HOME": str(self.home)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *args: str) -> tuple[int, str, str]:
        with self.start(*args) as process:
            try:
                out, err = process.communicate(timeout=PATIENCE_S)
            except subprocess.TimeoutExpired as late:
                process.kill()
                said = process.communicate()[1]
                log = (self.home / "controller.log").read_text()[-3000:]
                raise AssertionError(f"{args} did not end:\n{said}\n{log}") from late
        return process.returncode, out, err

    def controller(self) -> int | None:
        """The process id in the home; None where no controller signed it."""
        with contextlib.suppress(OSError, ValueError):
            return int((self.home / "controller.pid").read_text())
        return None

    def shown(self) -> dict[str, object]:
        code, out, err = self.run("show", "latest", "--json")
        assert code == 0, err
        found: dict[str, object] = json.loads(out)
        return found


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    made = Project(tmp_path)
    yield made
    pid = made.controller()
    if pid is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def until(there: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not there():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.2)


COUNTS = {"passed": 12, "failed": 1, "error": 0, "skipped": 0} | dict.fromkeys(
    ("xfailed", "xpassed", "missing", "not_run"), 0
)


@pytest.mark.slow
def test_from_init_to_the_report(project: Project) -> None:
    assert project.run("init")[0] == 0
    code, out, err = project.run("run", "seatrial.yaml")
    assert code == 1, err
    report = Path(out.splitlines()[-1].removeprefix("report: "))
    assert report.name == "SUMMARY.md"
    assert "hull" in report.read_text()
    assert "failed tests/test_hull.py::test_it_sinks" in err
    assert project.shown()["counts"] == COUNTS
    code, out, _ = project.run("logs", "latest")
    assert code == 0
    assert "test_it_sinks" in out
    code, out, _ = project.run("report", "latest", "-o", "out")
    assert code == 0
    written = project.folder / "project" / "out"
    assert (written / "local-cpu" / "SUMMARY.md").is_file()
    assert (written / "local-cpu" / "tests.txt").is_file()
    listed = json.loads(project.run("runs", "--json")[1])
    assert [run["outcome"] for run in listed] == ["failed"]
    assert project.run("cancel", "latest")[0] == 0


@pytest.mark.slow
def test_a_watcher_starts_the_controller_again_that_was_killed(project: Project) -> None:
    assert project.run("init")[0] == 0
    project.hold.touch()
    process = project.start("run", "seatrial.yaml")
    until(lambda: project.controller() is not None)
    until(lambda: '"current": "tests/' in json.dumps(project.shown() if _launched(project) else {}))
    first = project.controller()
    assert first is not None
    os.kill(first, signal.SIGKILL)
    project.hold.unlink()
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1, err
    assert out.startswith("report: ")
    assert "connected again" in err
    assert project.shown()["counts"] == COUNTS
    assert project.controller() not in (None, first)


def _launched(project: Project) -> bool:
    return json.loads(project.run("runs", "--json")[1] or "[]") != []
