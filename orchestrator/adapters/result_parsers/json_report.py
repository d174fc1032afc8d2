"""The format of pytest-json-report."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from orchestrator.adapters.result_parsers.bounded_input import (
    LINE_LIMIT,
    as_count,
    as_line,
    as_map,
    as_number,
    as_seconds,
    as_text,
    head_text,
    last_error,
    parsed_epoch,
    skip_reason,
)
from orchestrator.adapters.result_parsers.json_stream import EACH, JsonReader, Path
from orchestrator.application.ports.result_parsers import Artifact
from orchestrator.domain.outcome import TestOutcome
from orchestrator.domain.parsed_results import (
    ParsedEnd,
    ParsedEnvironment,
    ParsedItem,
    ParsedProblem,
    ParsedTally,
    ParsedTest,
    Provenance,
)

_SHAPE = re.compile(r'^\{\s*"created"\s*:\s*[\d.eE+]+\s*,\s*"duration"\s*:[^"]*"exitcode"\s*:')
_TESTS: Final[Path] = ("tests", EACH)
_COLLECTORS: Final[Path] = ("collectors", EACH)
_SUMMARY: Final[Path] = ("summary",)
_ENVIRONMENT: Final[Path] = ("environment",)
_DURATION: Final[Path] = ("duration",)
_EXIT: Final[Path] = ("exitcode",)
_CREATED: Final[Path] = ("created",)
_PHASES: Final = ("setup", "call", "teardown")
_RERUN: Final = "rerun"
"""pytest-rerunfailures: an earlier try failed; the phases are those of the last try."""
_OUTCOMES: Final = {
    **{o.word: o for o in TestOutcome if o not in (TestOutcome.MISSING, TestOutcome.NOT_RUN)},
    "subtests passed": TestOutcome.PASSED,
    "subtests failed": TestOutcome.FAILED,
    "subtests skipped": TestOutcome.SKIPPED,
}


class PytestJsonReport:
    """Parses pytest-json-report (`Dialect`)."""

    name = "pytest-json-report"
    version = 4
    provenance = Provenance.STRUCTURED

    def match(self, artifact: Artifact) -> float:
        """Return how likely it is the format, by its first bytes: 0 is no, 1 names its producer."""
        return 0.95 if _SHAPE.match(head_text(artifact)[:2000]) else 0.0

    def read(self, artifact: Artifact) -> Iterator[ParsedItem]:
        """Yield the parsed items of the artifact in their order, in bounded memory."""
        wanted = {_TESTS, _COLLECTORS, _SUMMARY, _ENVIRONMENT, _DURATION, _EXIT, _CREATED}
        reader = JsonReader(artifact, wanted)
        reading = _JsonReading()
        for path, part in reader.parts():
            if reader.is_torn and EACH in path and not as_map(part).get("nodeid"):
                continue
            if path == _TESTS:
                yield from reading.test(as_map(part))
            elif path == _COLLECTORS:
                yield from reading.collector(as_map(part))
            elif path == _ENVIRONMENT:
                yield from _statements_of_environment(as_map(part))
            elif path == _CREATED:
                yield from parsed_epoch(as_number(part))
            else:
                reading.facts[path[0]] = part
        yield from reader.problems
        if not reader.is_torn:
            yield from reading.sums()
            yield reader.ended(reading.end())


@dataclass(slots=True)
class _JsonReading:
    """The state of reading one document."""

    facts: dict[str, object] = field(default_factory=dict)
    """The document's own duration, exit code and summary."""
    _stated: Counter[str] = field(default_factory=Counter)
    _found: Counter[str] = field(default_factory=Counter)
    _not_collected: Counter[str] = field(default_factory=Counter)

    def collector(self, collector: Mapping[str, object]) -> Iterator[ParsedItem]:
        """Yield a file or class that could not be collected or was skipped."""
        nodeid = as_text(collector.get("nodeid"), LINE_LIMIT)
        text = as_text(collector.get("longrepr"))
        state = as_text(collector.get("outcome"))
        if state == "failed":
            message = last_error(text)
            yield ParsedTest(nodeid or "?", TestOutcome.ERROR, None, "collection", message, text)
            self._not_collected["error"] += 1
        elif state == "skipped" and nodeid:
            yield ParsedTest(nodeid, TestOutcome.SKIPPED, None, skip_reason(text))
            self._not_collected["skipped"] += 1

    def test(self, test: Mapping[str, object]) -> Iterator[ParsedItem]:
        """Read a test with its phases."""
        nodeid = as_text(test.get("nodeid"), LINE_LIMIT)
        if not nodeid:
            yield ParsedProblem("error", "a test without a node id is left out")
            return
        phases = {name: as_map(test.get(name)) for name in _PHASES}
        stated = as_text(test.get("outcome"))
        outcome = _outcome(stated, phases)
        if outcome is TestOutcome.MISSING:
            yield ParsedProblem("warning", f"{nodeid}: {stated or 'nothing'} is no outcome")
        self._stated[stated] += 1
        self._found[outcome.word] += 1
        reason, message, text = _words(outcome, phases)
        durations = [as_seconds(phase.get("duration")) for phase in phases.values()]
        known = [duration for duration in durations if duration is not None]
        duration = sum(known) if known else None
        earlier = (TestOutcome.FAILED,) if stated == _RERUN else ()
        yield ParsedTest(nodeid, outcome, duration, reason, message, text, earlier)

    def end(self) -> ParsedEnd:
        """Return the end of the session."""
        code = as_count(self.facts.get("exitcode"))
        return ParsedEnd(code if code is not None and code < 2**31 else None, self._duration())

    def _duration(self) -> float | None:
        return as_seconds(self.facts.get("duration"))

    def sums(self) -> Iterator[ParsedItem]:
        """Yield the sums of the document."""
        summary = as_map(self.facts.get("summary"))
        collected = as_count(summary.get("collected"))
        if collected is not None:
            deselected = as_count(summary.get("deselected")) or 0
            aside = self._not_collected.total()
            yield ParsedTally("collected", max(collected - deselected, 0) + aside)
        yield from self._tally(summary, self._duration())

    def _tally(self, summary: Mapping[str, object], duration: float | None) -> Iterator[ParsedItem]:
        total = as_count(summary.get("total"))
        if total is None:
            yield ParsedProblem("warning", "it has no summary")
            return
        stated = {w: as_count(n) for w, n in summary.items() if w in _OUTCOMES}
        wrong = [w for w, n in stated.items() if n is not None and n != self._stated[w]]
        for word in wrong:
            yield ParsedProblem(
                "error",
                f"its summary says {stated[word]} {word}, but it contains {self._stated[word]}",
            )
        # An error of the report may also have failed before. If its sum agrees with its tests, the
        # sum is given in Seatrial's outcomes. The report's sum omits collection errors.
        counts = Counter({_OUTCOMES[w].word: n for w, n in stated.items() if n})
        counts = counts if wrong else self._found + self._not_collected
        yield ParsedTally("footer", total + self._not_collected.total(), dict(counts), duration)


