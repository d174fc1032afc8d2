"""The dialect ``reportlog``: the JSON lines of pytest-reportlog.

A test is yielded when its teardown is read, so that only running tests are kept. Its outcome is the
worst of its phases, as in the agent's records. A failed subtest fails its test; other subtests do
not change it. A module that could not be collected, or was skipped as a whole, counts as one test,
as pytest counts it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice

from orchestrator.adapters.result_parsers.bounded_input import as_text, shortened
from orchestrator.adapters.result_parsers.log_notices import LogNotices
from orchestrator.application.ports.result_parsers import Artifact, UnreadableError
from orchestrator.domain.event_facts import TestFact, phase_fact
from orchestrator.domain.outcome import TestOutcome
from orchestrator.domain.parsed_results import (
    ParsedEnd,
    ParsedEnvironment,
    ParsedItem,
    ParsedProblem,
    ParsedSubtests,
    ParsedTest,
    Provenance,
)

OPEN_LIMIT = 4_096
BROKEN_LIMIT = 10_000
_SURE = 0.98
_LIKELY = 0.9
_CRASHED = "crashed while running"
_BAD = (TestOutcome.FAILED, TestOutcome.ERROR)
_KNOWN = ("passed", "failed", "skipped")
_AGAIN = ("rerun", "retried")
"""Outcomes of a try that another one follows: of pytest-rerunfailures, which reports the setup and
teardown of each, and of pytest-retry, which reports only the calls.
"""
_NO_TESTS = 5
_UNKNOWN_LIMIT = 20


class Reportlog:
    """Reads the file of pytest's option ``--report-log``."""

    name = "reportlog"
    version = 4
    provenance = Provenance.STRUCTURED

    def match(self, artifact: Artifact) -> float:
        """Return the confidence: every record has a distinctive key."""
        head = artifact.head.removeprefix(b"\xef\xbb\xbf").lstrip()
        if not head.startswith(b"{") or b'"$report_type"' not in head:
            return 0.0
        first = head.split(b"\n", 1)[0]
        return _SURE if b'"$report_type"' in first and _is_record(first) else _LIKELY

    def read(self, artifact: Artifact) -> Iterator[ParsedItem]:
        """Yield the results of the records. Raises UnreadableError if there are none."""
        spoilt, log = UnreadableLines(), _Log()
        number = 0
        for record in records(artifact, spoilt):
            number += 1
            yield from log.see(record)
        if not number:
            raise UnreadableError("there is no record of pytest-reportlog in it")
        is_over = log.is_over
        yield from log.finish()
        yield from spoilt.statements(is_over=is_over)


@dataclass(slots=True)
class _StartedTest:
    """A test that has begun."""

    fact: TestFact | None = None
    is_set_up: bool = False
    """Whether the setup passed and the call has not been reported yet."""
    is_again: bool = False
    """Whether another try follows this one."""
    is_unknown: bool = False
    """Whether one of its reports has an outcome that is not known."""
    earlier: list[TestOutcome] = field(default_factory=list)


