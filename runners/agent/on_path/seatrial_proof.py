"""Hooks that prove, in every process of pytest, where the subject and pytest were loaded from."""
# ruff: noqa: INP001 - not a package: this folder stands on the jobs' path

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, Callable, Dict, FrozenSet, List, Mapping

import _pytest
import pytest
import seatrial_origins
import seatrial_start

_WATCHED = (
    "pytest_collection_modifyitems",
    "pytest_fixture_setup",
    "pytest_make_collect_report",
    "pytest_pycollect_makeitem",
    "pytest_pyfunc_call",
    "pytest_report_from_serializable",
    "pytest_report_teststatus",
    "pytest_runtest_call",
    "pytest_runtest_logreport",
    "pytest_runtest_makereport",
    "pytest_runtest_protocol",
    "pytest_runtest_setup",
    "pytest_runtest_teardown",
    "pytest_runtestloop",
    "pytest_sessionfinish",
)
"""Hooks that can change what a test comes to."""
_KNOWN = frozenset((
    "_hypothesis_pytestplugin", "anyio", "pytest_asyncio", "pytest_benchmark", "pytest_cov",
    "pytest_mock", "pytest_randomly", "pytest_rerunfailures", "pytest_subtests", "pytest_timeout",
    "xdist",
))  # fmt: skip
_TOLD = frozenset(("seatrial_events",))

Write = Callable[[Dict[str, Any]], None]


class Prover:
    """Looks at ``sys.modules`` when everything is collected, and when everything has run."""

    def __init__(self, config: pytest.Config, write: Write, code: Mapping[str, CodeType]) -> None:
        self._config = config
        self._write = write
        self._code = code
        self._told: List[List[str]] = []
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
        problems += [_replaced(name) for name in _differences(self._code)[:20]]
        self._tell_hooks()
        line = {"record": "origins", "when": when, "worker": self._worker, "problems": problems}
        self._write({**line, "pytest": str(pytest.__file__), "version": pytest.__version__})
        return problems

    def _tell_hooks(self) -> None:
        """Say who else has a hand in outcomes, whenever that is news."""
        hooks = _foreign_hooks(self._config)
        if hooks != self._told:
            self._told = hooks
            self._write({"record": "hooks", "hooks": hooks})

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


def own_code() -> Dict[str, CodeType]:
    """Return the code of every function and method of the recorder's modules, by full name."""
    names = [name for name in sys.modules if name.startswith("seatrial_") and name not in _TOLD]
    found = {}
    for name in names:
        for holder in (sys.modules[name], *_classes(name)):
            place = name if holder is sys.modules[name] else f"{name}.{holder.__name__}"
            for key, value in vars(holder).items():
                if isinstance(value, FunctionType):
                    found[f"{place}.{key}"] = value.__code__
    return found


def _classes(module: str) -> List[type]:
    values = vars(sys.modules[module]).values()
    return [each for each in values if isinstance(each, type) and each.__module__ == module]


def _differences(code: Mapping[str, CodeType]) -> List[str]:
    now = own_code()
    return sorted(name for name, was in code.items() if now.get(name) is not was)


def _replaced(name: str) -> Dict[str, str]:
    text = f"{name} of the recorder was replaced while tests ran: what it recorded does not count"
    fix = "let nothing of the payload patch it"
    return {"reason": "forged_records", "module": name, "file": "", "what": text, "fix": fix}


def _foreign_hooks(config: pytest.Config) -> List[List[str]]:
    """List hook and file of everything that can change an outcome and is not well known."""
    own = str(Path(__file__).parent)
    tools = str(Path(_pytest.__file__).parent)
    found = set()
    for hook in _WATCHED:
        for impl in getattr(config.hook, hook).get_hookimpls():
            file = str(getattr(getattr(impl.function, "__code__", None), "co_filename", "?"))
            if not file.startswith((own + os.sep, tools + os.sep)) and not _is_known(file):
                found.add((hook, _place(file, config)))
    return [list(each) for each in sorted(found)][:200]


def _is_known(file: str) -> bool:
    """Say whether a well-known plugin, installed in the environment, has it."""
    payload = os.environ.get("SEATRIAL_PAYLOAD", "")
    inside = payload and os.path.realpath(file).startswith(os.path.realpath(payload) + os.sep)
    return not inside and any(part.split(".")[0] in _KNOWN for part in Path(file).parts[-3:])


def _place(file: str, config: pytest.Config) -> str:
    root = str(config.rootpath) + os.sep
    return file[len(root) :] if file.startswith(root) else file.rpartition("site-packages/")[2]


def _sentence(problem: Dict[str, str]) -> str:
    return f"{problem['reason']}: {problem['what']}. Fix: {problem['fix']}"
