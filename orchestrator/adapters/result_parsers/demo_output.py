"""Demo output with headings only: ``Demo N: title``, and at the end ``All demos completed!``.

The output has no results of parts. A part is inferred to have passed if the next heading or the
closing line follows without an error line in between; every such check is marked as inferred.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from orchestrator.adapters.result_parsers.free_text import FreeText
from orchestrator.adapters.result_parsers.reported_failure import MARK, RESULTS, SelfReportReader
from orchestrator.adapters.result_parsers.text_lines import (
    ErrorLines,
    Notes,
    failed_end,
    head_lines,
    is_document,
    is_torn,
    last_text,
    tail_lines,
    text_lines,
)
from orchestrator.application.ports.result_parsers import Artifact
from orchestrator.domain.parsed_results import (
    ParsedCheck,
    ParsedEnd,
    ParsedItem,
    ParsedJob,
    ParsedProblem,
    Provenance,
)

MARKS_KEPT = 10_000
"""Maximum number of different marks of one artifact."""

_REASON = re.compile(r"^(?P<name>[^\s:(][^:(]{0,199}?)\s?(?::\s|\s-\s|\()(?P<reason>.{1,400})$")
_OUTCOMES = {"pass": "passed", "ok": "passed", "skip": "skipped"}
_RANK = {"passed": 0, "skipped": 1, "failed": 2}


@dataclass(slots=True)
class _SeenMarks:
    """The marks read so far by name, and the job's own sum."""

    outcomes: dict[str, str] = field(default_factory=dict)
    summed: tuple[int, int] | None = None
    """Number of passed marks, and of all."""
    dropped: bool = False

    def add(self, check: ParsedCheck) -> Iterator[ParsedItem]:
        known = self.outcomes.get(check.name)
        if known is None and len(self.outcomes) >= MARKS_KEPT:
            self.dropped = True
            return
        if known is not None and known != check.outcome:
            message = f"{check.name} is marked {known} and {check.outcome}: the worse counts"
            yield ParsedProblem("error", message)
        if known is None or _RANK[check.outcome] > _RANK[known]:
            self.outcomes[check.name] = check.outcome
            yield check

    def contradiction(self) -> str:
        """Return how the marks contradict the sum; empty if they agree."""
        if self.summed is None or self.dropped:
            return ""
        counts = Counter(self.outcomes.values())
        passed, total = self.summed
        marked = len(self.outcomes)
        totals = (marked, marked - counts["skipped"])
        if passed == counts["passed"] and total in totals:
            return ""
        return (
            f"its Results line says {passed} of {total} passed, "
            f"its marks say {counts['passed']} of {marked}"
        )


class DemoMarks:
    """Parses demo output with a mark per part (`Dialect`)."""

    name = "demo-marks"
    version = 4
    provenance = Provenance.PARSED_TEXT

    def match(self, artifact: Artifact) -> float:
        """Return high confidence for marks with their sum, low confidence for only one of them."""
        if is_document(artifact):
            return 0.0
        lines = [*head_lines(artifact), *tail_lines(artifact)]
        has_marks = any(MARK.match(line) for line in lines)
        has_sum = any(RESULTS.match(line) for line in lines)
        return 0.9 if has_marks and has_sum else 0.6 if has_marks else 0.45 if has_sum else 0.0

    def read(self, artifact: Artifact) -> Iterator[ParsedItem]:
        """Yield the marked checks, the metrics and remarks in order, and the end of the demo."""
        notes, narration, marks, troubles = Notes(), FreeText(), _SeenMarks(), ErrorLines()
        said = SelfReportReader()
        yield ParsedJob(kind="demo")
        for line in text_lines(artifact, notes=notes):
            troubles.see(line)
            said.take(line)
            if check := _mark(line):
                yield from marks.add(check)
            elif summed := RESULTS.match(line):
                marks.summed = int(summed["passed"]), int(summed["total"])
            else:
                yield from narration.see(line)
        yield from notes.statements()
        end = last_text(artifact)
        failure = said.failure(end) or failed_end(end)
        yield from _mark_ending(marks, troubles, failure, torn=is_torn(artifact))


def _mark(line: str) -> ParsedCheck | None:
    found = MARK.match(line)
    if not found:
        return None
    said = found["said"].strip()
    outcome = _OUTCOMES.get(found["word"].lower().removesuffix("ed").replace("skipp", "skip"))
    explained = _REASON.match(said)
    if not explained:
        return ParsedCheck(said[:200], outcome or "failed")
    reason = explained["reason"].strip().removesuffix(")") if "(" in said else explained["reason"]
    return ParsedCheck(explained["name"].strip(), outcome or "failed", reason=reason.strip())