class _Log:
    """The state after the records read so far."""

    def __init__(self) -> None:
        self._open: dict[str, _StartedTest] = {}
        self._broken: set[str] = set()
        self._remarks = LogNotices(suite=True)
        self._exit_code: int | None = None
        self._began = 0.0
        self._ended = 0.0
        self._has_tests = False
        self._unknown: set[str] = set()
        """Outcomes that are not known."""
        self._subtests = 0
        """Number of reports that did not fail, of subtests and of tests whose subtests failed."""

    @property
    def is_over(self) -> bool:
        """Return whether the session has its end."""
        return self._exit_code is not None

    def see(self, record: Mapping[str, object]) -> Iterator[ParsedItem]:
        """Read the next record."""
        if record.get("outcome") == "passed" and record.get("longrepr"):
            record = {**record, "outcome": "failed"}  # it has a failure's text
        match record.get("$report_type"):
            case "CollectReport":
                yield from self._collected(record)
            case "WarningMessage":
                yield from self._remarks.see(str(record.get("message", ""))[:2_000])
            case "SessionStart":
                yield from self._started(record)
            case "SessionFinish":
                code = record.get("exitstatus")
                self._exit_code = code if isinstance(code, int) and 0 <= code < 256 else 1
            case _ if "when" in record:  # of a test, or of a subtest under any name
                yield from self._test(record)

    def finish(self) -> Iterator[ParsedItem]:
        """Yield the unfinished tests and the end of the session."""
        yield from self._abandoned()
        if self._subtests:
            yield ParsedSubtests(self._subtests)
        for word in sorted(self._unknown):
            yield ParsedProblem("error", f"{word} is no outcome that is known")
        if self._exit_code == _NO_TESTS and self._has_tests:
            yield ParsedProblem("error", "its exit code says that no test ran, and it has tests")
            self._exit_code = 1
        if self._exit_code is None:
            yield ParsedProblem("warning", "the log stops before the session was over")
            return
        took = self._ended - self._began if self._ended > self._began else None
        yield ParsedEnd(exit_code=self._exit_code, duration_s=round(took, 6) if took else None)

    def _started(self, record: Mapping[str, object]) -> Iterator[ParsedItem]:
        yield from self._abandoned()
        self._exit_code = None
        version = record.get("pytest_version")
        if isinstance(version, str) and version:
            yield ParsedEnvironment({"packages": {"pytest": version[:100]}})

    def _test(self, record: Mapping[str, object]) -> Iterator[ParsedItem]:
        nodeid = record.get("nodeid")
        if not isinstance(nodeid, str) or not nodeid:
            return
        self._clock(record)
        when, outcome = record.get("when"), record.get("outcome")
        if when == "???":
            yield from self._lost(nodeid, record)
            return
        if nodeid not in self._open and len(self._open) >= OPEN_LIMIT:
            yield from self._abandoned(1)
        test = self._open.setdefault(nodeid, _StartedTest())
        self._has_tests = True
        test.is_unknown = test.is_unknown or not self._knows(outcome)
        is_subtest = record.get("$report_type") != "TestReport" or "_subtest.context" in record
        if is_subtest:
            if outcome == "failed":
                _add(test, record, nodeid, without_duration=True)
            self._subtests += outcome in ("passed", "skipped")
            return
        self._phase(test, record, nodeid)
        if when == "teardown":
            yield from self._over(nodeid, test)

    def _phase(self, test: _StartedTest, record: Mapping[str, object], nodeid: str) -> None:
        when, outcome = record.get("when"), record.get("outcome")
        if outcome in _AGAIN:
            test.is_again = True
            test.earlier.append(TestOutcome.FAILED if when == "call" else TestOutcome.ERROR)
        elif outcome in _KNOWN:
            test.is_again = test.is_again and when != "call"
            # unittest's own report passes although a subtest failed, and counts beside it
            has_failed = test.fact is not None and test.fact.outcome in _BAD
            self._subtests += has_failed and (when, outcome) == ("call", "passed")
            _add(test, record, nodeid)
        test.is_set_up = (
            outcome == "passed" if when == "setup" else test.is_set_up and when != "call"
        )

    def _knows(self, outcome: object) -> bool:
        """Return whether the outcome is known, and note it if it is not."""
        is_known = outcome in (*_KNOWN, *_AGAIN)
        if not is_known and len(self._unknown) < _UNKNOWN_LIMIT:
            self._unknown.add(repr(outcome)[:80])
        return is_known

    def _over(self, nodeid: str, test: _StartedTest) -> Iterator[ParsedItem]:
        if test.is_again:
            test.fact, test.is_again = None, False
            return
        del self._open[nodeid]
        if test.is_unknown and (test.fact is None or test.fact.outcome not in _BAD):
            test.fact = None
        if test.is_set_up and test.fact is not None and test.fact.outcome not in _BAD:
            test.fact = None  # as with --setup-only: nothing says that it was called
        yield _parsed_test(nodeid, test)

    def _lost(self, nodeid: str, record: Mapping[str, object]) -> Iterator[ParsedItem]:
        """Yield the test of a worker that crashed, as xdist reports it."""
        test = self._open.pop(nodeid, _StartedTest())
        text, _ = longrepr_of(record.get("longrepr"))
        said = text if isinstance(text, str) else ""
        yield ParsedTest(
            nodeid,
            TestOutcome.FAILED,
            reason="crashed" if _CRASHED in said else "",
            message=said.split("\n", 1)[0][:500],
            text=said,
            earlier=tuple(test.earlier),
        )

    def _collected(self, record: Mapping[str, object]) -> Iterator[ParsedItem]:
        nodeid, outcome = record.get("nodeid"), record.get("outcome")
        is_bad = self._knows(outcome) and outcome in ("failed", "skipped")
        if not isinstance(nodeid, str) or not nodeid or not is_bad:
            return
        if nodeid in self._broken:
            return
        if len(self._broken) < BROKEN_LIMIT:
            self._broken.add(nodeid)
        text, crash = longrepr_of(record.get("longrepr"))
        if outcome == "skipped":
            phase = {"when": "setup", "outcome": "skipped", "longrepr": text}
            yield ParsedTest(nodeid, TestOutcome.SKIPPED, reason=phase_fact("", phase).reason)
            return
        said = text if isinstance(text, str) else ""
        message = crash.get("message") if crash else None
        last = next((line for line in reversed(said.splitlines()) if line.strip()), "")
        yield ParsedTest(
            nodeid,
            TestOutcome.ERROR,
            reason="collection",
            message=(message or last).split("\n", 1)[0].removeprefix("E").strip()[:500],
            text=said,
        )

    def _abandoned(self, number: int | None = None) -> Iterator[ParsedItem]:
        """Yield the tests that began and have no end."""
        for nodeid in list(islice(self._open, number)):
            test = self._open.pop(nodeid)
            known = test.fact.outcome if test.fact is not None else TestOutcome.MISSING
            if known not in _BAD:
                test.fact = None
            yield _parsed_test(nodeid, test)

    def _clock(self, record: Mapping[str, object]) -> None:
        start, stop = record.get("start"), record.get("stop")
        if isinstance(start, float) and start > 0 and (not self._began or start < self._began):
            self._began = start
        if isinstance(stop, float) and 0 < stop < 1e11:
            self._ended = max(self._ended, stop)


