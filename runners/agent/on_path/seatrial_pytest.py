"""A pytest plugin that records each fact at once, so that the records survive a SIGKILL.

Each fact is one JSON line, written unbuffered to ``$SEATRIAL_RECORDS``, a pipe that the agent
reads: ``collect_error`` during collection, the manifest of the selected tests after it, then
``start``, ``report`` and others, and ``session_finish`` at the end. Without the variable the plugin
records nothing.

PYTEST_DONT_REWRITE: it is loaded before anything of the payload (``seatrial_start``).
"""
# ruff: noqa: INP001 - not a package: this folder is on the jobs' import path

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import json
import math
import os
import re
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any, Callable, Dict, FrozenSet, Generator, List, Optional, Tuple, Union

import pytest
import seatrial_captured
import seatrial_dropped
import seatrial_origins
from _pytest._code.code import TerminalRepr
from _pytest._io import TerminalWriter
from seatrial_collected import CollectionRecorder
from seatrial_proof import Prover, Workers, own_code

Scalar = Union[None, bool, int, float, str]
LongRepr = Union[None, str, List[Scalar]]

DISK_FULL = 74
POISONED = 75
UNHEARD = 77
"""Exit code if the pipe is closed, which only the running test can have done."""

# Tests replace these for a moment (monkeypatch); the recorder writes in that moment too.
_exit, _fstat, _getpid, _write = os._exit, os.fstat, os.getpid, os.write
_flock, _sha256, _sleep = fcntl.flock, seatrial_origins.sha256, time.sleep
_iterencode = json.JSONEncoder.iterencode

_MARK = "\n[... {} bytes left out ...]\n"
_SECTIONS = 50
_PROPERTIES = 200
_NAME_CHARS = 4_000
_STRICT = "[XPASS(strict)]"
_IN_THREAD = "left an exception in a thread"
_IN_FUTURE = "left a failed assertion in a future, task or callback whose result was never read"
_UNRAISABLE = "left a failed assertion where it cannot be raised"
_IDLE = {
    "PytestReturnNotNoneWarning": "returned a value, which asserts nothing",
    "PytestUnhandledThreadExceptionWarning": _IN_THREAD,
    "PytestCollectionWarning": "has a test that pytest cannot collect",
}
"""Notes on tests that passed, by class name of a warning of pytest."""
_IDLE_TEXTS = (
    ("^assertion is always true", "asserts a tuple, which is always true"),
    ("^yield tests were removed", "has a yield test, which pytest does not run"),
    ("(?m)^AssertionError", _UNRAISABLE),
)
"""Notes on tests that passed, by pattern of a warning's text; they precede those by class."""
_IN_SUBTEST = "has failed subtests that count as an expected failure, though it passed itself"
_ALL_SKIPPED = "skipped all of its subtests, though it passed itself"
_NOT_COLLECTED = r"cannot collect (?:test class )?'(\w+)' because (it [^(.]+)"
_NOWHERE = "outside of all tests"
_SHOWN = 50
_ARGUMENTS: List[str] = []
_LOST = "???"
"""The phase that pytest-xdist reports for a test whose worker is lost."""
_POISON = (
    r"(?:CUDA|HIP) error: (?:device-side assert|an illegal memory access|unspecified launch failure"
    r"|misaligned address|an illegal instruction|the launch timed out|uncorrectable ECC)"
    r"|(?:cuda|hip)Error(?:IllegalAddress|Assert|LaunchFailure|MisalignedAddress)"
    r"|Triton Error \[(?:CUDA|HIP)\]: (?:an illegal memory access|device-side assert)"
    r"|(?:Accelerator device|Core) halted"
)


@pytest.hookimpl(tryfirst=True, hookwrapper=True)
def pytest_cmdline_main(config: pytest.Config) -> Generator[None, Any, None]:
    """Note pytest's arguments before the conftests can change them."""
    _ARGUMENTS[:] = config.args
    yield