def _mark_ending(
    marks: _SeenMarks, troubles: ErrorLines, failure: str, *, torn: bool
) -> Iterator[ParsedItem]:
    """Yield the job's end by its Results line, and a problem for each contradiction to the marks.

    `failure` is the line in which the job reports its own failure. Without a Results line the exit
    status is unknown: a problem is yielded instead of an end.
    """
    if marks.dropped:
        yield ParsedProblem(
            "error", f"more than {MARKS_KEPT} different marks: the rest is left out"
        )
    if marks.summed is None:
        yield ParsedProblem("error", troubles.cut_off("it never sums its marks up", torn=torn))
        return
    contradiction = marks.contradiction() or troubles.step
    if contradiction:
        yield ParsedProblem("error", contradiction)
    passed, total = marks.summed
    skipped = sum(outcome == "skipped" for outcome in marks.outcomes.values())
    short = passed + skipped < total
    has_failed = short or "failed" in marks.outcomes.values()
    if failure and not has_failed and not contradiction:
        contradiction = f"it says: {failure}"
        yield ParsedProblem("error", contradiction)
    yield ParsedEnd(1 if has_failed or contradiction else 0, detail=contradiction)


HEADINGS_KEPT = 10_000

_HEADING = re.compile(
    r"^[\s=#*-]{0,20}(?P<word>Demo|Example|Scenario) (?P<number>\d{1,4})(?:\s?(?:/|of)\s?"
    r"(?P<total>\d{1,4}))?\s?[:.–-]\s(?P<title>\S.{0,200}?)[\s=#*-]{0,20}$",
    re.IGNORECASE,
)
_HAPPY = re.compile(
    r"^\W{0,8}All (?:(?P<total>\d{1,4}) )?(?:demo(?:s|nstrations)|examples|scenarios)\b.{0,40}?"
    r"\b(?:completed?|finished|passed|done|succeeded|ran)\b(?P<rest>.{0,80})$",
    re.IGNORECASE,
)
_UNHAPPY = re.compile(r"\b(?:but|except|fail\w*|errors?)\b", re.IGNORECASE)


@dataclass(slots=True)
class _Parts:
    """The parts that headings announced; the last one is still running."""

    numbers: set[int] = field(default_factory=set)
    current: str = ""
    total: int | None = None
    ended: bool = False

    def begin(self, match: re.Match[str]) -> None:
        self.numbers.add(int(match["number"]))
        self.current = f"{match['word'].title()} {int(match['number'])}: {match['title'].strip()}"
        if match["total"]:
            self.total = int(match["total"])

    def conclude(self, troubles: ErrorLines) -> Iterator[ParsedItem]:
        """End the current part, and yield its inferred result: failed if an error line followed."""
        if self.current:
            outcome = "failed" if troubles.last else "passed"
            yield ParsedCheck(self.current, outcome, reason=troubles.last, inferred=True)
        self.current, troubles.last = "", ""

    def gap(self) -> str:
        """Return a message with the part numbers that no heading has; empty if none is missing."""
        last = max([*self.numbers, self.total or 0], default=0)
        missing = [str(n) for n in range(1, last + 1) if n not in self.numbers]
        return f"no heading has the number {', '.join(missing[:20])}" if missing else ""


class DemoHeadings:
    """Parses demo output with headings only (`Dialect`)."""

    name = "demo-headings"
    version = 4
    provenance = Provenance.PARSED_TEXT

    def match(self, artifact: Artifact) -> float:
        """Return the confidence; a closing line and several headings raise it."""
        if is_document(artifact):
            return 0.0
        headings = sum(bool(_HEADING.match(line)) for line in head_lines(artifact))
        if not headings:
            return 0.0
        happy = any(_HAPPY.match(line) for line in tail_lines(artifact))
        return 0.8 if happy else 0.55 if headings > 1 else 0.4

    def read(self, artifact: Artifact) -> Iterator[ParsedItem]:
        """Yield a check for each heading when the next one is read, with metrics and remarks."""
        notes, narration, parts, troubles = Notes(), FreeText(), _Parts(), ErrorLines()
        said = SelfReportReader()
        yield ParsedJob(kind="demo")
        for line in text_lines(artifact, notes=notes):
            said.take(line)
            heading, happy = _HEADING.match(line), _HAPPY.match(line)
            if heading and len(parts.numbers) < HEADINGS_KEPT:
                yield from parts.conclude(troubles)
                parts.begin(heading)
                parts.ended = False
            elif happy and not _UNHAPPY.search(happy["rest"]):
                yield from parts.conclude(troubles)
                parts.ended = True
                parts.total = int(happy["total"]) if happy["total"] else parts.total
            else:
                troubles.see(line)
            yield from narration.see(line)
        yield from notes.statements()
        end = last_text(artifact)
        failure = said.failure(end) or failed_end(end)
        yield from _ending(parts, troubles, failure, torn=is_torn(artifact))


def _ending(
    parts: _Parts, troubles: ErrorLines, failure: str, *, torn: bool
) -> Iterator[ParsedItem]:
    gap = parts.gap()
    if gap:
        yield ParsedProblem("error", gap)
    if parts.ended:
        crashed = troubles.last or troubles.step or failure
        yield ParsedEnd(1 if crashed else 0, detail=crashed, inferred=True)
        return
    if parts.current:
        reason = troubles.last or "the log stops before the next heading or a happy end"
        yield ParsedCheck(parts.current, "failed", reason=reason, inferred=True)
    yield ParsedProblem("error", troubles.cut_off("it never says that it ended", torn=torn))