def _add(
    test: _StartedTest, record: Mapping[str, object], nodeid: str, *, without_duration: bool = False
) -> None:
    """Add one phase. Only the first of several failures is kept: the others follow from it."""
    text, crash = longrepr_of(record.get("longrepr"))
    phase: dict[str, object] = {
        "nodeid": nodeid,
        "when": record.get("when"),
        "outcome": record.get("outcome"),
        "duration": 0.0 if without_duration else record.get("duration"),
        "longrepr": text,
    }
    if crash:
        phase["crash"] = crash
    if "wasxfail" in record:
        phase["wasxfail"] = record["wasxfail"]
    fact = phase_fact("", phase)
    test.fact = fact if test.fact is None else test.fact.plus(fact)


def _parsed_test(nodeid: str, test: _StartedTest) -> ParsedTest:
    fact, earlier = test.fact, tuple(test.earlier)
    if fact is None:
        return ParsedTest(nodeid, TestOutcome.MISSING, earlier=earlier)
    return ParsedTest(
        nodeid,
        fact.outcome,
        duration_s=fact.duration_s,
        reason=fact.reason,
        message=fact.message,
        text=fact.text,
        earlier=earlier,
    )


def _is_record(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


RECORD_LIMIT = 16 * 1024 * 1024
"""Maximum bytes of a record; a longer one is left out."""
ENTRIES_LIMIT = 200
"""Maximum number of frames of a traceback."""
_CHAIN_LIMIT = 20


@dataclass(slots=True)
class UnreadableLines:
    """Counts of unreadable lines."""

    broken: int = 0
    large: int = 0
    is_torn: bool = False

    def statements(self, *, is_over: bool) -> tuple[ParsedProblem, ...]:
        """Return the counts as problems, after the last line was read.

        Args:
            is_over: Whether the readable records have an end, so that a torn one contradicts it.
        """
        problems = []
        if self.is_torn:
            level = "error" if is_over else "warning"
            problems.append(ParsedProblem(level, "the last record is torn"))
        if self.broken:
            problems.append(ParsedProblem("error", f"lines that are no records: {self.broken}"))
        if self.large:
            words = f"records larger than {RECORD_LIMIT} bytes left out: {self.large}"
            problems.append(ParsedProblem("error", words))
        return tuple(problems)


def records(artifact: Artifact, spoilt: UnreadableLines) -> Iterator[Mapping[str, object]]:
    """Yield every readable record; the others are counted in `spoilt`."""
    with artifact.path.open("rb") as file:
        while line := file.readline(RECORD_LIMIT):
            if not line.endswith(b"\n") and len(line) >= RECORD_LIMIT:
                spoilt.large += 1
                while (rest := file.readline(RECORD_LIMIT)) and not rest.endswith(b"\n"):
                    pass
                continue
            record = _record(line)
            if record is not None:
                yield record
            elif line.strip():
                spoilt.is_torn = not line.endswith(b"\n")
                spoilt.broken += not spoilt.is_torn


def longrepr_of(value: object) -> tuple[str | list[object], Mapping[str, str] | None]:
    """Return a failure's text or a skip's ``[path, line, reason]``, and the crash or None.

    The crash is a mapping with the `message` only.
    """
    if isinstance(value, list) and len(value) == 3:
        return [as_text(value[0]), value[1], as_text(value[2])], None
    if not isinstance(value, dict):
        return as_text(value), None
    crash = value.get("reprcrash")
    message = as_text(crash.get("message")) if isinstance(crash, dict) else ""
    return shortened(_tracebacks(value)), {"message": message} if message else None


def _record(line: bytes) -> Mapping[str, object] | None:
    text = line.decode("utf-8-sig", "replace").strip()
    if not text:
        return None
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) and "$report_type" in record else None