def pytest_configure(config: pytest.Config) -> None:
    """Start recording if ``SEATRIAL_RECORDS`` is set."""
    path = os.environ.get("SEATRIAL_RECORDS")
    if not path:
        return
    worker = getattr(config, "workerinput", None)
    records = RecordPipe(path, str((worker or {}).get("workerid", "")))
    seatrial_captured.move(config, str((worker or {}).get("workerid", "")))
    first = worker is None or worker.get("workerid") == "gw0"
    collector = Collector(records, writes=first)
    config.pluginmanager.register(collector, "seatrial-collector")
    prover = Prover(config, records.write, OWN_CODE)
    config.pluginmanager.register(prover, "seatrial-prover")
    config.pluginmanager.register(Retries(records), "seatrial-retries")
    if first:
        collected = CollectionRecorder(config, records.write, name, __file__, _ARGUMENTS)
        config.pluginmanager.register(collected, "seatrial-collected")
    if worker is None:
        config.pluginmanager.register(Recorder(records, config, collector), "seatrial-recorder")
        config.pluginmanager.register(Workers(records.write), "seatrial-workers")
    # Registered last, it is called first: before the record of the session's end.
    config.pluginmanager.register(IdleTests(records, config), "seatrial-idle")


class RecordPipe:
    """The pipe with numbered lines, so that lines of other writers are detected."""

    def __init__(self, path: str, worker: str) -> None:
        self._worker = worker
        self._seq = 0
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._pid = _getpid()
        self._pipe = self._whose()
        self.text_bytes = int(os.environ.get("SEATRIAL_TEXT_BYTES", "65536"))
        # Ends the line that a killed process may have left torn.
        self._append(b"\n")

    def write(self, line: Dict[str, Any]) -> None:
        """Append one record; a forked child process writes none."""
        if _getpid() == self._pid:
            self._seq += 1
            line = {**line, "seq": self._seq, "from": self._worker, "pid": self._pid}
            self._append(b"\n" + _json(line).encode("ascii") + b"\n")

    def cap(self, text: str) -> str:
        """Return the beginning and end of a text that is too long."""
        limit = self.text_bytes
        if len(text) <= limit // 4:
            return text
        if len(text) > 4 * limit:
            left_out = len(text) - 2 * limit
            text = text[:limit] + _MARK.format(left_out) + text[-limit:]
        raw = text.encode("utf-8", "replace")
        if len(raw) <= limit:
            return text
        half = max(limit - 64, 0) // 2
        head, tail = raw[:half].decode("utf-8", "ignore"), raw[-half:].decode("utf-8", "ignore")
        return head + _MARK.format(len(raw) - 2 * half) + tail

    def _append(self, raw: bytes) -> None:
        """Write a whole line: pytest-xdist's processes share the pipe, and long lines would mix."""
        try:
            if self._whose() != self._pipe:
                raise OSError(errno.EBADF, "a test has closed the pipe")
            _flock(self._fd, fcntl.LOCK_EX)
            try:
                self._write(raw)
            finally:
                _flock(self._fd, fcntl.LOCK_UN)
        except OSError as error:
            self._give_up(error)

    def _whose(self) -> Tuple[int, int]:
        status = _fstat(self._fd)
        return status.st_dev, status.st_ino

    def _write(self, raw: bytes) -> None:
        for tries_left in range(20, -1, -1):
            try:
                while raw:
                    raw = raw[_write(self._fd, raw) :]
                return
            except OSError as error:  # noqa: PERF203 - the retry is what it is for
                if error.errno not in (errno.ENOSPC, errno.EDQUOT) or not tries_left:
                    raise
                _sleep(0.1)

    def _give_up(self, error: OSError) -> None:
        """End the process: results that cannot be recorded must not look like a pass."""
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        message = f"\nseatrial: a test result cannot be written ({error}): giving up\n"
        try:
            _write(2, message.encode())
        finally:
            _exit(DISK_FULL if full else UNHEARD)


class Collector:
    """Writes the manifest of the selected tests, then removes those with results."""

    def __init__(self, records: RecordPipe, *, writes: bool) -> None:
        self._records = records
        self._writes = writes
        self.all_done = False

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: List[pytest.Item]
    ) -> Generator[None, Any, None]:
        """Run after all other plugins have selected, deselected and ordered tests."""
        outcome = yield
        outcome.get_result()
        only = _listed("SEATRIAL_ONLY")
        if only:
            others = [item for item in items if name(item.nodeid) not in only]
            items[:] = [item for item in items if name(item.nodeid) in only]
            config.hook.pytest_deselected(items=others)
        if self._writes:
            tests = [name(item.nodeid) for item in items]
            self._records.write({"record": "manifest", "tests": tests})
        done = _listed("SEATRIAL_SKIP")
        if done:
            left_out = [item for item in items if name(item.nodeid) in done]
            items[:] = [item for item in items if name(item.nodeid) not in done]
            config.hook.pytest_deselected(items=left_out)
            self.all_done = bool(left_out) and not items


