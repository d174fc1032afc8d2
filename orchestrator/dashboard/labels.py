"""Text on pages: untrusted text made harmless; shares, numbers and ages as text."""

from __future__ import annotations

import re
from datetime import datetime
from fractions import Fraction

from markupsafe import Markup

from orchestrator.domain.units import percent

LONGEST_TEXT = 2_000
"""Maximum characters of an untrusted text on a page; its `.json` has the whole text."""

_MOST_BREAKS = 8
_BEGIN, _END = Markup("<bdi>"), Markup("</bdi>")
_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor movement
    r"|\x1b[\]PX^_].*?(?:\x07|\x1b\\|$)"  # OSC, DCS and other strings: titles, links, clipboard
    r"|\x1b[ -/]*[0-~]",
    re.DOTALL,
)
_COMMAND = re.compile(r"`([^`\n]+)`")
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u115f\u1160\u180e\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ufeff\ufff9-\ufffb\U000e0000-\U000e0fff\ud800-\udfff]"
)
_SECONDS = (("d", 86_400), ("h", 3_600), ("min", 60))


def visible(text: str) -> str:
    """Return untrusted text with its control characters made visible.

    Escape sequences are dropped; controls, marks that change direction and characters without
    width are written as their numbers, so that no text can pass for another.
    """
    if text.isascii() and text.isprintable():
        return text  # as nearly all are
    return _HIDDEN.sub(_number, _ESCAPES.sub("", text))


def _number(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def breakable(text: str) -> Markup:
    """Return the text with a line-break opportunity at each ``::`` of a node id."""
    return Markup("::<wbr>").join(text.split("::", _MOST_BREAKS))


def spoken(text: str) -> Markup:
    """Return untrusted text as safe HTML, isolated from the direction of the text around it."""
    return _BEGIN + breakable(visible(cut(text))) + _END


def prose(sentence: str) -> Markup:
    """Return a sentence like `spoken`, with the commands in backticks as code elements."""
    parts = _COMMAND.split(visible(cut(sentence)))
    kinds = (breakable, lambda part: Markup("<code>{}</code>").format(part))
    return _BEGIN + Markup().join(kinds[at % 2](part) for at, part in enumerate(parts)) + _END


def shortened(sentence: str, longest: int) -> str:
    """Return a sentence cut at the end of a word outside of brackets and commands."""
    if len(sentence) <= longest:
        return sentence
    kept = sentence[:longest].rpartition(" ")[0] or sentence[: longest - 1]
    if kept.count("`") % 2:
        kept = kept.rpartition("`")[0]
    if kept.count("(") > kept.count(")"):
        kept = kept.rpartition(" (")[0] or kept
    return kept.rstrip(" ,;:") + "…"


def cut(text: str, longest: int = LONGEST_TEXT) -> str:
    """Return the text, cut to the limit, with the number of characters that are left out."""
    if len(text) <= longest:
        return text
    return f"{text[:longest]}… ({len(text) - longest:,} more characters)"


def share(passed: int, value: int) -> str:
    """Return a pass rate as text; a dash if no test counts."""
    if not value:
        return "–"
    return percent(Fraction(passed, value))


def age(since: datetime, now: datetime) -> str:
    """Return the time between two moments as ``just now``, ``12 min``, ``3 h`` or ``5 d``."""
    seconds = (now - since).total_seconds()
    for unit, length in _SECONDS:
        if seconds >= length:
            return f"{int(seconds // length)} {unit}"
    return "just now"


def ago(at: datetime, now: datetime) -> str:
    """Return the age of a time as ``just now`` or ``12 min ago``."""
    since = age(at, now)
    return since if since == "just now" else f"{since} ago"
