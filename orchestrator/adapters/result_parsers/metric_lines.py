"""Benchmarks that print one line per figure: ``✅ Backend creation: 0.2956 ms/iteration``."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.adapters.result_parsers.free_text import METRICS_KEPT, FreeText
from orchestrator.adapters.result_parsers.measurement_lines import marked, measured
from orchestrator.adapters.result_parsers.text_lines import (
    ErrorLines,
    Notes,
    head_lines,
    is_document,
    is_torn,
    tail_lines,
    text_lines,
)
from orchestrator.application.ports.ingest import Artifact
from orchestrator.domain.parsed_results import (
    ParsedEnd,
    ParsedJob,
    ParsedMetric,
    ParsedProblem,
    Provenance,
    Said,
)


class MetricLines:
    """Implements `Dialect`."""

    name = "metric-lines"
    version = 1
    provenance = Provenance.PARSED_TEXT

    def match(self, artifact: Artifact) -> float:
        """Return a low confidence: any program may print a figure."""
        if is_document(artifact):
            return 0.0
        surest = 0.0
        for line in [*head_lines(artifact), *tail_lines(artifact)]:
            mark = marked(line)
            if measured(mark.text if mark else line) is not None:
                surest = max(surest, 0.5 if mark else 0.3)
        return surest

    def read(self, artifact: Artifact) -> Iterator[Said]:
        """Yield figures, checks by tick or cross, remarks, and an inferred end."""
        notes, troubles = Notes(), ErrorLines()
        narration = FreeText(marks_are_checks=True)
        yield ParsedJob(kind="benchmark")
        for line in text_lines(artifact, notes=notes):
            mark = marked(line)
            if mark is None:
                troubles.see(line)
            elif mark.passed:
                troubles.last = ""
            yield from narration.see(line)
        yield from notes.said()
        yield from _ending(narration, troubles, torn=is_torn(artifact))


def figure_lines(artifact: Artifact) -> Iterator[ParsedMetric | ParsedProblem]:
    """Yield the figures of any program's output, whatever else it prints and however it ends."""
    narration = FreeText()
    for line in text_lines(artifact):
        yield from (said for said in narration.see(line) if isinstance(said, ParsedMetric))
    yield from _too_many(narration)


def _too_many(narration: FreeText) -> Iterator[ParsedProblem]:
    if narration.measures >= METRICS_KEPT:
        yield ParsedProblem("error", f"more than {METRICS_KEPT} figures: the rest is left out")


def _ending(narration: FreeText, troubles: ErrorLines, *, torn: bool) -> Iterator[Said]:
    """Yield the inferred end: passed if figures, a complete last line and no errors were read."""
    yield from _too_many(narration)
    if torn or not (narration.measures or narration.failed):
        what = "it prints no figure" if not narration.measures else "it never says that it ended"
        yield ParsedProblem("error", troubles.cut_off(what, torn=torn))
        return
    has_failed = bool(narration.failed or troubles.last)
    yield ParsedEnd(1 if has_failed else 0, detail=troubles.last, inferred=True)