class Retries:
    """Records that a test failed and was run again, by any plugin."""

    def __init__(self, records: RecordPipe) -> None:
        self._records = records
        self._failed = False

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self) -> Generator[None, Any, None]:
        """Forget the failure of the test before."""
        self._failed = False
        yield

    @pytest.hookimpl(hookwrapper=True, trylast=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, Any, None]:
        """Record a rerun if the running test has failed before."""
        yield from self._phase(item)

    @pytest.hookimpl(hookwrapper=True, trylast=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, None]:
        """Record a rerun if the running test has failed before."""
        yield from self._phase(item)

    def _phase(self, item: pytest.Item) -> Generator[None, Any, None]:
        if self._failed:
            self._records.write({"record": "rerun", "nodeid": name(item.nodeid)})
            self._failed = False
        outcome = yield
        if outcome.excinfo is not None:
            self._failed = not issubclass(outcome.excinfo[0], pytest.skip.Exception)


class IdleTests:
    """Records tests that assert nothing or are not collected, as they are noticed.

    pytest's warnings are noticed when they are made, and exceptions by Python's own hooks where
    pytest's plugins are off: the payload's filters and options hide neither.
    """

    noticed: Dict[Tuple[str, str], None] = {}  # noqa: RUF012 - of the process, like what it watches
    test = ""
    """Node id of the running test."""

    def __init__(self, records: RecordPipe, config: pytest.Config) -> None:
        self._records = records
        if not config.pluginmanager.hasplugin("threadexception"):
            threading.excepthook = _watched(threading.excepthook, BaseException, _IN_THREAD)
        if not config.pluginmanager.hasplugin("unraisableexception"):
            sys.unraisablehook = _watched(sys.unraisablehook, AssertionError, _UNRAISABLE)

    @classmethod
    def place(cls) -> str:
        """Return the node id of the running test, or a text for "outside of all tests"."""
        return cls.test or _NOWHERE

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, None]:
        """Remember the running test while it runs."""
        IdleTests.test = item.nodeid
        yield
        IdleTests.test = ""

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """Record what was noticed about tests and hooks during the session."""
        for test in seatrial_dropped.kept():
            self.noticed[_IN_FUTURE, test] = None
        if self.noticed:
            rows = [(said, name(place)) for said, place in list(self.noticed)[:_SHOWN]]
            self._records.write({"record": "hooks", "hooks": rows})

    @classmethod
    def see_warning(cls, warning: Warning, frame: Any) -> None:  # noqa: ANN401 - of `sys`
        """Note one of pytest's warnings that was issued in `frame`.

        A warning of another pytest session in this process, as in a plugin's own tests, is ignored.
        """
        text, values = str(warning), frame.f_locals
        by_text = (note for pattern, note in _IDLE_TEXTS if re.search(pattern, text))
        said = next(by_text, None) or _IDLE.get(type(warning).__name__)
        if not said or str(frame.f_globals.get("__name__")).startswith("xdist."):
            return
        owner = next(filter(None, map(values.get, ("pyfuncitem", "collector", "self"))), None)
        config = getattr(owner, "config", None) or values.get("config")
        manager = getattr(config, "pluginmanager", None)
        if manager is not None and not manager.hasplugin("seatrial_pytest"):
            return
        file = getattr(owner, "module_path", None) or frame.f_code.co_filename
        place = str(getattr(owner, "nodeid", "") or cls.test)
        place = place or seatrial_origins.below_payload(str(file))
        found = re.match(_NOT_COLLECTED, text)
        if found:
            said = f"is not collected, because {found.group(2).strip()}"
            place = place if place.endswith(f"::{found.group(1)}") else f"{place}::{found.group(1)}"
        cls.noticed[said, place] = None


_plain_init, _plain_unawaited = pytest.PytestWarning.__init__, warnings._warn_unawaited_coroutine  # type: ignore[attr-defined]  # noqa: SLF001


def _init_warning(self: Warning, *arguments: object) -> None:
    _plain_init(self, *arguments)
    with contextlib.suppress(Exception):  # whatever the payload's own objects do when asked
        IdleTests.see_warning(self, sys._getframe(1))  # noqa: SLF001


def _warn_unawaited(coroutine: Any) -> None:  # noqa: ANN401
    """Note a coroutine that was never awaited, and issue Python's warning at the caller's place."""
    IdleTests.noticed["has a coroutine that was never awaited", IdleTests.place()] = None
    if coroutine.cr_origin is not None:
        _plain_unawaited(coroutine)
        return
    text = f"coroutine '{coroutine.__qualname__}' was never awaited"
    warnings.warn(text, category=RuntimeWarning, stacklevel=2, source=coroutine)


