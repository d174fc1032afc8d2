"""A gate's decision as a small picture, drawn as text: it loads nothing."""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.application.ports.verdict_lines import VerdictLine
from orchestrator.dashboard.labels import visible
from orchestrator.domain.vocabulary import Term, term

_LONGEST = 32
_LETTER = 6.6
"""Units of a letter; the text is set to be so long, whatever the font."""
_PADDING = 7.0
_COLOURS = {
    "good": ("#1a6b3a", "#ffffff"),
    "bad": ("#b3261e", "#ffffff"),
    "warn": ("#ffd166", "#352200"),
}
_NO_VERDICT = Term("?", "no verdict", "warn")


def badge_words(gate: str, newest: VerdictLine | None) -> Mapping[str, object]:
    """What the picture is drawn from."""
    shown = term(newest.decision) if newest is not None else _NO_VERDICT
    version = newest.subject.get("version", "") if newest is not None else ""
    name = _short(gate)
    told = _short(f"{shown.glyph} {shown.word} {version}".rstrip())
    fill, ink = _COLOURS[shown.tone]
    left = len(name) * _LETTER
    right = len(told) * _LETTER
    return {
        "name": name,
        "told": told,
        "fill": fill,
        "ink": ink,
        "left": f"{left:.1f}",
        "right": f"{right:.1f}",
        "edge": f"{left + 2 * _PADDING:.1f}",
        "width": f"{left + right + 4 * _PADDING:.1f}",
        "begin": f"{_PADDING:.1f}",
        "second": f"{left + 3 * _PADDING:.1f}",
    }


def _short(text: str) -> str:
    text = visible(text).replace("\n", " ")
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
