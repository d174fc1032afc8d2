"""Which tests a run has: what each needs, which part it belongs to, in which order they run.

`--part quick` has what needs Python alone; `--part rest` has everything else; the default is both.
A test that needs what this computer lacks is skipped by name. The order is random, by files and
within each; the header prints the seed, and `--order-seed N` repeats it. Of the rest, files of long
tests come first, so that no process works alone on one at the end.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from glob import glob
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

from tests.contained import FOLDER

TESTS = Path(__file__).parent
LEFT_OUT_FOLDERS = {
    "browser": "the pages in Chromium (make test-all)",
    "e2e": "real controllers, real commands, hosts over SSH (make test-all)",
    "payload": "the payload: its package, its benchmarks, its other suites (make test-all)",
    "lab": "emulated clouds with real machines (make lab)",
}
"""What a quick run does not even collect: their imports would take time and memory."""
UNIT = "unit"
"""The folder of which every test is quick: the rest does not collect it."""
ONE_PROCESS = "tests/browser/"
"""All of it is run by one process: its controllers, and the homes that they show, are made once."""


@dataclass(frozen=True)
class Need:
    """Something beside Python that a test needs, told by its marker or by a fixture."""

    marker: str
    what: str
    fixtures: tuple[str, ...]
    here: Callable[[], object]
    package: str | None = None
    """Debian's package that brings it."""
    common: bool = False
    """Developers have it: its tests are quick where it is, and skipped by name where it is not."""

    def reason(self) -> str:
        """Why a test is skipped, and what to do about it."""
        install = f": apt-get install {self.package}" if self.package else ""
        return f"needs {self.what}{install}"


def program(name: str) -> Callable[[], str | None]:
    """Whether there is a program of this name, in the folders of the system's services too."""
    return lambda: shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


def is_root() -> bool:
    return sys.platform == "linux" and os.geteuid() == 0


NEEDS = (
    Need("needs_root", "root on Linux", (), is_root),
    Need(
        "needs_postgres",
        "Postgres",
        ("postgres_server",),
        lambda: shutil.which("initdb") or glob("/usr/lib/postgresql/*/bin/initdb"),
        "postgresql",
    ),
    Need(
        "needs_sshd", "an SSH server", ("ssh_host", "new_host"), program("sshd"), "openssh-server"
    ),
    Need("needs_browser", "Chromium", ("chromium",), program("chromium"), "chromium"),
    Need("needs_git", "git", (), program("git"), "git", common=True),
    Need("needs_ssh", "an SSH client", (), program("ssh"), "openssh-client", common=True),
)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("ladder", "which tests run, in which order")
    group.addoption("--part", choices=("quick", "rest", "all"), default="all")
    group.addoption("--order-seed", type=int, help="repeat the random order of this seed")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    if FOLDER in os.environ and config.option.basetemp is None:
        # Shorter than pytest's own choice: a Unix socket's path has 107 characters at most.
        config.option.basetemp = f"{os.environ[FOLDER]}/t"
    for need in NEEDS:
        config.addinivalue_line("markers", f"{need.marker}: needs {need.what}")
    config.stash[_SEED] = _seed(config)
    config.stash[_LEFT_OUT] = Counter()


_SEED = pytest.StashKey[int]()
_LEFT_OUT = pytest.StashKey[Counter[str]]()


def _seed(config: pytest.Config) -> int:
    """That of the command line, of the controller of this worker, or a new one."""
    asked = config.getoption("--order-seed")
    if asked is not None:
        return int(asked)
    given = getattr(config, "workerinput", {})
    return int(given.get("order_seed") or random.SystemRandom().randrange(1_000_000))


