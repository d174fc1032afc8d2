"""Hooks that record which tests were collected, and what excluded others."""
# ruff: noqa: INP001 - not a package: this folder is on the jobs' import path

from __future__ import annotations

import fnmatch
import os
import re
import sys
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, Callable, Dict, Generator, Iterator, List, Sequence, Set, Tuple

import pytest
import seatrial_code
import seatrial_uncollected
from _pytest.assertion.rewrite import AssertionRewritingHook
from _pytest.doctest import DoctestModule

Write = Callable[[Dict[str, Any]], None]

_NAMED = 200
_USUAL = ("__pycache__", ".*", "*.egg", "_darcs", "build", "CVS", "dist", "node_modules", "venv",
          "{arch}")  # fmt: skip
"""Folders that pytest ignores by default."""
_MODULE_CLEANUP = rb"(?m)^[^#\n]*\baddModuleCleanup\s*\("
_NOT_CALLED = "is a method for setup or teardown that pytest does not call in this class"
_NO_HOOK = "is a hook of a module of tests, which pytest does not call"
_PARSED_BYTES = 300_000
"""Maximum bytes of sources that are parsed, which takes about 50 ms."""
_READ_BYTES = 2_000_000
"""Maximum bytes of other payload modules that are read, which takes a few milliseconds."""
_OPTIONS = {
    "deselect_by_keyword": "-k",
    "deselect_by_mark": "-m",
    "main.py": "--deselect",
    "stepwise.py": "--stepwise",
}
"""Option that deselects tests, by the function or file of pytest that applies the option."""
_SWITCHES = {"array_compare": "arraydiff", "mpl_image_compare": "mpl"}
"""Option that switches a comparison on, by the mark of the tests that a plug-in compares."""