def _watched(before: Callable[[Any], Any], kind: type, note: str) -> Callable[[Any], Any]:
    """Wrap a hook for exceptions of threads, or for unraisable ones, to note them."""

    def watched(raised: Any) -> None:  # noqa: ANN401
        if issubclass(raised.exc_type, kind) and raised.exc_type is not SystemExit:
            IdleTests.noticed[note, IdleTests.place()] = None
        before(raised)

    return watched


def _watched_threads(make: Callable[[], Any]) -> Callable[[], Any]:
    """Wrap the function that creates the handler of a thread's exceptions, to note assertions.

    The handler works with any `threading.excepthook` that is set when the thread fails.
    """

    def made() -> Callable[[threading.Thread], None]:
        handle = make()

        def handled(thread: threading.Thread) -> None:
            if isinstance(sys.exc_info()[1], AssertionError):
                IdleTests.noticed[_IN_THREAD, IdleTests.place()] = None
            handle(thread)

        return handled

    return made


threading._make_invoke_excepthook = _watched_threads(  # type: ignore[attr-defined]  # noqa: SLF001
    threading._make_invoke_excepthook  # type: ignore[attr-defined]  # noqa: SLF001
)
pytest.PytestWarning.__init__ = _init_warning  # type: ignore[method-assign,assignment]
warnings._warn_unawaited_coroutine = _warn_unawaited  # type: ignore[attr-defined]  # noqa: SLF001
seatrial_dropped.watch(
    lambda _: IdleTests.place(), lambda test: IdleTests.noticed.update({(_IN_FUTURE, test): None})
)


class Recorder:
    """Records starts, reports and the end of the session."""

    def __init__(self, records: RecordPipe, config: pytest.Config, collector: Collector) -> None:
        self._records = records
        self._config = config
        self._collector = collector
        self._ran: Dict[str, bool] = {}
        """Running tests with subtests, and whether one of these was not skipped."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Record the start of a test: without a report after it, the test killed the process."""
        self._records.write({"record": "start", "nodeid": name(nodeid)})

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record the end of a test's phase, or the loss of its worker."""
        if report.when == _LOST:
            self._lost(report)
            return
        line = _report(report, self._records)
        self._see_subtest(report, line)
        poisoned = report.outcome == "failed" and is_poison(line)
        if poisoned:
            line["cause"] = "crashed"
        self._records.write(line)
        if poisoned:
            self._leave()

    def _see_subtest(self, report: pytest.TestReport, line: Dict[str, Any]) -> None:
        """Notice a test that passes although its subtests failed, or were all skipped."""
        test = report.nodeid
        if "subtest" in line:
            is_expected = "wasxfail" in line and report.outcome == "skipped"
            is_run = is_expected or report.outcome != "skipped"
            self._ran[test] = is_run or self._ran.get(test, False)
            if is_expected:
                IdleTests.noticed[_IN_SUBTEST, test] = None
        elif report.when == "call" and not self._ran.pop(test, True) and report.passed:
            IdleTests.noticed[_ALL_SKIPPED, test] = None

    def _lost(self, report: pytest.TestReport) -> None:
        """Record the test that crashed its pytest-xdist worker as failed."""
        node: Any = getattr(report, "node", None)
        if node is not None:
            report.sections += seatrial_captured.take(str(node.gateway.id))
        line = {**_report(report, self._records), "outcome": "failed"}
        self._records.write({**line, "when": "call"})
        self._records.write({**line, "when": "teardown", "outcome": "passed", "longrepr": None})
        if node is not None:
            self._records.write({"record": "worker_lost", "worker": str(node.gateway.id)})

    @pytest.hookimpl(tryfirst=True)
    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Record a file or class that could not be collected."""
        if report.failed:
            text = _longrepr(report.longrepr)
            why = self._records.cap(str((text[-1] if isinstance(text, list) else text) or ""))
            line = {"record": "collect_error", "nodeid": name(report.nodeid), "longrepr": why}
            self._records.write(line)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Record the end of the session: tests that are missing now were not lost in a crash."""
        if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and self._collector.all_done:
            # There were tests; all of them have their results from before.
            session.exitstatus = exitstatus = pytest.ExitCode.OK
        self._records.write({"record": "session_finish", "exitstatus": int(exitstatus)})

    def _leave(self) -> None:
        """End the process, because its device is unusable: the other tests run in a new one."""
        self._config.get_terminal_writer().flush()
        sys.stderr.flush()
        text = "\nseatrial: the device was left unusable, the other tests run in a fresh process\n"
        _write(2, text.encode())
        _exit(POISONED)