def _outcome(stated: str, phases: Mapping[str, Mapping[str, object]]) -> TestOutcome:
    """Return the worst outcome of the test and its phases."""
    states = {as_text(phase.get("outcome")) for phase in phases.values() if phase}
    known = {**_OUTCOMES, _RERUN: _last_try(states)}
    own = known.get(stated, TestOutcome.MISSING)
    if own is TestOutcome.SKIPPED and "passed" in states and "skipped" not in states:
        own = TestOutcome.PASSED  # a subtest was skipped, not its test
    outcomes = [own]
    for name, phase in phases.items():
        if _has_failed(phase):
            outcomes.append(TestOutcome.FAILED if name == "call" else TestOutcome.ERROR)
    return max(outcomes)


_WORKER = re.compile(r"\A\[gw\d{1,5}\] [^\n]{1,500}\n?\Z")
"""All that a phase which passed says in a process of pytest-xdist."""


def _has_failed(phase: Mapping[str, object]) -> bool:
    """Return whether a phase failed, by its outcome or by a failure text."""
    text = phase.get("longrepr")
    if isinstance(text, str):
        text = _WORKER.sub("", text)
    has_text = bool(text or phase.get("crash"))
    return phase.get("outcome") == "failed" or (phase.get("outcome") == "passed" and has_text)


def _last_try(states: Collection[str]) -> TestOutcome:
    if "skipped" in states:
        return TestOutcome.SKIPPED
    return TestOutcome.PASSED if states == {"passed"} else TestOutcome.MISSING


def _words(
    outcome: TestOutcome, phases: Mapping[str, Mapping[str, object]]
) -> tuple[str, str, str]:
    """Return reason, message and text."""
    if outcome in (TestOutcome.SKIPPED, TestOutcome.XFAILED):
        phase = next((p for p in phases.values() if p.get("outcome") == "skipped"), {})
        return skip_reason(as_text(phase.get("longrepr"))), "", ""
    if outcome not in (TestOutcome.FAILED, TestOutcome.ERROR):
        return "", "", ""
    for name, phase in phases.items():
        if not _has_failed(phase) or (outcome is TestOutcome.FAILED and name != "call"):
            continue
        text = as_text(phase.get("longrepr"))
        message = as_line(as_map(phase.get("crash")).get("message")) or last_error(text)
        return name if outcome is TestOutcome.ERROR else "", message, text
    return "", "", ""


def _statements_of_environment(environment: Mapping[str, object]) -> Iterator[ParsedItem]:
    """Yield the environment that pytest-metadata adds."""
    facts: dict[str, object] = {}
    if python := as_line(environment.get("Python")):
        facts["python"] = python
    packages = {
        as_line(name): as_line(version)
        for group in ("Packages", "Plugins")
        for name, version in as_map(environment.get(group)).items()
        if as_line(name) and as_line(version)
    }
    if packages:
        facts["packages"] = packages
    if platform := as_line(environment.get("Platform")):
        facts["machine"] = {"os": platform}
    if facts:
        yield ParsedEnvironment(facts)
