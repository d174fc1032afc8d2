"""How things are said on pages: outcomes as a sign and a word, and text from elsewhere."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction

from markupsafe import Markup

LONGEST_TEXT = 2_000
"""Characters of a text from elsewhere that a page shows; the whole stands in its `.json`."""

_MOST_BREAKS = 8
_BEGIN, _END = Markup("<bdi>"), Markup("</bdi>")
_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor movement
    r"|\x1b[\]PX^_].*?(?:\x07|\x1b\\|$)"  # OSC, DCS and other strings: titles, links, clipboard
    r"|\x1b[ -/]*[0-~]",
    re.DOTALL,
)
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u115f\u1160\u180e\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ufeff\ufff9-\ufffb\U000e0000-\U000e0fff\ud800-\udfff]"
)
_SECONDS = (("d", 86_400), ("h", 3_600), ("min", 60))


@dataclass(frozen=True, slots=True)
class Said:
    """An outcome, a state or a decision as a page shows it; never by its colour alone."""

    sign: str
    word: str
    tone: str
    """``good``, ``bad``, ``warn`` (a person should look), ``busy`` or ``quiet``."""


_SAID = {
    "passed": Said("✓", "passed", "good"),
    "failed": Said("✗", "failed", "bad"),
    "error": Said("!", "error", "bad"),
    "errored": Said("!", "errored", "bad"),
    "timed_out": Said("◷", "timed out", "bad"),
    "cancelled": Said("■", "cancelled", "warn"),
    "not_available": Said("∅", "not available", "warn"),
    "not_run": Said("–", "not run", "warn"),
    "missing": Said("?", "missing", "warn"),
    "stale": Said("◔", "stale", "warn"),
    "skipped": Said("⊘", "skipped", "quiet"),
    "xfailed": Said("x", "expected failure", "quiet"),
    "xpassed": Said("X", "unexpected pass", "warn"),
    "degraded": Said("▽", "degraded", "warn"),
    "flaky": Said("≈", "flaky", "warn"),
    "PASS": Said("✓", "PASS", "good"),
    "PASS_WITH_EXCEPTIONS": Said("✓*", "PASS with exceptions", "warn"),
    "FAIL": Said("✗", "FAIL", "bad"),
    "INCONCLUSIVE": Said("?", "INCONCLUSIVE", "warn"),
    "ok": Said("✓", "ok", "good"),
    "violated": Said("✗", "violated", "bad"),
    "unknown": Said("?", "unknown", "warn"),
    "ours": Said("✗", "ours", "bad"),
    "dependency": Said("◇", "a dependency", "warn"),
    "image_or_driver": Said("◇", "image or driver", "warn"),
    "machine": Said("◇", "the machine", "warn"),
    "applies": Said("✓*", "applies", "warn"),
    "stands": Said("●", "stands", "warn"),
    "ended": Said("–", "ended", "quiet"),
    "gone": Said("●", "gone", "quiet"),
    "excepted": Said("✓*", "excepted", "warn"),
    "tolerated": Said("✓*", "tolerated", "warn"),
    "waived": Said("✓*", "waived", "warn"),
    "active": Said("●", "active", "good"),
    "unapproved": Said("?", "needs approval", "warn"),
    "expired": Said("◌", "expired", "quiet"),
    "retired": Said("–", "retired", "quiet"),
    "failing": Said("✗", "failing", "bad"),
    "disabled": Said("■", "disabled", "warn"),
    "new": Said("+", "new", "bad"),
    "lapsed": Said("◌", "expired", "warn"),
    "unowned": Said("!", "unowned", "warn"),
    "quarantined": Said("≈", "quarantined", "quiet"),
    "known": Said("●", "known", "quiet"),
    "exceeded": Said("▲", "more than expected", "bad"),
    "untried": Said("–", "nothing of it ran", "quiet"),
    "retried": Said("≈", "passed on retry", "quiet"),
    "split": Said("≈", "both with one version", "quiet"),
    "flips": Said("≈", "keeps changing", "quiet"),
    "paused": Said("■", "paused", "warn"),
    "missed": Said("?", "missed", "bad"),
    "deadline_missed": Said("◷", "deadline missed", "bad"),
    "in_time": Said("✓", "in time", "good"),
    "new_failure": Said("✗", "new failure", "bad"),
    "still_failing": Said("✗", "still failing", "bad"),
    "newly_skipped": Said("⊘", "newly skipped", "warn"),
    "fixed": Said("✓", "fixed", "good"),
    "changed": Said("≠", "changed", "quiet"),
    "differs": Said("≠", "differs", "warn"),
    "equal": Said("=", "equal", "quiet"),
    "worse": Said("▼", "worse", "bad"),
    "better": Said("▲", "better", "good"),
    "alike": Said("≈", "alike", "quiet"),
    "single": Said("?", "single sample", "warn"),
    "steady": Said("–", "steady", "quiet"),
    "short": Said("…", "too few runs", "quiet"),
    "orphan": Said("!", "orphan", "bad"),
    "idle": Said("!", "idle", "warn"),
    "queued": Said("…", "queued", "busy"),
    "done": Said("●", "done", "quiet"),
    "finished": Said("●", "finished", "quiet"),
}


def said(word: str) -> Said:
    """How a word of the glossary is shown; a state of work in progress where it is no other."""
    return _SAID.get(word) or Said("▸", word.replace("_", " "), "busy")


def visible(text: str) -> str:
    """Text from elsewhere with nothing hidden in it.

    Escape sequences are dropped; controls, marks that change direction and characters without
    width are written as their numbers, so that no text can pass for another.
    """
    if text.isascii() and text.isprintable():
        return text  # as nearly all are
    return _HIDDEN.sub(_number, _ESCAPES.sub("", text))


def _number(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def breakable(text: str) -> Markup:
    """The text, with places at which the name of a test may go on in the next line."""
    return Markup("::<wbr>").join(text.split("::", _MOST_BREAKS))


def spoken(text: str) -> Markup:
    """Text from elsewhere, the one way in which pages write it."""
    return _BEGIN + breakable(visible(cut(text))) + _END


def cut(text: str, longest: int = LONGEST_TEXT) -> str:
    """The text, or its beginning and how much is not here."""
    if len(text) <= longest:
        return text
    return f"{text[:longest]}… ({len(text) - longest:,} more characters)"


def share(passed: int, judged: int) -> str:
    """A pass rate that is never rounded up to 100 % nor down to 0 %."""
    if not judged:
        return "–"
    tenths = Fraction(1000 * passed, judged)
    shown = int(tenths) if passed < judged else 1000
    if passed and not shown:
        return "<0.1%"
    return f"{shown // 10}.{shown % 10}%" if 0 < shown < 1000 else f"{shown // 10}%"


def number(value: float) -> str:
    """With thousands set apart, and four digits where it is no whole number."""
    if float(value).is_integer() and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:.4g}" if abs(value) < 10_000 else f"{value:,.0f}"


def age(since: datetime, now: datetime) -> str:
    """``just now``, ``12 min``, ``3 h`` or ``5 d``."""
    seconds = (now - since).total_seconds()
    for unit, length in _SECONDS:
        if seconds >= length:
            return f"{int(seconds // length)} {unit}"
    return "just now"


def in_utc(at: datetime) -> str:
    """``2026-11-21 02:00 UTC``."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