def name(nodeid: str) -> str:
    """Return a node id in the form of evidence and skip lists: storable and limited in length."""
    text = nodeid.replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")
    if len(text) <= _NAME_CHARS:
        return text
    mark = _sha256(text.encode("utf-8")).hexdigest()[:16]
    return f"{text[: _NAME_CHARS - 20]}...{mark}"


def is_poison(line: Dict[str, Any]) -> bool:
    """Return whether a failure means that all later uses of the device in this process fail."""
    message = str((line.get("crash") or {}).get("message") or "")
    return not message.startswith("AssertionError") and bool(re.search(_POISON, message[:4000]))


def _listed(variable: str) -> FrozenSet[str]:
    path = seatrial_origins.GIVEN.get(variable)
    if not path:
        return frozenset()
    return frozenset(json.loads(Path(path).read_text(encoding="utf-8")))


def _report(report: pytest.TestReport, records: RecordPipe) -> Dict[str, Any]:
    text = _longrepr(report.longrepr)
    strict = report.outcome == "failed" and isinstance(text, str) and text.startswith(_STRICT)
    line: Dict[str, Any] = {
        "record": "report",
        "nodeid": name(report.nodeid),
        "when": report.when,
        "outcome": report.outcome,
        "duration": report.duration,
        "start": getattr(report, "start", None),
        "stop": getattr(report, "stop", None),
        "longrepr": _capped(text, records),
        "sections": [
            [str(title), records.cap(body)]
            for title, body in report.sections[:_SECTIONS]
            if not _was_reported(str(title), report.when)
        ],
        "user_properties": [
            [str(name), _property(value, records)]
            for name, value in report.user_properties[:_PROPERTIES]
        ],
        "strict_xpass": strict,
    }
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is not None:
        message = records.cap(str(crash.message))
        line["crash"] = {"path": str(crash.path), "lineno": crash.lineno, "message": message}
    if hasattr(report, "wasxfail"):
        line["wasxfail"] = str(report.wasxfail)
    if getattr(report, "context", None) is not None:
        line["subtest"] = records.cap(str(report.context))
    return line


def _longrepr(longrepr: object) -> LongRepr:
    """Return a skip's path, line and reason as a list, everything else as text."""
    if longrepr is None or isinstance(longrepr, str):
        return longrepr
    if isinstance(longrepr, tuple) and len(longrepr) == 3:
        line = longrepr[1] if isinstance(longrepr[1], int) else None
        return [str(longrepr[0]), line, str(longrepr[2])]
    return _traceback(longrepr) if isinstance(longrepr, TerminalRepr) else _shown(longrepr)


def _traceback(longrepr: TerminalRepr) -> str:
    """Return a traceback as pytest prints it; ``str`` removes the indent of the first line."""
    stream = io.StringIO()
    writer = TerminalWriter(stream)
    writer.hasmarkup = False
    try:
        longrepr.toterminal(writer)
    except Exception:  # noqa: BLE001 - a payload's own may do anything
        return _shown(longrepr)
    return stream.getvalue().rstrip().lstrip("\n")


def _was_reported(title: str, when: Optional[str]) -> bool:
    """Return whether an earlier phase's report had this section (pytest repeats them)."""
    earlier = {"call": ("setup",), "teardown": ("setup", "call")}.get(when or "", ())
    return title.startswith("Captured ") and title.rpartition(" ")[2] in earlier


def _capped(text: LongRepr, records: RecordPipe) -> LongRepr:
    if isinstance(text, list):
        return [*text[:2], records.cap(str(text[2]))]
    return records.cap(text) if text else text


def _property(value: object, records: RecordPipe) -> Scalar:
    """Return a value for JSON; other values, such as NaN and objects, become text."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return float(value)
    if isinstance(value, int) and abs(value) < 2**63:
        return int(value)
    return records.cap(_shown(value))


def _shown(value: object) -> str:
    try:
        return str(value)
    except Exception as error:  # noqa: BLE001 - a payload's own __str__ may do anything
        return f"<{type(value).__name__} that cannot be shown: {type(error).__name__}>"


_ENCODER = json.JSONEncoder(default=_shown)


def _json(line: Dict[str, Any]) -> str:
    return "".join(_iterencode(_ENCODER, line, _one_shot=True))


OWN_CODE = own_code()
"""The code of all recorder functions, saved before the payload can replace them."""