class CollectionRecorder:
    """Records the collection of the process that writes the manifest."""

    def __init__(
        self,
        config: pytest.Config,
        write: Write,
        name: Callable[[str], str],
        own: str,
        arguments: Sequence[str],
    ) -> None:
        """Prepare to follow.

        Args:
            config: pytest's configuration.
            write: Receives the record.
            name: Returns a node id in the form that evidence has.
            own: File whose deselections are the agent's: tests that have results already.
            arguments: Paths that pytest was started with.
        """
        self._config = config
        self._write = write
        self._name = name
        self._own = own
        self._seen: Dict[str, None] = {}
        self._by: Dict[str, str] = {}
        self._modules: Dict[str, str] = {}
        self._hidden: List[str] = []
        self._ignored: Dict[str, str] = {}
        self._arguments = list(arguments)
        self._collectors: List[pytest.Module] = []
        self._alike: List[Path] = []
        self._classes: Set[int] = set()
        self._files: Set[str] = set()
        self._returning: Dict[CodeType, str] = {}
        self._codes: Dict[int, CodeType] = {}
        self._comparing: Dict[str, Dict[int, str]] = {}
        self._switched_off: Dict[str, str] = {}
        self._owners: Dict[type, str] = {}

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_ignore_collect(self, collection_path: Path) -> Generator[None, Any, None]:
        """Record ignored paths that may contain tests."""
        outcome = yield
        if not self._is_asked_for(collection_path):
            return
        if outcome.get_result():
            if self._might_hold_tests(collection_path):
                self._ignored[self._place(str(collection_path))] = self._option_of(collection_path)
        elif self._is_passed_over(collection_path):
            self._ignored[self._place(str(collection_path))] = "python_files"
        elif self._is_alike(collection_path):
            self._alike.append(collection_path)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collectstart(self, collector: pytest.Collector) -> None:
        """Remember the test modules, which are searched later for tests that were not collected."""
        if isinstance(collector, pytest.Module) and not isinstance(collector, DoctestModule):
            self._collectors.append(collector)

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_pycollect_makeitem(
        self, collector: pytest.Collector, name: str, obj: object
    ) -> Generator[None, Any, None]:
        """Record functions and classes that pytest collects by default and the settings exclude."""
        outcome = yield
        if outcome.get_result() is not None:
            return
        for key, start, kind in (
            ("python_functions", "test", FunctionType), ("python_classes", "Test", type),
        ):  # fmt: skip
            is_one = isinstance(obj, kind) and name.startswith(start)
            if is_one and list(self._config.getini(key)) != [start]:
                self._ignored[self._name(f"{collector.nodeid}::{name}")] = key

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        """Count a test before a plugin can drop it."""
        self._seen[self._name(item.nodeid)] = None
        for mark, option in _SWITCHES.items():
            if item.get_closest_marker(mark) is not None and not self._is_on(option):
                what = f"compares nothing with {mark} without --{option}"
                self._switched_off[_place_of(item)] = what
        owner = getattr(item, "cls", None)
        if isinstance(owner, type) and owner not in self._owners:
            self._classes.update(map(id, owner.__mro__))
            self._owners[owner] = str(getattr(item.parent, "nodeid", ""))
        code = getattr(getattr(item, "function", None), "__code__", None)
        self._files.add(str(getattr(code, "co_filename", "")))
        if isinstance(code, CodeType) and id(code) not in self._codes:
            self._codes[id(code)] = code
            place = _place_of(item)
            if seatrial_uncollected.returns_a_comparison(code):
                self._returning[code] = place
            if seatrial_uncollected.compares_idly(code):
                self._comparing.setdefault(code.co_filename, {})[code.co_firstlineno] = place

    @pytest.hookimpl(tryfirst=True)
    def pytest_deselected(self, items: List[pytest.Item]) -> None:
        """Record the file that deselects tests."""
        by = self._caller()
        for item in items:
            self._by[self._name(item.nodeid)] = by

    @pytest.hookimpl(tryfirst=True)
    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Record skipped modules, and files whose collection failed."""
        if report.failed:
            self._hidden.append(self._name(report.nodeid))
        elif report.skipped:
            why = report.longrepr
            said = str(why[2] if isinstance(why, tuple) and len(why) == 3 else why or "")
            self._modules[self._name(report.nodeid)] = said[:1_000]

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Record the difference between collected tests and tests to run."""
        kept = {self._name(item.nodeid) for item in session.items}
        gone = [test for test in self._seen if test not in kept]
        line: Dict[str, Any] = {"record": "collected", "deselected": self._causes(gone)}
        self._find_uncollected()
        found = (self._lost(), self._uncalled(), self._idle(), self._changed_arguments())
        rows = [row for each in found for row in each][:_NAMED]
        if rows:
            self._write({"record": "hooks", "hooks": rows})
        line["modules"] = sorted(self._modules.items())[:_NAMED]
        line["ignored"] = sorted(self._ignored.items())[:_NAMED]
        self._write({**line, "hidden": sorted(self._hidden)[:_NAMED]})

    def _find_uncollected(self) -> None:
        """Add files, classes and functions with a usual name that pytest passes over."""
        for path in self._alike[:_NAMED]:
            if str(path) not in self._files and seatrial_uncollected.file_defines_tests(path):
                self._ignored[self._place(str(path))] = "python_files"
        modules = [(one.nodeid, module) for one, module in self._imported()]
        files = {str(module.__file__) for _, module in modules}
        conftests = [
            (self._place(str(plugin.__file__)), plugin)
            for plugin in self._config.pluginmanager.get_plugins()
            if type(plugin) is ModuleType
            and Path(str(getattr(plugin, "__file__", ""))).name == "conftest.py"
        ]
        for nodeid, module in modules:
            if getattr(module, "__test__", True):
                self._ignore_definitions(nodeid, module)
            else:
                self._ignored[self._name(nodeid)] = "__test__ = False"
        for nodeid, module in conftests:
            if str(module.__file__) not in files:
                self._ignore_definitions(nodeid, module, is_ignored=True)

    def _ignore_definitions(
        self, nodeid: str, module: ModuleType, *, is_ignored: bool = False
    ) -> None:
        for path, why in seatrial_uncollected.uncollected_definitions(
            module, self._classes, is_ignored=is_ignored
        ):
            self._ignored.setdefault(self._name("::".join((nodeid, *path))), why)

    def _lost(self) -> Iterator[List[str]]:
        """Yield hook rows for tests that a module's source defines and then loses."""
        left = _PARSED_BYTES
        for collector, module in self._imported():
            nodeid = collector.nodeid
            if type(vars(module).get("load_tests")) is FunctionType:
                yield ["defines load_tests, which pytest does not call", self._name(nodeid)]
            try:
                source = Path(str(module.__file__)).read_bytes()
            except OSError:
                continue
            if b"addModuleCleanup" in source and re.search(_MODULE_CLEANUP, source):
                yield [
                    "has addModuleCleanup, whose functions pytest does not call",
                    self._name(nodeid),
                ]
            if not seatrial_uncollected.is_suspect(module, source.decode("utf-8", "replace")):
                continue
            left -= len(source)
            if left < 0:
                yield ["may define a test twice: too much source to be parsed", self._name(nodeid)]
                continue
            for path, how in seatrial_uncollected.lost_definitions(module, source):
                yield [how, self._name("::".join((nodeid, *path)))]

    def _uncalled(self) -> Iterator[List[str]]:
        """Yield hook rows for functions that look like hooks of pytest and are not called."""
        manager = self._config.pluginmanager
        for collector, module in self._imported():
            for name in () if manager.is_registered(module) else list(vars(module)):
                is_hook = name.startswith("pytest_") and hasattr(manager.hook, name)
                is_own = type(vars(module)[name]) is FunctionType
                if is_hook and is_own and name != "pytest_generate_tests":
                    yield [_NO_HOOK, self._name(f"{collector.nodeid}::{name}")]
        for owner, place in self._owners.items():
            has_nose = manager.hasplugin("nose")
            for name in seatrial_uncollected.uncalled_methods(owner, has_nose=has_nose):
                yield [_NOT_CALLED, self._name(f"{place}::{name}")]

    def _idle(self) -> Iterator[List[str]]:
        """Yield hook rows for tests that assert nothing and that pytest does not report."""
        for place, what in self._switched_off.items():
            yield [what, self._name(place)]
        for place in self._returning.values():
            yield ["returned a value, which asserts nothing", self._name(place)]
        for module, file, source in self._sources():
            lines = self._comparing.get(file, {})
            for line in seatrial_uncollected.idle_comparisons(source, {*lines}) if lines else ():
                yield ["compares without an assertion", self._name(lines[line])]
            # pytest warns of a tuple where it rewrites assertions.
            is_rewritten = isinstance(getattr(module, "__loader__", None), AssertionRewritingHook)
            known = {"a tuple"} if is_rewritten else set()
            kinds = (
                seatrial_uncollected.always_true(module, source) if b"assert" in source else set()
            )
            for what in sorted(kinds - known):
                yield [f"asserts {what}, which is always true", self._place(file)]

    def _sources(self) -> Iterator[Tuple[ModuleType, str, bytes]]:
        """Yield the payload's loaded modules with path and source, up to 2 MB of source."""
        root, left = str(self._config.rootpath) + os.sep, _READ_BYTES
        for module in list(sys.modules.values()):
            file = str(getattr(module, "__file__", None))
            if not file.startswith(root) or not file.endswith(".py"):
                continue
            if seatrial_code.is_in_the_environment(file):
                continue
            try:
                with open(file, "rb") as stream:  # noqa: PTH123 - of perhaps a thousand modules
                    source = stream.read(left)
            except OSError:
                continue
            left -= len(source)
            yield module, file, source

    def _changed_arguments(self) -> Iterator[List[str]]:
        if list(self._config.args) != self._arguments:
            now, then = " ".join(self._config.args), " ".join(self._arguments)
            yield [self._name(f"were changed after the start, to {now}"), f"the arguments {then}"]

    def _imported(self) -> Iterator[Tuple[pytest.Module, ModuleType]]:
        for collector in self._collectors:
            module = getattr(collector, "_obj", None)
            if isinstance(module, ModuleType) and getattr(module, "__file__", None):
                yield collector, module

    def _causes(self, gone: List[str]) -> List[Dict[str, Any]]:
        causes: Dict[str, List[str]] = {}
        silent = ""
        for test in gone:
            by = self._by.get(test)
            if by is None:
                silent = silent or self._droppers()
            causes.setdefault(silent if by is None else by, []).append(test)
        return [
            {"by": by, "count": len(tests), "tests": sorted(tests)[:_NAMED]}
            for by, tests in sorted(causes.items())
            if by != self._own
        ]

    def _droppers(self) -> str:
        """Return the files that could have dropped tests without reporting them."""
        impls = self._config.hook.pytest_collection_modifyitems.get_hookimpls()
        files = [impl.function.__code__.co_filename for impl in impls]
        ours = (str(Path(pytest.__file__).parent.parent / "_pytest"), str(Path(__file__).parent))
        strange = {file for file in files if not file.startswith(ours)}
        inside = {file for file in strange if file.startswith(str(self._config.rootpath))}
        places = sorted(self._place(file) for file in inside or strange)
        return ", ".join(places) or "nobody said who"

    def _caller(self) -> str:
        frame = sys._getframe(2)  # noqa: SLF001 - who calls is what is asked
        skip = (__file__, os.sep + "pluggy" + os.sep)
        while frame.f_back is not None and any(part in frame.f_code.co_filename for part in skip):
            frame = frame.f_back
        file, function = frame.f_code.co_filename, frame.f_code.co_name
        if os.sep + "_pytest" + os.sep in file:
            return _OPTIONS.get(function) or _OPTIONS.get(Path(file).name) or Path(file).name
        return self._own if file == self._own else self._place(file)

    def _place(self, file: str) -> str:
        """Return a path relative to the payload, or to the environment's folder."""
        root = str(self._config.rootpath)
        if file.startswith(root + os.sep):
            return self._name(file[len(root) + 1 :])
        return self._name(file.rpartition("site-packages" + os.sep)[2])

    def _is_asked_for(self, path: Path) -> bool:
        """Return whether a path is below pytest's arguments: it lists their parents' files, too."""
        session: Any = self._config.pluginmanager.get_plugin("session")
        asked = session._initialpaths  # noqa: SLF001 - of every pytest since 7
        return path in asked or any(folder in asked for folder in path.parents)

    def _might_hold_tests(self, path: Path) -> bool:
        patterns = [str(one) for one in self._config.getini("python_files")]
        if path.is_dir():
            if (path / "pyvenv.cfg").exists() or path.name == "__pycache__":
                return False
            usual = any(fnmatch.fnmatch(path.name, usual) for usual in _USUAL)
            names = (*seatrial_uncollected.USUAL_FILES, *patterns)
            return not usual or seatrial_uncollected.holds_test_files(path, names)
        return any(fnmatch.fnmatch(path.name, pattern) for pattern in patterns)

    def _is_passed_over(self, path: Path) -> bool:
        """Return whether a file has a default name of test files that the settings exclude."""
        if path.suffix != ".py" or self._might_hold_tests(path):
            return False
        return any(fnmatch.fnmatch(path.name, usual) for usual in seatrial_uncollected.USUAL_FILES)

    def _is_alike(self, path: Path) -> bool:
        """Return whether a file that is not collected has a name like a usual one for tests."""
        if path.suffix != ".py" or self._might_hold_tests(path):
            return False
        return seatrial_uncollected.is_alike(path.name)

    def _is_on(self, option: str) -> bool:
        """Return whether an option or the setting of its name is given; no plug-in need know it."""
        try:
            setting = self._config.getini(option)
        except (KeyError, ValueError):
            setting = ""
        is_set = str(setting).lower() not in ("", "0", "false", "no", "off")
        return bool(self._config.getoption(option, False)) or is_set

    def _option_of(self, path: Path) -> str:
        for option in ("ignore", "ignore_glob"):
            for given in self._config.getoption(option, None) or ():
                whole = str(self._config.invocation_params.dir / given)
                if fnmatch.fnmatch(str(path), whole):
                    return f"--{option.replace('_', '-')}"
        return "norecursedirs" if path.is_dir() and self._is_norecurse(path) else "conftest"

    def _is_norecurse(self, path: Path) -> bool:
        patterns = self._config.getini("norecursedirs")
        return any(fnmatch.fnmatch(path.name, pattern) for pattern in patterns)


def _place_of(item: pytest.Item) -> str:
    """Return the node id of a test without its parameters."""
    parent, _, test = item.nodeid.rpartition("::")
    return f"{parent}::{test.partition('[')[0]}"
