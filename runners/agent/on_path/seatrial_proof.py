"""Hooks that prove, in every process of pytest, where the subject and pytest were loaded from."""
# ruff: noqa: INP001 - not a package: this folder stands on the jobs' path

from __future__ import annotations

import os
import shlex
import sys
from typing import Any, Callable, Dict, FrozenSet, List

import pytest
import seatrial_origins
import seatrial_start

Write = Callable[[Dict[str, Any]], None]


class Prover:
    """Looks at ``sys.modules`` when everything is collected, and when everything has run."""

    def __init__(self, config: pytest.Config, write: Write) -> None:
        self._config = config
        self._write = write
        self._worker = str((getattr(config, "workerinput", None) or {}).get("workerid", ""))
        self._own: FrozenSet[str] = frozenset()

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Look before the first test; what is wrong now makes every result worthless."""
        files = (getattr(item, "path", item.fspath) for item in session.items)
        self._own = frozenset(str(file) for file in files) | self._conftests()
        problems = self._look("collection")
        if problems and not self._worker:
            raise pytest.exit.Exception(_sentence(problems[0]), seatrial_start.REFUSED)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """Look after the last test."""
        self._look("end")

    def _look(self, when: str) -> List[Dict[str, str]]:
        found = seatrial_origins.survey().problems(self._own)
        problems = [{"reason": reason, **problem._asdict()} for reason, problem in found[:20]]
        line = {"record": "origins", "when": when, "worker": self._worker, "problems": problems}
        self._write({**line, "pytest": str(pytest.__file__), "version": pytest.__version__})
        return problems

    def _conftests(self) -> FrozenSet[str]:
        plugins = self._config.pluginmanager.get_plugins()
        return frozenset(str(getattr(plugin, "__file__", "")) for plugin in plugins)


class Workers:
    """Starts pytest-xdist's processes as safely as this one, and says which there are."""

    def __init__(self, write: Write) -> None:
        self._write = write

    @pytest.hookimpl(optionalhook=True, trylast=True)
    def pytest_xdist_setupnodes(self, specs: List[Any]) -> None:
        """Put our start in front of every local interpreter that nobody has chosen."""
        for spec in specs:
            if spec.popen and not spec.python:
                spec.python = _command()

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodeready(self, node: Any) -> None:  # noqa: ANN401 - pytest-xdist's
        """Say that there is a process which has to prove itself."""
        self._write({"record": "worker", "worker": str(node.gateway.id)})


def _command() -> str:
    """Return what starts a worker, as a shell would be told it."""
    words = ["env", "-u", "PYTHONPATH", f"SEATRIAL_PYTHONPATH={os.environ.get('PYTHONPATH', '')}"]
    words += [sys.executable, "-u", seatrial_start.__file__, "worker"]
    return " ".join(map(shlex.quote, words))


def _sentence(problem: Dict[str, str]) -> str:
    return f"{problem['reason']}: {problem['what']}. Fix: {problem['fix']}"
