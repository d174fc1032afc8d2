"""Validates the pytest plugin's records, converts them to events, and tracks the running test."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Callable, Dict, List, Mapping, Optional, Sequence, Set, Tuple

from .collected_tests import TestSetRecorder
from .event_lines import is_final
from .events import EventWriter
from .evidence_text import JsonValue
from .tail_json_lines import JsonLinesTail

Fields = Mapping[str, object]

_OUTCOMES = ("passed", "failed", "skipped")
_WHEN = ("setup", "call", "teardown")
_WARNINGS = 20


_REFUSALS = ("wrong_pytest", "wrong_subject", "forged_records")
_NEEDS_NO_NUMBER = ("origins", "start")
"""Records without a number, written before the recorder runs; they can only cause a refusal."""
_PROBLEMS = 20
_NAMED_TESTS = 5


@dataclass(frozen=True)
class RecordsRefusal:
    """The reason for rejected test records."""

    reason: str
    """``wrong_pytest``, ``wrong_subject`` or ``forged_records``."""
    detail: str
    """Text for a person: the module, its file, and advice."""


class SuiteRecords:
    """The records of one suite, from all of its processes."""

    def __init__(
        self, tail: JsonLinesTail, events: EventWriter, job: str, *, arguments: Sequence[str] = ()
    ) -> None:
        """Prepare to follow.

        Args:
            tail: Reader of the plugin's records.
            events: The event stream.
            job: Id of the job that runs the tests.
            arguments: The job's arguments for pytest.
        """
        self._tail = tail
        self._arguments = arguments
        self._test_set = TestSetRecorder(arguments)
        self._events = events
        self._job = job
        self._bad = 0
        self._started: Dict[str, float] = {}
        """Start of the present phase of each running test, on the monotonic clock."""
        self._reruns: Dict[str, Dict[str, int]] = {}
        self.process = 0
        self.manifest: Optional[List[str]] = None
        self.done: Set[str] = set()
        self.session_finished = False
        self.poisoned = False
        self._refusal: Optional[RecordsRefusal] = None
        self._unproven: Set[str] = set()
        self._workers: Set[str] = {""}
        self._writers: Dict[Tuple[str, str], int] = {}
        self._skipped_subtests: Dict[str, int] = {}

    def begin_process(self) -> None:
        """Prepare for the records of a new process."""
        self.process += 1
        self.manifest = None
        self.session_finished = False
        self.poisoned = False
        self._started.clear()
        self._unproven = {""}
        self._workers = {""}
        self._writers = {}
        self._skipped_subtests = {}
        self._test_set = TestSetRecorder(self._arguments)

    def poll(self) -> bool:
        """Read the new records; return whether there were any."""
        return self._take(self._tail.poll())

    def drain(self) -> None:
        """Read the rest of the records of an ended process, and emit its test set."""
        self._take(self._tail.drain())
        if self.manifest is not None:
            self._events.emit("test", self._job, self._test_set.document(self.manifest))
        if self._skipped_subtests:
            self._events.log("info", _subtest_notice(self._skipped_subtests), self._job)

    def running(self) -> Optional[str]:
        """Return the running test, under xdist the one that began first; None without one."""
        return next(iter(self._started), None)

    def refusal(self) -> Optional[RecordsRefusal]:
        """Return why the results of the ended process do not count, or None."""
        stranger = {worker for worker, _ in self._writers} - self._workers
        if self._refusal is None and (stranger or len(self._writers) > len(self._workers)):
            return _forged("more processes wrote test records than pytest had")
        if self._refusal is None and self.session_finished and self._unproven:
            which = ", ".join(sorted(self._unproven - {""})) or "the main process"
            text = f"pytest ended, and {which} never said where it was loaded from"
            fix = "run the suite without what replaces pytest's plugins or its workers"
            return RecordsRefusal("wrong_pytest", f"{text}. Fix: {fix}")
        return self._refusal

    def left(self, skipped: Set[str]) -> List[str]:
        """Return the collected tests without a final result."""
        settled = self.done | skipped
        return [test for test in self.manifest or () if test not in settled]

    def lost(
        self,
        nodeid: str,
        *,
        cause: str,
        number: Optional[int],
        text: str,
        sections: Sequence[Tuple[str, str]],
    ) -> None:
        """Emit a failed report for a test that crashed or hung its process."""
        data: Dict[str, JsonValue] = {
            "record": "report",
            "nodeid": nodeid,
            "when": "call",
            "outcome": "failed",
            "cause": cause,
            "signal": number,
            "duration": self._elapsed(nodeid),
            "longrepr": text,
            "sections": sections,
        }
        self._events.emit("test", self._job, data)
        self._settle(nodeid)

    def _elapsed(self, nodeid: str) -> Optional[float]:
        """Return the seconds since the running test's phase began; None if it is not running."""
        since = self._started.get(nodeid)
        return None if since is None else round(time.monotonic() - since, 3)

    def _take(self, lines: List[Tuple[int, Optional[Fields], str]]) -> bool:
        for number, line, wrong in lines:
            try:
                if line is None:
                    raise ValueError(wrong)
                self._number(line)
                self._one(line)
            except (ValueError, TypeError, OverflowError) as error:  # noqa: PERF203 - one bad line must not spoil the others
                self._complain(number, error)
        return bool(lines)

    def _number(self, line: Fields) -> None:
        """Check a line's number: each recorder process numbers its lines from 1."""
        record, seq = line.get("record"), line.get("seq")
        if (record, line.get("when")) == _NEEDS_NO_NUMBER or self._refusal is not None:
            return
        writer = (str(line.get("from")), str(line.get("pid")))
        if seq != self._writers.get(writer, 0) + 1:
            self._refusal = _forged(f"a record ({record}) is out of order, or has no number")
        elif self.session_finished and record in ("start", "report", "rerun"):
            self._refusal = _forged("a test was reported after the session had ended")
        else:
            self._writers[writer] = int(seq)

    def _complain(self, number: int, error: Exception) -> None:
        self._bad += 1
        if self._bad > _WARNINGS:
            return
        text = f"line {number} of the test records cannot be used: {error}"
        self._events.log("warning", text, self._job)

    def _one(self, line: Fields) -> None:
        takers: Dict[str, Callable[[Fields], None]] = {
            "manifest": self._take_manifest,
            "start": self._take_start,
            "report": self._take_report,
            "rerun": self._take_rerun,
            "collect_error": self._take_collect_error,
            "collected": self._take_collected,
            "hooks": self._take_hooks,
            "session_finish": self._take_session_finish,
            "origins": self._take_origins,
            "worker": self._take_worker,
            "worker_lost": self._take_worker_lost,
        }
        taker = takers.get(str(line.get("record")))
        if taker is None:
            raise ValueError(f"unknown record {line.get('record')!r:.80}")
        taker(line)

    def _take_manifest(self, line: Fields) -> None:
        tests = line.get("tests")
        if not isinstance(tests, list) or not all(isinstance(test, str) for test in tests):
            raise ValueError("a manifest must be a list of texts")
        self.manifest = list(tests)
        self._events.emit("manifest", self._job, {"tests": tests, "process": self.process})

    def _take_start(self, line: Fields) -> None:
        nodeid = _text(line, "nodeid")
        self._started[nodeid] = time.monotonic()
        self._events.emit("test", self._job, {"record": "start", "nodeid": nodeid})

    def _take_report(self, line: Fields) -> None:
        if line.get("outcome") == "rerun":
            self._run_again(_text(line, "nodeid"), "report")
            return
        data = report(line)
        nodeid = str(data["nodeid"])
        if "subtest" in data and data["outcome"] == "skipped":
            self._skipped_subtests[nodeid] = self._skipped_subtests.get(nodeid, 0) + 1
        self.poisoned = self.poisoned or "cause" in data
        self._events.emit("test", self._job, data)
        if is_final(data):
            self._settle(nodeid)
        else:
            if data["when"] == "setup":
                self.done.discard(nodeid)
            if data["when"] == "setup" or nodeid in self._started:
                self._started[nodeid] = time.monotonic()

    def _take_rerun(self, line: Fields) -> None:
        self._run_again(_text(line, "nodeid"), "record")

    def _run_again(self, nodeid: str, source: str) -> None:
        """Report a plugin's rerun of a failed test: only its last try is the result.

        The recorder reports a rerun, and often the plugin as well; both count once.
        """
        told = self._reruns.setdefault(nodeid, {"record": 0, "report": 0})
        before = max(told.values())
        told[source] += 1
        if told[source] > before:
            self._events.log("info", f"{nodeid} failed and is run again by a plugin", self._job)
            self._events.emit("test", self._job, {"record": "rerun", "nodeid": nodeid})

    def _take_collect_error(self, line: Fields) -> None:
        data = {"record": "collect_error", "nodeid": _text(line, "nodeid", empty=True)}
        data["longrepr"] = _text(line, "longrepr", empty=True)
        self._events.emit("test", self._job, data)

    def _take_collected(self, line: Fields) -> None:
        self._test_set.take(line)
        for place, why in self._test_set.modules:
            data = {"record": "collect_skip", "nodeid": place or self._job, "longrepr": why}
            self._events.emit("test", self._job, data)
        for level, text in self._test_set.notices():
            self._events.log(level, text, self._job)

    def _take_hooks(self, line: Fields) -> None:
        self._test_set.take_hooks(line)

    def _take_worker(self, line: Fields) -> None:
        self._unproven.add(_text(line, "worker"))
        self._workers.add(_text(line, "worker"))

    def _take_worker_lost(self, line: Fields) -> None:
        """Stop requiring a proof of origins from a lost worker: its test has failed."""
        self._unproven.discard(_text(line, "worker"))

    def _take_origins(self, line: Fields) -> None:
        """Read a process's record of its modules' origins."""
        worker, when = _text(line, "worker", empty=True), _text(line, "when")
        if worker or self._workers == {""}:
            self._test_set.take_origins(line)
        problems = origin_problems(line)
        data: Dict[str, JsonValue] = {"record": "origins", "nodeid": "", "when": when}
        data["worker"] = worker
        for key in ("pytest", "version"):
            data[key] = _text({key: "", **line}, key, empty=True)
        data["problems"] = [dict(problem) for problem in problems]
        self._events.emit("test", self._job, data)
        if when == "end":
            self._unproven.discard(worker)
        if self._refusal is None:
            self._refusal = refusal_of(problems, where=f" (in {worker})" if worker else "")

    def _take_session_finish(self, _line: Fields) -> None:
        self.session_finished = True

    def _settle(self, nodeid: str) -> None:
        self.done.add(nodeid)
        self._started.pop(nodeid, None)


