"""Text that may leave the machine: clean UTF-8, bounded, without secrets."""

from __future__ import annotations

import json
import re
from typing import Iterable, Mapping, Sequence, Union
from urllib.parse import quote

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


JsonValue = Union[None, bool, int, float, str, Sequence["JsonValue"], Mapping[str, "JsonValue"]]

STARS = "***"
SHORTEST = 4
"""Minimum length of a masked secret; a warning names shorter ones, which are not masked."""


class Masker:
    """Replaces every known form of every secret by ``***``."""

    def __init__(self, values: Iterable[str]) -> None:
        forms = sorted(_forms(values), key=len, reverse=True)
        self._text = re.compile("|".join(map(re.escape, forms))) if forms else None
        raw = [form.encode("utf-8", "surrogateescape") for form in forms]
        self._raw = re.compile(b"|".join(map(re.escape, raw))) if raw else None
        self._starts = raw

    def text(self, text: str) -> str:
        """Mask a whole text."""
        return self._text.sub(STARS, text) if self._text else text

    def data(self, value: JsonValue) -> JsonValue:
        """Mask every string, keys too, in a JSON value."""
        if self._text is None:
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(str(key)): self.data(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.data(item) for item in value]
        return value

    def stream(self) -> MaskedStream:
        """Start masking a byte stream that arrives in pieces."""
        return MaskedStream(self)

    def split(self, data: bytes) -> tuple[bytes, bytes]:
        """Return the masked bytes that can be passed on, and the end, which may begin a secret."""
        if self._raw is None:
            return data, b""
        masked = self._raw.sub(STARS.encode(), data)
        held = max((_overlap(masked, form) for form in self._starts), default=0)
        return masked[: len(masked) - held], masked[len(masked) - held :]


class MaskedStream:
    """Masks a stream, including secrets that are split between two pieces."""

    def __init__(self, masker: Masker) -> None:
        self._masker = masker
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """Add a piece of output; return the part that can be shown now."""
        ready, self._held = self._masker.split(self._held + data if self._held else data)
        return ready

    def finish(self) -> bytes:
        """Return the rest that was held back as a possible beginning of a secret."""
        rest, self._held = self._held, b""
        return rest


def _forms(values: Iterable[str]) -> set[str]:
    forms: set[str] = set()
    for value in values:
        if len(value) < SHORTEST:
            continue
        lines = [line for line in value.splitlines() if len(line) >= 2 * SHORTEST]
        for part in (value, value.strip(), *lines):
            quoted = json.dumps(part)[1:-1], json.dumps(part, ensure_ascii=False)[1:-1]
            forms.update((part, *quoted, repr(part)[1:-1], quote(part, safe="")))
    return {form for form in forms if len(form) >= SHORTEST}


def _overlap(data: bytes, form: bytes) -> int:
    """Return how many bytes at the end of `data` are the beginning of `form`, but not all of it."""
    for size in range(min(len(form) - 1, len(data)), 0, -1):
        if data.endswith(form[:size]):
            return size
    return 0
