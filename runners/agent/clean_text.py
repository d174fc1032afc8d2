"""Text that may go into evidence: clean, bounded UTF-8."""

from __future__ import annotations

_MARK = "\n[... {} bytes left out ...]\n"


def clean(text: str) -> str:
    """Return text without lone surrogates and NUL, which Postgres refuses."""
    if "\0" in text:
        text = text.replace("\0", "\ufffd")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        text = text.encode("utf-8", "replace").decode("utf-8")
    return text


def cap(text: str, limit_bytes: int) -> str:
    """Return the text; of a text beyond the limit, the beginning and end with a marker between."""
    if len(text) * 4 <= limit_bytes:
        return text
    raw = text.encode("utf-8", "replace")
    if len(raw) <= limit_bytes:
        return text
    room = max(limit_bytes - len(_MARK) - 12, 0)
    head = raw[: room // 2].decode("utf-8", "ignore")
    tail = raw[len(raw) - (room - room // 2) :].decode("utf-8", "ignore")
    return head + _MARK.format(len(raw) - room) + tail


def last_lines(raw: bytes, limit_bytes: int) -> str:
    """Return the end of an output as text, if possible from the beginning of a line."""
    if len(raw) > limit_bytes:
        raw = raw[-limit_bytes:]
        newline = raw.find(b"\n")
        raw = raw[newline + 1 :] if 0 <= newline < len(raw) - 1 else raw
    return clean(raw.decode("utf-8", "replace"))
