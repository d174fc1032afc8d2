"""Glyphs of the vocabulary with ANSI styles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from rich.text import Text

from orchestrator.cli.safe_text import one_line
from orchestrator.domain.outcome import Counts
from orchestrator.domain.run_record import CellRecord, RunResponse, RunSummary, note_of_run
from orchestrator.domain.vocabulary import TERMS, TEST_OUTCOMES, Term, phrase, term


@dataclass(frozen=True, slots=True)
class Sign:
    """A glyph and its style."""

    glyph: str
    style: str


_STYLES = {"good": "green", "bad": "bold red", "warn": "yellow", "busy": "cyan", "quiet": "dim"}
"""Styles by tone."""
_OWN_STYLES = {
    "errored": "bold magenta",
    "error": "bold magenta",
    "INCONCLUSIVE": "bold magenta",
    "unknown": "magenta",
    "missing": "magenta",
    "not_run": "magenta",
    "queued": "dim",
}
"""Styles of outcomes that say nothing about the subject: infrastructure, no evidence."""
_UNKNOWN = Term("?", "unknown", "warn")


def style_of(code: str) -> str:
    """Return the ANSI style of an outcome, state or decision; an unknown one is highlighted."""
    if code in _OWN_STYLES:
        return _OWN_STYLES[code]
    return _STYLES[TERMS[code].tone] if code in TERMS else "bold magenta"


def sign_of(outcome: str | None, *, active: bool = False) -> Sign:
    """Return the glyph of an outcome, or of an unfinished state."""
    if outcome is None:
        return Sign(term("running").glyph, _STYLES["busy"]) if active else sign_of("queued")
    return Sign(TERMS.get(outcome, _UNKNOWN).glyph, style_of(outcome))


def word(code: str) -> str:
    """Return an outcome or state in words: ``timed out``."""
    return TERMS[code].word if code in TERMS else one_line(phrase(code))


def outcome_words(run: RunSummary, figures: str = "") -> str:
    """Return the outcome with its note: ``failed (cancelled; 3 failed)``.

    An unfinished run has its state instead. `figures` replace the note if there is none or it only
    says that no test passed.
    """
    note = note_of_run(replace(run, untrusted=False), run.counts)
    told = figures if note == run.counts.nothing_passed else note
    said = "; ".join(part for part in ("untrusted" if run.untrusted else "", told) if part)
    return word(run.outcome or run.state) + (f" ({said})" if said else "")


def tally(counts: Counts, *, retried: int = 0, over: bool = True) -> Text:
    """Return the non-zero counts, such as ``48 ✓ 2 ✗``, and a remark if no test passed.

    `retried` is the number of passed tests that failed first. Tests without a result are counted
    as missing only if `over` says that their job has ended.
    """
    figures = counts.as_dict()
    if not over:
        figures["missing"] = 0
    signs = [(figures[name], sign_of(name)) for name in TEST_OUTCOMES if figures[name]]
    told = [Text(f"{count} {sign.glyph}", style=sign.style) for count, sign in signs]
    if retried:
        flaky = sign_of("flaky")
        place = 1 if counts.passed else 0
        told.insert(place, Text(f"({retried} {flaky.glyph} flaky)", style=_STYLES["warn"]))
    if over and counts.nothing_passed:
        told.append(Text("no test passed", style=_STYLES["warn"]))
    return Text("  ").join(told)


def legend(run: RunResponse) -> Text | None:
    """Return the meanings of the glyphs of a run: ``✓ passed · ✗ failed``.

    None if the run has fewer than two glyphs.
    """
    found = [figure for cell in run.cells for figure in _codes(cell)]
    signs = dict.fromkeys((sign_of(code).glyph, word(code)) for code in TERMS if code in found)
    if len(signs) < 2:
        return None
    return Text(" · ".join(f"{glyph} {meaning}" for glyph, meaning in signs), style="dim")


def _codes(cell: CellRecord) -> Iterator[str]:
    """Yield the codes of a cell, its jobs and its tests."""
    yield cell.outcome or cell.state
    yield from (job.outcome or ("running" if job.is_running else "queued") for job in cell.jobs)
    yield from (name for name, count in cell.counts.as_dict().items() if count)


def is_quiet(outcome: str | None) -> bool:
    """Return whether the outcome is no failure."""
    return outcome in ("passed", "not_available", "not_run")
