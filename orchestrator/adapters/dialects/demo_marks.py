"""Demos that sum themselves up: ``[PASS] name`` for each part, ``Results: 7/8 demos passed``."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from orchestrator.adapters.dialects.error_lines import ErrorLines, is_document, is_torn
from orchestrator.adapters.dialects.free_text import FreeText
from orchestrator.adapters.dialects.text_lines import Notes, head_lines, tail_lines, text_lines
from orchestrator.application.ports.dialects import Artifact
from orchestrator.domain.parsed_results import (
    ParsedCheck,
    ParsedEnd,
    ParsedJob,
    ParsedProblem,
    Provenance,
    Said,
)

MARKS_KEPT = 10_000
"""Different marks of one artifact."""

MARK = re.compile(
    r"^\s{0,20}\[ {0,9}(?P<word>PASS|PASSED|OK|FAIL|FAILED|ERROR|SKIP|SKIPPED) {0,9}\]"
    r"\s{1,9}(?P<said>\S.{0,400})$"
)
_REASON = re.compile(r"^(?P<name>[^\s:(][^:(]{0,199}?)\s?(?::\s|\s-\s|\()(?P<reason>.{1,400})$")
RESULTS = re.compile(
    r"^\W{0,8}(?:results?|summary|total)\s?:\s{0,8}(?P<passed>\d{1,7})\s?/\s?(?P<total>\d{1,7})"
    r"\s(?:[\w-]{1,30}\s){0,2}passed\b",
    re.IGNORECASE,
)
_OUTCOMES = {"pass": "passed", "ok": "passed", "skip": "skipped"}
_RANK = {"passed": 0, "skipped": 1, "failed": 2}


@dataclass(slots=True)
class _Marks:
    """Every mark that was seen, by name, and the job's own sum."""

    outcomes: dict[str, str] = field(default_factory=dict)
    summed: tuple[int, int] | None = None
    """Passed, and of how many."""
    dropped: bool = False

    def add(self, check: ParsedCheck) -> Iterator[Said]:
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
        """How the marks and the sum disagree; empty where they agree."""
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
    """Implements `Dialect`."""

    @property
    def name(self) -> str:
        """``demo-marks``."""
        return "demo-marks"

    @property
    def version(self) -> int:
        """Grows with what it tells."""
        return 1

    @property
    def provenance(self) -> Provenance:
        """Lines that were made for people."""
        return Provenance.PARSED_TEXT

    def match(self, artifact: Artifact) -> float:
        """Sure where marks and their sum are there; unsure of either alone."""
        if is_document(artifact):
            return 0.0
        lines = [*head_lines(artifact), *tail_lines(artifact)]
        has_marks = any(MARK.match(line) for line in lines)
        has_sum = any(RESULTS.match(line) for line in lines)
        return 0.9 if has_marks and has_sum else 0.6 if has_marks else 0.45 if has_sum else 0.0

    def read(self, artifact: Artifact) -> Iterator[Said]:
        """Checks as they are marked, figures and remarks on the way, and the end it tells of."""
        notes, narration, marks, troubles = Notes(), FreeText(), _Marks(), ErrorLines()
        yield ParsedJob(kind="demo")
        for line in text_lines(artifact, notes=notes):
            troubles.see(line)
            if check := _mark(line):
                yield from marks.add(check)
            elif summed := RESULTS.match(line):
                marks.summed = int(summed["passed"]), int(summed["total"])
            else:
                yield from narration.see(line)
        yield from notes.said()
        yield from _ending(marks, troubles, torn=is_torn(artifact))


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


def _ending(marks: _Marks, troubles: ErrorLines, *, torn: bool) -> Iterator[Said]:
    """The end, where the job sums itself up; otherwise nobody knows how it ended."""
    if marks.dropped:
        yield ParsedProblem(
            "error", f"more than {MARKS_KEPT} different marks: the rest is left out"
        )
    if marks.summed is None:
        yield ParsedProblem("error", troubles.cut_off("it never sums its marks up", torn=torn))
        return
    contradiction = marks.contradiction()
    if contradiction:
        yield ParsedProblem("error", contradiction)
    passed, total = marks.summed
    skipped = sum(outcome == "skipped" for outcome in marks.outcomes.values())
    short = passed + skipped < total
    has_failed = short or "failed" in marks.outcomes.values()
    yield ParsedEnd(1 if has_failed or contradiction else 0, detail=contradiction)
