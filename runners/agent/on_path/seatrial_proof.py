"""Hooks that prove, in every process of pytest, the origins of the subject and of pytest."""
# ruff: noqa: INP001 - not a package: this folder is on the jobs' import path

from __future__ import annotations

import base64
import functools
import importlib
import os
import re
import resource
import shlex
import sys
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType
from typing import (
    Any,
    Callable,
    Dict,
    FrozenSet,
    Iterable,
    Iterator,
    List,
    Mapping,
    Optional,
    Set,
    Tuple,
)

import _pytest
import pytest
import seatrial_code
import seatrial_origins
import seatrial_shipped
import seatrial_start
from _pytest.config import default_plugins
from seatrial_module_snapshots import ChangedName, ModuleSnapshot
from seatrial_origins import MODULES

_WATCHED = frozenset(
    (
        "pytest_collect_file",
        "pytest_collectreport",
        "pytest_collectstart",
        "pytest_collection",
        "pytest_collection_finish",
        "pytest_collection_modifyitems",
        "pytest_fixture_setup",
        "pytest_generate_tests",
        "pytest_itemcollected",
        "pytest_make_collect_report",
        "pytest_pycollect_makeitem",
        "pytest_pycollect_makemodule",
        "pytest_pyfunc_call",
        "pytest_report_from_serializable",
        "pytest_report_to_serializable",
        "pytest_report_teststatus",
        "pytest_runtest_call",
        "pytest_runtest_logfinish",
        "pytest_runtest_logreport",
        "pytest_runtest_logstart",
        "pytest_runtest_makereport",
        "pytest_runtest_protocol",
        "pytest_runtest_setup",
        "pytest_runtest_teardown",
        "pytest_runtestloop",
        "pytest_sessionfinish",
    )
)
"""Hooks of plugins that can change the outcome of a test."""
_IN_WORKERS = _WATCHED | {"pytest_unconfigure"}
"""Watched hooks in a worker of pytest-xdist: also the last one, as its exit code is ignored."""
_KNOWN = frozenset((
    "_hypothesis_pytestplugin", "anyio", "pytest_asyncio", "pytest_benchmark", "pytest_cov",
    "pytest_mock", "pytest_randomly", "pytest_rerunfailures", "pytest_subtests", "pytest_timeout",
    "xdist",
))  # fmt: skip
_START_MODULES = ("sitecustomize.py", "usercustomize.py")
_STARTED_BY = {"a1_coverage.pth": "coverage", "distutils-precedence.pth": "setuptools"}
"""Files that run code at Python's start, by name, with the known distribution of each."""
_OVERLAY = "seatrial_overlay.pth"
"""The agent's own file, which no package may replace."""
_ROWS = 190
"""Maximum number of replaced functions in a record."""
_NAMES = 50
"""Maximum number of the subject's import names in a record."""
_EXCLUDED = frozenset(("seatrial_events",))
_TOOLS = frozenset((
    "_pytest.assertion", "_pytest.assertion.rewrite", "_pytest.fixtures", "_pytest.main",
    "_pytest.nodes", "_pytest.python", "_pytest.reports", "_pytest.runner", "_pytest.skipping",
    "_pytest.unittest", "pluggy._callers", "pluggy._execution", "pluggy._hooks", "pluggy._manager",
))  # fmt: skip
"""Modules that derive an outcome from a test; not every version has all of them."""

_COLLECTORS = ("python", "unittest", "doctest")
"""pytest's plugins that collect tests."""

