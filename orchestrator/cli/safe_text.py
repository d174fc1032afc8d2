"""Safe output of untrusted text on a terminal."""

from __future__ import annotations

import json
import re

from rich.cells import cell_len

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor movement
    r"|\x1b[\]PX^_].*?(?:\x07|\x1b\\|$)"  # OSC, DCS and other strings: titles, links, clipboard
    r"|\x1b[ -/]*[0-~]",
    re.DOTALL,
)
_SELECTORS = re.compile("[\ufe00-\ufe0f]")
_WORDS = {"\n": "↵", "\r": "", "\t": "    "}
_MARKS = dict(zip("✓✗⊘–○●■◷∅▽≈◇▸↵…→─━│", "+#/-o*cT0v~<>\\~>-=|", strict=True))
NATURAL = 10_000
"""Width of output without a terminal, so large that lines are not cut or wrapped."""
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def one_line(text: str) -> str:
    """Return text as one line without escape sequences, controls and direction marks.

    A line break becomes a visible sign, so that a name with two lines cannot look like two names.
    """
    plain = _SELECTORS.sub("", _ESCAPES.sub("", text))
    return "".join(_WORDS.get(c, c if c.isprintable() else REPLACEMENT) for c in plain)


def json_text(text: str) -> str:
    """Return JSON text whose controls and direction marks are escaped; its values are the same."""
    if text.replace("\n", "").isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)


def log_line(raw: str) -> str:
    """Return a log line as a terminal would show it, after its last carriage return."""
    return one_line(raw.rstrip("\r\n").rsplit("\r", 1)[-1])


def in_ascii(error: UnicodeError) -> tuple[str, int]:
    """Encoding error handler: replaces glyphs by distinct ASCII marks."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    return "".join(_MARKS.get(char, "?") for char in lacking), error.end


def fit(text: str, width: int) -> str:
    """Cut the end of text to a width in terminal cells."""
    if cell_len(text) <= width:
        return text
    return _head(text, width - 1) + "…" if width > 0 else ""


def fit_end(text: str, width: int) -> str:
    """Cut the beginning of text to a width in terminal cells."""
    if cell_len(text) <= width:
        return text
    return "…" + _head(text[::-1], width - 1)[::-1] if width > 0 else ""


def pad(text: str, width: int) -> str:
    """Cut or pad text to a width in terminal cells."""
    cut = fit(text, width)
    return cut + " " * (width - cell_len(cut))


def _head(text: str, width: int) -> str:
    used = 0
    for index, char in enumerate(text):
        used += cell_len(char)
        if used > width:
            return text[:index]
    return text