def pytest_report_header(config: pytest.Config) -> str:
    return f"order: random; --order-seed {config.stash[_SEED]} repeats it"


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: object) -> None:
    """Every worker has the order of its controller."""
    node.workerinput["order_seed"] = node.config.stash[_SEED]  # type: ignore[attr-defined]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A part is without whole folders; None lets others decide."""
    left_out = {"quick": LEFT_OUT_FOLDERS, "rest": (UNIT,)}.get(config.getoption("--part"), ())
    return True if collection_path in {TESTS / name for name in left_out} else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Choose the part, skip what cannot run here, and shuffle the rest."""
    for item in items:
        _mark(item)
        if _folder(item) == UNIT and not _is_quick(item):
            raise pytest.UsageError(f"{item.nodeid} is no unit test: they {_why_not_quick(item)}")
    part = config.getoption("--part")
    chosen = [item for item in items if part == "all" or _is_quick(item) == (part == "quick")]
    left_out = [item for item in items if item not in set(chosen)]
    config.hook.pytest_deselected(items=left_out)
    if part == "quick":
        config.stash[_LEFT_OUT].update(_why_not_quick(item) for item in left_out)
    missing = {need.marker: need for need in NEEDS if not need.here()}
    for item in chosen:
        for marker in missing.keys() & {mark.name for mark in item.iter_markers()}:
            item.add_marker(pytest.mark.skip(reason=missing[marker].reason()))
    items[:] = _shuffled(chosen, random.Random(config.stash[_SEED]))


def _mark(item: pytest.Item) -> None:
    """Mark what its fixtures need, and what its folder says."""
    fixtures = set(getattr(item, "fixturenames", ()))
    for need in NEEDS:
        if fixtures & set(need.fixtures):
            item.add_marker(need.marker)
    if _folder(item) == "browser":
        item.add_marker("needs_browser")


def _folder(item: pytest.Item) -> str:
    return item.path.relative_to(TESTS).parts[0] if item.path.is_relative_to(TESTS) else ""


def _is_quick(item: pytest.Item) -> bool:
    return _why_not_quick(item) == ""


def _why_not_quick(item: pytest.Item) -> str:
    """What it needs, or the step of the ladder it stands on; empty for a quick test."""
    marks = {mark.name for mark in item.iter_markers()}
    for need in reversed(NEEDS):
        if need.marker in marks and not need.common:
            return f"need {need.what}"
    if _folder(item) in LEFT_OUT_FOLDERS:
        return f"are in tests/{_folder(item)}"
    return "take long" if "slow" in marks else ""


def _shuffled(items: list[pytest.Item], order: random.Random) -> Iterator[pytest.Item]:
    """Files in random order, and the tests within each: a file's fixtures are made once."""
    files = [list(tests) for _, tests in groupby(items, key=lambda item: item.path)]
    order.shuffle(files)
    for tests in sorted(files, key=_is_light):
        order.shuffle(tests)
        yield from tests


def _is_light(tests: list[pytest.Item]) -> bool:
    """Whether a file has no long test."""
    return not any(
        _folder(item) in LEFT_OUT_FOLDERS or item.get_closest_marker("slow") for item in tests
    )


class WholeFiles(LoadFileScheduling):
    """Gives the workers whole files, in the order of collection."""

    def _split_scope(self, nodeid: str) -> str:
        return ONE_PROCESS if nodeid.startswith(ONE_PROCESS) else super()._split_scope(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> WholeFiles | None:
    """Of the rest, as `--dist loadfile` asks; None lets xdist do it its own way."""
    if config.getoption("--part") != "rest" or config.getoption("dist") != "loadfile":
        return None
    config.option.loadscopereorder = False
    return WholeFiles(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: object) -> None:
    """Take from the first worker that ends what all of them left out."""
    left_out = getattr(node, "workeroutput", {}).get("left_out")
    if left_out:
        node.config.stash[_LEFT_OUT] = Counter(left_out)  # type: ignore[attr-defined]


def pytest_sessionfinish(session: pytest.Session) -> None:
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["left_out"] = dict(session.config.stash[_LEFT_OUT])


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line for each kind of test that a quick run has not."""
    config = terminalreporter.config
    for why, count in sorted(config.stash[_LEFT_OUT].items()):
        terminalreporter.line(f"not run: {count} tests that {why} (make test-all)")
    if config.getoption("--part") == "quick":
        for what in LEFT_OUT_FOLDERS.values():
            terminalreporter.line(f"not run: {what}")