_VERBS = frozenset((
    "accept", "bless", "fix", "generate", "overwrite", "rebaseline", "record", "refresh", "regen",
    "regenerate", "rewrite", "update", "write",
))  # fmt: skip
_MAKERS = _VERBS | {"create", "save"}
"""Verbs that mark an option as writing, except together with snapshots, which are ambiguous."""
_SNAPSHOTS = frozenset(("snapshot", "snapshots"))
_NOUNS = frozenset((
    "approvals", "approved", "baseline", "baselines", "expectation", "expectations", "expected",
    "golden", "goldens", "reference", "references", *_SNAPSHOTS,
))  # fmt: skip
"""Nouns for expectations: with a verb they name an option or variable that writes expectations."""
_NOT = frozenset((
    "deny", "disable", "disabled", "disallow", "dont", "forbid", "forbidden", "last", "never", "no",
    "not", "prevent", "skip", "skipped", "without",
))  # fmt: skip
_HELD = frozenset((
    "at", "bucket", "count", "dir", "directory", "file", "folder", "id", "key", "name", "path",
    "time", "timeout", "token", "url", "version",
))  # fmt: skip
"""Last words of names whose value is a path, a number or similar, and no switch."""
_GIVEN = "."
_ANY_VALUE = r"^(?!(?:0|f|false|n|no|none|never|off|check|compare|verify|disabled?|skip)$)"
_FLAGS = r"\b(?:create|fix|trim|update)\b"
_BY_VALUE = f"^(?:{'|'.join(sorted(_MAKERS))})$"
"""Values that mean writing, for a name that has only a noun: ``GOLDEN=update``."""
_WRITING = {
    **dict.fromkeys(("BLESS", "bless", "REBASELINE", "rebaseline", "REGEN", "regen"), _ANY_VALUE),
    **dict.fromkeys(("REFRESH_FIXTURES", "REGEN_FIXTURES", "UPDATE_FIXTURES"), _ANY_VALUE),
    "accept": _ANY_VALUE,
    "approvaltests_custom_reporter": _GIVEN,
    "arraydiff_generate_path": _GIVEN,
    "EXPECTTEST_ACCEPT": _ANY_VALUE,
    "force_regen": _ANY_VALUE,
    "inline_snapshot": _FLAGS,
    "INLINE_SNAPSHOT_DEFAULT_FLAGS": _FLAGS,
    "insta": "^(?:clear|record|update|update-new)$",
    "INSTA_UPDATE": "^(?:always|force|unseen)$",
    "mpl_generate_hash_library": _GIVEN,
    "mpl_generate_path": _GIVEN,
    "regen_all": _ANY_VALUE,
    "regtest_reset": _ANY_VALUE,
    "reset_image_cache": _ANY_VALUE,
    "TRYBUILD": "^overwrite$",
    "update_examples": _ANY_VALUE,
}
"""Names of other options and variables, with a pattern of the values that mean writing.

``--record-mode`` of pytest-recording is not among them: its files hold a server's answers, not
what tests expect. ``SAVE_SNAPSHOTS`` is not: programs also call their saved state snapshots.
"""
_WORDS = {"update_snapshots": "--snapshot-update"}
"""Options by the name of their setting, where both names differ."""

_STAND_IN = "stands for an optional dependency of the subject"
_REPLACED = "was not loaded: the subject has installed another file of its name"
_NOT_IN = "a function that is not in"
_NOT_COMPARED = "not compared with the installed files: unreadable, or more than 40 MB in all"

Write = Callable[[Dict[str, Any]], None]


