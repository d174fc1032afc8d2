"""Demos that only announce their parts: ``Demo N: title``, and ``All demos completed!`` at last.

Nothing says how a part went. That it went well is inferred, from the next heading or the happy
end, and from no trouble on the way; every such check is marked as inferred.
"""

from __future__ import annotations

import re
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
    """The parts so far; the last of them is still going on."""

    numbers: set[int] = field(default_factory=set)
    current: str = ""
    total: int | None = None
    ended: bool = False

    def begin(self, found: re.Match[str]) -> None:
        self.numbers.add(int(found["number"]))
        self.current = f"{found['word'].title()} {int(found['number'])}: {found['title'].strip()}"
        if found["total"]:
            self.total = int(found["total"])

    def conclude(self, troubles: ErrorLines) -> Iterator[Said]:
        """The current part is over, and something came after it."""
        if self.current:
            outcome = "failed" if troubles.last else "passed"
            yield ParsedCheck(self.current, outcome, reason=troubles.last, inferred=True)
        self.current, troubles.last = "", ""

    def gap(self) -> str:
        """Which parts were announced by number, and are not there."""
        last = max([*self.numbers, self.total or 0], default=0)
        missing = [str(n) for n in range(1, last + 1) if n not in self.numbers]
        return f"no heading has the number {', '.join(missing[:20])}" if missing else ""


class DemoHeadings:
    """Implements `Dialect`."""

    @property
    def name(self) -> str:
        """``demo-headings``."""
        return "demo-headings"

    @property
    def version(self) -> int:
        """Grows with what it tells."""
        return 1

    @property
    def provenance(self) -> Provenance:
        """Lines that were made for people."""
        return Provenance.PARSED_TEXT

    def match(self, artifact: Artifact) -> float:
        """Surer with a happy end, and with several headings."""
        if is_document(artifact):
            return 0.0
        headings = sum(bool(_HEADING.match(line)) for line in head_lines(artifact))
        if not headings:
            return 0.0
        happy = any(_HAPPY.match(line) for line in tail_lines(artifact))
        return 0.8 if happy else 0.55 if headings > 1 else 0.4

    def read(self, artifact: Artifact) -> Iterator[Said]:
        """A check for each heading as the next one comes, figures and remarks on the way."""
        notes, narration, parts, troubles = Notes(), FreeText(), _Parts(), ErrorLines()
        yield ParsedJob(kind="demo")
        for line in text_lines(artifact, notes=notes):
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
        yield from notes.said()
        yield from _ending(parts, troubles, torn=is_torn(artifact))


def _ending(parts: _Parts, troubles: ErrorLines, *, torn: bool) -> Iterator[Said]:
    gap = parts.gap()
    if gap:
        yield ParsedProblem("error", gap)
    if parts.ended:
        crashed = troubles.last
        yield ParsedEnd(1 if crashed else 0, detail=crashed, inferred=True)
        return
    if parts.current:
        reason = troubles.last or "the log stops before the next heading or a happy end"
        yield ParsedCheck(parts.current, "failed", reason=reason, inferred=True)
    yield ParsedProblem("error", troubles.cut_off("it never says that it ended", torn=torn))
