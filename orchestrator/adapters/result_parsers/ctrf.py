"""CTRF 1.x (ctrf.io): JSON from reporters of many test frameworks.

Its five states are mapped to outcomes with the help of ``rawStatus``: a failure in setup or
teardown is an error, an expected failure is ``xfailed``, and a failure beside ``passed`` is one.
The state ``other`` gives a test without a known outcome, which never counts as passed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from orchestrator.adapters.result_parsers.bounded_input import (
    LINE_LIMIT,
    as_count,
    as_line,
    as_list,
    as_map,
    as_number,
    as_seconds,
    as_text,
    head_text,
    parsed_epoch,
    shortened,
)
from orchestrator.adapters.result_parsers.json_stream import EACH, JsonReader, Path
from orchestrator.adapters.result_parsers.text_lines import is_error
from orchestrator.application.ports.result_parsers import Artifact, UnreadableError
from orchestrator.domain.outcome import TestOutcome
from orchestrator.domain.parsed_results import (
    ParsedEnd,
    ParsedEnvironment,
    ParsedItem,
    ParsedProblem,
    ParsedTally,
    ParsedTest,
    ParsedVersion,
    Provenance,
)

_MARK = re.compile(r'"reportFormat"\s*:\s*"CTRF"')
_SHAPE = re.compile(r'^\{\s*"results"\s*:\s*\{\s*"(?:tool|summary)"\s*:\s*\{')
_TESTS: Final[Path] = ("results", "tests", EACH)
_SUMMARY: Final[Path] = ("results", "summary")
_ENVIRONMENT: Final[Path] = ("results", "environment")
_TOOL: Final[Path] = ("results", "tool")
_VERSION: Final[Path] = ("specVersion",)
_STATES: Final = {
    "passed": TestOutcome.PASSED,
    "failed": TestOutcome.FAILED,
    "skipped": TestOutcome.SKIPPED,
    "pending": TestOutcome.SKIPPED,
}
_RAW: Final = {
    "xfailed": TestOutcome.XFAILED,
    "xfail": TestOutcome.XFAILED,
    "xpassed": TestOutcome.XPASSED,
    "xpass": TestOutcome.XPASSED,
    "setup_failed": TestOutcome.ERROR,
    "teardown_failed": TestOutcome.ERROR,
    "error": TestOutcome.ERROR,
    "broken": TestOutcome.ERROR,
}
_FAILED: Final = {"failed", "failure", "timedout", "interrupted"}
_ASSERTION = re.compile(r"(?:E\s{1,8})?assert\s")
_COMPATIBLE: Final = {
    "passed": {TestOutcome.XPASSED, TestOutcome.ERROR},
    "failed": {TestOutcome.ERROR},
    "skipped": {TestOutcome.XFAILED},
    "other": {TestOutcome.ERROR, TestOutcome.XFAILED, TestOutcome.XPASSED},
}
_MOST_TRIES: Final = 100


class Ctrf:
    """Parses CTRF (`Dialect`)."""

    name = "ctrf"
    version = 6
    provenance = Provenance.STRUCTURED

    def match(self, artifact: Artifact) -> float:
        """Return how likely it is the format, by its first bytes: 0 is no, 1 names its producer."""
        head = head_text(artifact)
        if not head.startswith("{"):
            return 0.0
        if _MARK.search(head):
            return 1.0
        return 0.8 if _SHAPE.match(head) else 0.0

    def read(self, artifact: Artifact) -> Iterator[ParsedItem]:
        """Yield the parsed items of the artifact in their order, in bounded memory."""
        reader = JsonReader(artifact, {_TESTS, _SUMMARY, _ENVIRONMENT, _TOOL, _VERSION})
        seen: Counter[str] = Counter()
        states: Counter[str] = Counter()
        summary: Mapping[str, object] = {}
        environment: Mapping[str, object] = {}
        tool = ""
        for path, part in reader.parts():
            if path == _TESTS and reader.is_torn and not as_map(part).get("name"):
                continue
            if path == _TESTS:
                yield from _statements_of_test(as_map(part), tool, seen, states)
            elif path == _SUMMARY:
                summary = as_map(part)
            elif path == _ENVIRONMENT:
                environment = as_map(part)
                yield from _statements_of_environment(environment)
            elif path == _TOOL:
                tool = as_line(as_map(part).get("name"))
                yield from _statements_of_tool(as_map(part))
            else:
                _check_version(part)
        yield from reader.problems
        start = as_number(summary.get("start"))
        yield from parsed_epoch(start / 1000 if start else None)
        if not reader.is_torn:
            yield from _statements_of_summary(summary, seen, states)
            doubts = [*_doubts(environment, summary)]
            yield from (ParsedProblem("error", doubt) for doubt in doubts)
            code, detail = (1, doubts[0]) if doubts else (None, "")
            yield reader.ended(ParsedEnd(code, _duration(summary), detail=detail))


def _check_version(part: object) -> None:
    major = as_text(part).split(".")[0]
    if major not in ("", "0", "1"):
        raise UnreadableError(f"it is CTRF {as_line(part)}; versions 0 and 1 can be read")


def _statements_of_tool(tool: Mapping[str, object]) -> Iterator[ParsedItem]:
    name, version = as_line(tool.get("name")), as_line(tool.get("version"))
    if name and version:
        yield ParsedEnvironment({"packages": {name: version}})


def _statements_of_test(
    test: Mapping[str, object], tool: str, seen: Counter[str], states: Counter[str]
) -> Iterator[ParsedItem]:
    name = as_text(test.get("name"), LINE_LIMIT)
    if not name:
        yield ParsedProblem("error", "a test without a name is left out")
        return
    status = as_text(test.get("status"))
    raw = as_line(test.get("rawStatus")).lower()
    outcome, doubt = _outcome(status, raw), _doubt_of_test(test)
    if outcome is TestOutcome.PASSED and doubt:
        outcome = TestOutcome.FAILED
    nodeid = _nodeid(name, test, tool)
    if outcome is TestOutcome.MISSING:
        yield ParsedProblem("warning", f"{nodeid}: {status or 'no status'} is no outcome")
    states[status] += 1
    seen[outcome.word] += 1
    milliseconds = as_seconds(test.get("duration"))
    message, reason = as_line(test.get("message")) or doubt, ""
    if outcome in (TestOutcome.SKIPPED, TestOutcome.XFAILED):
        message, reason = "", message
    elif outcome is TestOutcome.ERROR:
        reason = raw.removesuffix("_failed") if raw.endswith("_failed") else ""
    yield ParsedTest(
        nodeid,
        outcome,
        # The format requires a duration: writers without one write 0.
        milliseconds / 1000 if milliseconds else None,
        reason,
        message,
        as_text(test.get("trace")) if not reason or outcome is TestOutcome.ERROR else "",
        _earlier(test, outcome),
    )


def _outcome(status: str, raw: str) -> TestOutcome:
    if status == "passed" and raw in _FAILED:
        return TestOutcome.FAILED
    closer = _RAW.get(raw)
    if closer is not None and closer in _COMPATIBLE.get(status, ()):
        return closer
    return _STATES.get(status, TestOutcome.MISSING)


def _doubt_of_test(test: Mapping[str, object]) -> str:
    """Return the fact that contradicts the state `passed`; empty if there is none.

    A retried test may have the failure text of an earlier try, which is no contradiction.
    """
    step = next(_failed_steps(test), "")
    if step:
        return f"its step failed: {step}"
    message = as_line(test.get("message"))
    is_failure = is_error(message) or _ASSERTION.match(message)
    if (as_line(test.get("trace")) or is_failure) and not _earlier(test, TestOutcome.PASSED):
        return message or as_line(test.get("trace"))
    return ""


def _failed_steps(test: Mapping[str, object]) -> Iterator[str]:
    for step in map(as_map, as_list(test.get("steps"))):
        status, raw = as_text(step.get("status")).lower(), as_line(step.get("rawStatus")).lower()
        outcome = _RAW.get(status, TestOutcome.PASSED)
        is_bad = status in _FAILED or outcome is TestOutcome.ERROR
        if is_bad or _outcome(status, raw) in (TestOutcome.FAILED, TestOutcome.ERROR):
            yield as_line(step.get("name")) or status
        yield from _failed_steps(step)


def _nodeid(name: str, test: Mapping[str, object], tool: str) -> str:
    """Return the test's id; a test without file and suite is put below the tool that ran it."""
    suite = test.get("suite")
    groups = [as_line(part) for part in as_list(suite)] or [as_line(suite)]
    file = as_line(test.get("filePath"))
    first, separator, _ = name.partition("::")
    if separator and (first.endswith(".py") or first in (file, groups[0])):
        return name
    parts = [part for part in (file, *groups) if part] or [tool]
    path = [part for part in dict.fromkeys(parts) if part]
    return shortened("::".join([*path, name]), LINE_LIMIT)