class Prover:
    """Checks ``sys.modules`` after the collection and after the last test."""

    def __init__(self, config: pytest.Config, write: Write, code: Mapping[str, object]) -> None:
        self._config = config
        self._write = write
        self._code = code
        self._reported_hooks: List[List[str]] = []
        self._tests, self._next = 0, 2
        self._worker = str((getattr(config, "workerinput", None) or {}).get("workerid", ""))
        self._own: FrozenSet[str] = frozenset()
        self._children = _children()

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        """Ignore child processes that plugins started before the collection, such as ``uname``."""
        self._children = _children()

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Check before the first test; a problem now invalidates every result."""
        files = (getattr(item, "path", item.fspath) for item in session.items)
        self._own = frozenset(str(file) for file in files) | self._conftests()
        problems = self._look("collection")
        if problems and not self._worker:
            raise pytest.exit.Exception(_sentence(problems[0]), seatrial_start.REFUSED)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        """Compare the subject's code before the tests 2, 8, 32 and so on.

        A test's own replacements are restored by then; those that stay until the end are not.
        """
        self._tests += 1
        if self._tests == self._next:
            self._next *= 4
            compared = seatrial_code.compared(MODULES)
            if compared.changed or compared.replaced:
                self._tell_hooks(compared)
            problems = [_wrong_subject(each) for each in compared.problems[:20]]
            if problems:
                line = {"record": "origins", "when": "test", "worker": self._worker}
                self._write({**line, "problems": problems})

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """Check after the last test."""
        self._look("end")

    def _look(self, when: str) -> List[Dict[str, str]]:
        found = seatrial_origins.required_distributions().problems(self._own)
        compared = seatrial_code.compared(MODULES)
        problems = [{"reason": reason, **problem._asdict()} for reason, problem in found[:20]]
        problems += [_wrong_subject(each) for each in compared.problems[:20]]
        problems += [_replaced(name) for name in _differences(self._code)[:20]]
        problems += [_excluded_tests(what) for what in excluding_options(self._config)]
        self._tell_hooks(compared)
        line = {"record": "origins", "when": when, "worker": self._worker, "problems": problems}
        line["subject_modules"] = self._subject_modules()
        line["subject_names"] = _subject_names()
        self._write({**line, "pytest": str(pytest.__file__), "version": pytest.__version__})
        return problems

    def _subject_modules(self) -> Optional[int]:
        """Return the number of the subject's loaded modules; None if it is unknown.

        It is unknown without a subject, and if child processes may have loaded them.
        """
        subject = seatrial_origins.required_distributions().subject
        if subject is None:
            return None
        return len(subject.of(MODULES)) or (0 if _children() == self._children else None)

    def _tell_hooks(self, compared: seatrial_code.ComparedModules) -> None:
        """Record other plugins' hooks and replacements if they changed since the last record."""
        own = _PYTEST_HOOKS.union(self._code.values())
        hooks = [*_foreign_hooks(self._config, own), *_replacements(self._config, compared)]
        if hooks != self._reported_hooks:
            self._reported_hooks = hooks
            self._write({"record": "hooks", "hooks": hooks})

    def _conftests(self) -> FrozenSet[str]:
        plugins = self._config.pluginmanager.get_plugins()
        return frozenset(str(getattr(plugin, "__file__", "")) for plugin in plugins)


def _subject_names() -> List[str]:
    subject = seatrial_origins.required_distributions().subject
    return sorted(subject.roots)[:_NAMES] if subject is not None else []


class Workers:
    """Starts pytest-xdist's processes as safely as this one, and records them."""

    def __init__(self, write: Write) -> None:
        self._write = write

    @pytest.hookimpl(optionalhook=True, trylast=True)
    def pytest_xdist_setupnodes(self, specs: List[Any]) -> None:
        """Set the start command of every local worker without an explicit interpreter."""
        for spec in specs:
            if spec.popen and not spec.python:
                spec.python = _command()

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodeready(self, node: Any) -> None:  # noqa: ANN401 - pytest-xdist's
        """Record a worker process, which must prove its origins."""
        self._write({"record": "worker", "worker": str(node.gateway.id)})