def _tracebacks(longrepr: Mapping[str, object]) -> str:
    chain = longrepr.get("chain")
    links = chain[:_CHAIN_LIMIT] if isinstance(chain, list) else []
    parts: list[str] = []
    for link in links:
        if isinstance(link, list) and len(link) == 3:
            parts += [_traceback(link[0]), as_text(link[2])]
    if not any(parts):
        parts = [_traceback(longrepr.get("reprtraceback"))]
    return "\n\n".join(part for part in parts if part)


def _traceback(value: object) -> str:
    entries = value.get("reprentries") if isinstance(value, dict) else None
    if not isinstance(entries, list):
        return ""
    shown = entries
    if len(entries) > ENTRIES_LIMIT:
        shown = [*entries[: ENTRIES_LIMIT // 2], *entries[-ENTRIES_LIMIT // 2 :]]
    return "\n".join(_entry(entry) for entry in shown)


def _entry(entry: object) -> str:
    data = entry.get("data") if isinstance(entry, dict) else None
    if not isinstance(data, dict):
        return ""
    said = data.get("lines")
    lines = [as_text(line) for line in said] if isinstance(said, list) else []
    place = data.get("reprfileloc")
    if isinstance(place, dict):
        where = f"{as_text(place.get('path'))}:{place.get('lineno')}"
        lines.append(f"{where}: {as_text(place.get('message'))}")
    return "\n".join(lines)