def origin_problems(line: Fields) -> List[Dict[str, str]]:
    """Return the modules of wrong origins that a process reported. Raises ValueError."""
    return [_problem(raw) for raw in _list(line, "problems")[:_PROBLEMS]]


def loaded_modules(line: Fields) -> int:
    """Return the number of the subject's modules that a process reported. Raises ValueError."""
    number = line.get("subject_modules")
    if not isinstance(number, int):
        raise ValueError(f"subject_modules must be a whole number, not {number!r:.80}")
    return number


def refusal_of(
    problems: Sequence[Mapping[str, str]], *, where: str = ""
) -> Optional[RecordsRefusal]:
    """Return a refusal that names the first module of a wrong origin; None if there is none.

    Args:
        problems: From `origin_problems`.
        where: Follows the problem's text, as " (in gw1)".
    """
    if not problems:
        return None
    first = problems[0]
    more = f"; {len(problems) - 1} more modules" if len(problems) > 1 else ""
    return RecordsRefusal(first["reason"], f"{first['what']}{where}{more}. Fix: {first['fix']}")


def _subtest_notice(skipped: Mapping[str, int]) -> str:
    """Return how many subtests of which tests were skipped, as their tests passed without them."""
    more = ", ..." if len(skipped) > _NAMED_TESTS else ""
    named = ", ".join(list(skipped)[:_NAMED_TESTS]) + more
    told = f"skipped subtests: {sum(skipped.values())}, of tests: {len(skipped)} ({named})"
    return f"{told}; as in pytest, a skipped subtest does not skip its test"