def _children() -> int:
    """Return the page faults of all ended child processes: each of them adds some."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt


def _command() -> str:
    """Return the start command of a worker, quoted for a shell."""
    given = {**seatrial_origins.GIVEN, "SEATRIAL_PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    words = ["/usr/bin/env", "-u", "PYTHONPATH"]
    words += [f"{name}={value}" for name, value in sorted(given.items())]
    words += [sys.executable, "-u", seatrial_start.__file__, "worker"]
    return " ".join(map(shlex.quote, words))


def own_code() -> Dict[str, object]:
    """Return the code of every function and method of the recorder's modules, by full name.

    Built-in functions in a module are included unchanged.
    """
    names = [name for name in sys.modules if name.startswith("seatrial_") and name not in _EXCLUDED]
    found: Dict[str, object] = dict(code_of(names))
    for name in names:
        for key, value in vars(sys.modules[name]).items():
            if isinstance(value, BuiltinFunctionType):
                found[f"{name}.{key}"] = value
    return found


def code_of(modules: Iterable[str]) -> Dict[str, CodeType]:
    """Return the code of every function and method of some modules, by full name."""
    found = {}
    for name in sys.modules.keys() & set(modules):
        for holder in (sys.modules[name], *_classes(name)):
            place = name if holder is sys.modules[name] else f"{name}.{holder.__name__}"
            for key, value in vars(holder).items():
                function = getattr(value, "__func__", value)
                if isinstance(function, FunctionType):
                    found[f"{place}.{key}"] = function.__code__
    return found


def _classes(module: str) -> List[type]:
    values = vars(sys.modules[module]).values()
    return [each for each in values if isinstance(each, type) and each.__module__ == module]


def _differences(code: Mapping[str, object]) -> List[str]:
    now = own_code()
    return sorted(name for name, was in code.items() if now.get(name) is not was)


def _wrong_subject(problem: seatrial_origins.ModuleProblem) -> Dict[str, str]:
    return {"reason": "wrong_subject", **problem._asdict()}


def _replaced(name: str) -> Dict[str, str]:
    text = f"{name} of the recorder was replaced while tests ran: what it recorded does not count"
    fix = "let nothing of the payload patch it"
    return {"reason": "forged_records", "module": name, "file": "", "what": text, "fix": fix}


def excluding_options(config: pytest.Config) -> Iterator[str]:
    """Yield a sentence for each option that makes tests skip what they would check."""
    names = {"setuponly": "--setup-only", "setupplan": "--setup-plan", "lf": "--last-failed"}
    names["collectonly"] = "--collect-only"
    for dest, word in names.items():
        if config.getoption(dest, False):
            yield f"{word}, which leaves tests or their bodies out"
    options = vars(config.option)
    for name, value in sorted({**os.environ, **options}.items()):
        words = tuple(name.lower().split("_"))
        by_name = _ANY_VALUE if _writes_expectations(words) else None
        values = _WRITING.get(name) or (_BY_VALUE if _NOUNS.issuperset(words) else by_name)
        if value and values is not None and re.search(values, str(value).lower()):
            word = _WORDS.get(name, f"--{name.replace('_', '-')}") if name in options else name
            # An unknown variable of the machine may hold a secret.
            said = f" ({value!s:.40})" if name in options or name in _WRITING else ""
            yield f"{word}{said}, which writes expectations instead of checking them"


@functools.lru_cache(maxsize=None)
def _writes_expectations(words: Tuple[str, ...]) -> bool:
    """Return whether a name means writing: ``update_goldens``, not ``update_goldens_dir``."""
    nouns = _NOUNS.intersection(words)
    verbs = _MAKERS if nouns - _SNAPSHOTS else _VERBS
    if verbs.isdisjoint(words) or not nouns:
        return False
    denied = next((place for place, word in enumerate(words) if word in _NOT), len(words))
    return verbs.isdisjoint(words[denied:]) and words[-1] not in _NOT | _HELD


def _excluded_tests(what: str) -> Dict[str, str]:
    text = f"pytest runs with {what}"
    word = what.split(",")[0].split(" ")[0]
    fix = f"take {word} out of the job's arguments and variables, addopts and PYTEST_ADDOPTS"
    return {"reason": "wrong_pytest", "module": "pytest", "file": "", "what": text, "fix": fix}


def _foreign_hooks(config: pytest.Config, own: FrozenSet[object]) -> List[List[str]]:
    """List hook and file of every plugin that can change an outcome and is not well known.

    Code that declares pytest or the recorder as its origin must be in `own`.
    """
    found = set()
    for hook in _IN_WORKERS if hasattr(config, "workerinput") else _WATCHED:
        # Before pytest 8, config.hook wraps the hooks that are about paths.
        for impl in getattr(config.pluginmanager.hook, hook).get_hookimpls():
            code = getattr(impl.function, "__code__", None)
            said = str(getattr(code, "co_filename", "?"))
            for file in {said, str(getattr(impl.plugin, "__file__", None) or said)}:
                if file.startswith(_OURS):
                    if code not in own or not _is_of(impl.function, said):
                        found.add((hook, f"{_NOT_IN} {_place(file, config)}"))
                elif not (
                    _is_known(file)
                    and (_is_of(impl.function, said) or _is_of_program(impl.function, said))
                ):
                    found.add((hook, _place(file, config)))
    return [list(each) for each in sorted(found)][:200]


def _pytest_hooks() -> FrozenSet[object]:
    """Return the code of pytest's own hooks, before anything of the payload is loaded."""
    for name in default_plugins:
        importlib.import_module(f"_pytest.{name}")
    functions = (
        vars(holder)[hook]
        for name in [name for name in sys.modules if name.startswith("_pytest.")]
        for holder in (sys.modules[name], *_classes(name))
        for hook in vars(holder).keys() & _IN_WORKERS
    )
    return frozenset(one.__code__ for one in functions if isinstance(one, FunctionType))