def _earlier(test: Mapping[str, object], outcome: TestOutcome) -> tuple[TestOutcome, ...]:
    """Return the outcomes of earlier tries: listed, only counted, or implied by ``flaky``."""
    tries = [as_map(attempt) for attempt in as_list(test.get("retryAttempts"))][:_MOST_TRIES]
    if tries:
        return tuple(
            _outcome(as_text(t.get("status")), as_line(t.get("rawStatus")).lower()) for t in tries
        )
    retries = min(as_count(test.get("retries")) or 0, _MOST_TRIES)
    if not retries and test.get("flaky") is True and outcome is TestOutcome.PASSED:
        retries = 1
    return (TestOutcome.FAILED,) * retries


def _statements_of_environment(environment: Mapping[str, object]) -> Iterator[ParsedItem]:
    words = {key: as_line(environment.get(key)) for key in ("osPlatform", "osRelease")}
    machine = {
        key: word
        for key, word in (("os", words["osPlatform"]), ("kernel", words["osRelease"]))
        if word
    }
    if machine:
        yield ParsedEnvironment({"machine": machine})
    name, version = as_line(environment.get("appName")), as_line(environment.get("appVersion"))
    if name and version:
        yield ParsedVersion(name, version)


def _doubts(environment: Mapping[str, object], summary: Mapping[str, object]) -> Iterator[str]:
    if str(environment.get("healthy", True)).lower() == "false":
        yield "it says that its environment was not healthy"
    for state in ("failed", "other"):
        if summary.get(state) is not None and as_count(summary[state]) is None:
            yield f"its summary has no number of {state} tests"


def _statements_of_summary(
    summary: Mapping[str, object], seen: Counter[str], states: Counter[str]
) -> Iterator[ParsedItem]:
    total = as_count(summary.get("tests"))
    if total is not None:
        stated = {state: as_count(summary.get(state)) for state in (*_STATES, "other")}
        wrong = {s: n for s, n in stated.items() if n is not None and n != states[s]}
        for state, number in wrong.items():
            words = f"its summary says {number} {state}, but it contains {states[state]}"
            yield ParsedProblem("error", words)
        # If its states agree, the sum is given in Seatrial's outcomes, which are finer.
        counts = dict(seen) if not wrong else _coarse(stated)
        yield ParsedTally("footer", total, counts, _duration(summary))
    else:
        yield ParsedProblem("warning", "it has no summary")


def _coarse(stated: Mapping[str, int | None]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for state, outcome in _STATES.items():
        counts[outcome.word] += stated[state] or 0
    return dict(counts)


def _duration(summary: Mapping[str, object]) -> float | None:
    told = as_seconds(summary.get("duration"))
    if told is not None:
        return told / 1000
    start, stop = as_number(summary.get("start")), as_number(summary.get("stop"))
    return as_seconds((stop - start) / 1000) if start and stop else None