def _forged(what: str) -> RecordsRefusal:
    text = f"{what}: something other than the recorder wrote them"
    return RecordsRefusal("forged_records", f"{text}. Fix: let nothing write to $SEATRIAL_RECORDS")


def report(line: Fields) -> Dict[str, JsonValue]:
    """Check a test's report.

    Raises:
        ValueError: a field is missing or of another type than it must be.
    """
    data: Dict[str, JsonValue] = {
        "record": "report",
        "nodeid": _text(line, "nodeid"),
        "when": _one_of(line, "when", _WHEN),
        "outcome": _one_of(line, "outcome", _OUTCOMES),
    }
    for key in ("duration", "start", "stop"):
        data[key] = _number(line, key)
    data["longrepr"] = _longrepr(line.get("longrepr"))
    data["sections"] = _pairs(line.get("sections"))
    data["user_properties"] = _pairs(line.get("user_properties"))
    data["strict_xpass"] = line.get("strict_xpass") is True
    for key in ("wasxfail", "subtest"):
        if key in line:
            data[key] = _text(line, key, empty=True)
    if line.get("cause") == "crashed":
        data.update(cause="crashed", signal=None)
    _add_crash(line.get("crash"), data)
    return data


def _add_crash(raw: object, data: Dict[str, JsonValue]) -> None:
    if isinstance(raw, dict):
        lineno = raw.get("lineno")
        data["crash"] = {
            "path": str(raw.get("path")),
            "lineno": lineno if isinstance(lineno, int) else None,
            "message": str(raw.get("message")),
        }