def _is_of(function: object, file: str) -> bool:
    """Return whether a function belongs to the loaded module of the file that its code names."""
    module = sys.modules.get(str(getattr(function, "__module__", "")))
    known = getattr(function, "__globals__", None)
    return module is not None and known is vars(module) and getattr(module, "__file__", "") == file


def _is_of_program(function: object, file: str) -> bool:
    """Return whether a function belongs to the source file that this process runs as a program.

    pytest-xdist sends the text of ``xdist/remote.py`` to its workers, which have no such module.
    """
    frame: Any = sys._getframe(1)  # noqa: SLF001 - what runs is what is asked
    known = getattr(function, "__globals__", None)
    while frame is not None:
        if frame.f_globals is known and frame.f_code.co_name == "<module>":
            return bool(frame.f_code.co_filename == file)
        frame = frame.f_back
    return False


def _replacements(
    config: pytest.Config, compared: seatrial_code.ComparedModules
) -> List[List[str]]:
    """List functions of pytest and of the subject that the payload has replaced, and its files."""
    subject = seatrial_origins.required_distributions().subject
    found: Set[Tuple[str, str]] = set()
    found.update(("runs when Python starts", file) for file in _start_files())
    found.update((_STAND_IN, file) for file in (subject.stand_ins if subject is not None else ()))
    if subject is not None:
        payload = str(config.rootpath)
        tests = seatrial_shipped.replaced_tests(subject, MODULES, payload)
        found.update((_REPLACED, file) for file in tests)
    for name, file in compared.replaced:
        is_its_own = subject is not None and subject.path_of(file) is not None
        found.add((name, f"{_NOT_IN} {_place(file, config)}" if is_its_own else file))
    named = {name for name, _ in found}
    for module, change in [*compared.changed, *_changes_of_pytest()]:
        name = f"{module}.{change.place}" if change.place else module
        if name not in named:
            found.add(_changed(name, change, config))
    if compared.left_out:
        first, *more = sorted(compared.left_out)
        what = f"{first} and {len(more)} more modules" if more else first
        found.add((_NOT_COMPARED, what))
    blocked = (plugin for plugin in _COLLECTORS if config.pluginmanager.is_blocked(plugin))
    found.update(("leaves out the tests that it would collect", f"-p no:{one}") for one in blocked)
    found.update(_interceptors(config))
    rows = sorted(found, key=lambda row: (" " in row[0], row))
    more = [[f"{len(rows) - _ROWS} more of these are not listed", ""]] if len(rows) > _ROWS else []
    return [[name, _place(file, config)] for name, file in rows[:_ROWS]] + more


def _changed(name: str, change: ChangedName, config: pytest.Config) -> Tuple[str, str]:
    if change.what:
        return change.what, name
    if seatrial_code.is_in_the_environment(change.file):
        return f"is not what its import left, but of {_place(change.file, config)}", name
    return name, change.file


def _changes_of_pytest() -> Iterator[Tuple[str, ChangedName]]:
    """Yield the changes that code outside of the environment made in pytest and pluggy."""
    for name, snapshot in _PYTEST.items():
        module = MODULES.get(name)
        if module is not None and not snapshot.is_same(module):
            for change in snapshot.changes(module):
                if not change.is_added and not seatrial_code.is_in_the_environment(change.file):
                    yield name, change


def _interceptors(config: pytest.Config) -> Iterator[Tuple[str, str]]:
    """Yield each interceptor of test calls, such as a trace function, with its file."""
    for tracer in (sys.gettrace(), sys.getprofile()):
        for file in seatrial_origins.code_files(tracer):
            if not seatrial_code.is_in_the_environment(file):
                yield "traces the tests", file
    caller = getattr(config.pluginmanager, "_inner_hookexec", None)
    if getattr(caller, "__code__", None) not in _HOOK_CALLERS:
        yield (
            "calls the hooks instead of pluggy",
            next(iter(seatrial_origins.code_files(caller)), ""),
        )
    if sys.modules is not MODULES:
        yield "is not Python's own table of modules", "sys.modules"


def _start_files() -> List[str]:
    """Return the files of this environment whose code Python runs at its start."""
    inside = [Path(each) for each in sys.path if seatrial_origins.is_below(each, sys.prefix)]
    return [
        str(file)
        for folder in inside
        if folder.is_dir()
        for file in sorted(folder.iterdir())
        if file.name in _START_MODULES
        or (file.suffix == ".pth" and file.name != _OVERLAY and _has_code(file))
        if not _is_recorded(file)
    ]


def _is_recorded(file: Path) -> bool:
    """Return whether a well-known distribution, not the subject, recorded this file's content."""
    name = _STARTED_BY.get(file.name)
    subject = seatrial_origins.required_distributions().subject
    if name is None or (subject is not None and subject.path_of(str(file)) is not None):
        return False
    digest = base64.urlsafe_b64encode(seatrial_origins.sha256(file.read_bytes()).digest())
    line = f"{file.name},sha256={digest.decode().rstrip('=')},"
    infos = (one for one in os.listdir(file.parent) if one.startswith(f"{name}-"))  # noqa: PTH208
    records = (file.parent / one / "RECORD" for one in infos)
    texts = (one.read_text(encoding="utf-8", errors="replace") for one in records if one.is_file())
    return any(f"\n{line}" in f"\n{text}" for text in texts)


def _has_code(file: Path) -> bool:
    with file.open(encoding="utf-8", errors="replace") as stream:
        return any(line.startswith(("import ", "import\t")) for line in stream)


def _is_known(file: str) -> bool:
    """Return whether an installed, well-known plugin other than the subject owns the file."""
    subject = seatrial_origins.required_distributions().subject
    own = subject is not None and subject.path_of(file) is not None
    return (
        not own
        and seatrial_code.is_in_the_environment(file)
        and any(part.partition(".")[0] in _KNOWN for part in file.rsplit(os.sep, 3)[-3:])
    )


def _place(file: str, config: pytest.Config) -> str:
    root = str(config.rootpath) + os.sep
    return file[len(root) :] if file.startswith(root) else file.rpartition("site-packages/")[2]


def _sentence(problem: Dict[str, str]) -> str:
    return f"{problem['reason']}: {problem['what']}. Fix: {problem['fix']}"


_OURS = tuple(f"{Path(one).parent}{os.sep}" for one in (__file__, _pytest.__file__))
_PYTEST_HOOKS = _pytest_hooks()
_PYTEST = {name: ModuleSnapshot(module) for name, module in list(MODULES.items()) if name in _TOOLS}
_HOOK_CALLERS = frozenset(
    one.__code__
    for name in ("pluggy._callers", "pluggy.callers")
    for one in [getattr(MODULES.get(name), "_multicall", None)]
    if isinstance(one, FunctionType)
)