def _longrepr(raw: object) -> JsonValue:
    if raw is None or isinstance(raw, str):
        return raw
    if isinstance(raw, list) and len(raw) == 3:
        line = raw[1] if isinstance(raw[1], int) else None
        return [str(raw[0]), line, str(raw[2])]
    raise ValueError(f"longrepr cannot be {raw!r:.80}")


def _pairs(raw: object) -> JsonValue:
    found: List[JsonValue] = []
    for pair in raw if isinstance(raw, list) else []:
        if not isinstance(pair, list) or len(pair) != 2:
            raise ValueError(f"a pair is needed, not {pair!r:.80}")
        value = pair[1]
        plain = value if isinstance(value, (str, bool, int, float)) or value is None else str(value)
        found.append([str(pair[0]), plain])
    return found


def _problem(raw: object) -> Dict[str, str]:
    if not isinstance(raw, dict):
        raise ValueError(f"a problem must be an object, not {raw!r:.80}")
    found = {key: _text(raw, key, empty=True) for key in ("module", "file", "what", "fix")}
    return {"reason": _one_of(raw, "reason", _REFUSALS), **found}


def _list(line: Fields, key: str) -> List[object]:
    value = line.get(key)
    if not isinstance(value, list):
        raise ValueError(f"{key} must be a list, not {value!r:.80}")
    return value


def _text(line: Fields, key: str, *, empty: bool = False) -> str:
    value = line.get(key)
    if not isinstance(value, str) or not (value or empty):
        raise ValueError(f"{key} must be a text, not {value!r:.80}")
    return value


def _one_of(line: Fields, key: str, allowed: Tuple[str, ...]) -> str:
    value = line.get(key)
    if not isinstance(value, str) or value not in allowed:
        raise ValueError(f"{key} must be one of {', '.join(allowed)}, not {value!r:.80}")
    return value


def _number(line: Fields, key: str) -> Optional[float]:
    value = line.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError(f"{key} must be a number, not {value!r:.80}")
    return value
