"""Reads foreign documents in decoded pieces, with limits on texts and numbers."""

from __future__ import annotations

import codecs
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final

from orchestrator.application.ports.result_parsers import Artifact
from orchestrator.domain.parsed_results import ParsedTime

TEXT_LIMIT: Final = 65_536
"""Maximum characters of a traceback; of a longer one the beginning and the end are kept."""
LINE_LIMIT: Final = 2_000
"""Maximum characters of a message, a reason or a name."""
DEEPEST: Final = 64
"""Maximum levels of nesting; deeper documents are refused."""
_CHUNK_BYTES: Final = 65_536
_MARKS: Final = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def head_text(artifact: Artifact) -> str:
    """Return the first bytes as text, without a byte order mark and leading white space."""
    return artifact.head.decode(encoding(artifact.head), "replace").lstrip()


def encoding(head: bytes) -> str:
    """Return the encoding of the byte order mark; UTF-8 without one."""
    return next((name for mark, name in _MARKS.items() if head.startswith(mark)), "utf-8")


def chunks(artifact: Artifact, codec: str = "") -> Iterator[str]:
    """Yield the whole text in pieces; undecodable bytes are replaced."""
    decoder = codecs.getincrementaldecoder(codec or encoding(artifact.head))("replace")
    with artifact.path.open("rb") as file:
        while block := file.read(_CHUNK_BYTES):
            yield decoder.decode(block)
    yield decoder.decode(b"", final=True)


def shortened(text: str, limit: int = TEXT_LIMIT) -> str:
    """Return the text; of a long one, both ends and the number of characters left out."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n... [{len(text) - 2 * half} characters left out] ...\n{text[-half:]}"


def as_text(value: object, limit: int = TEXT_LIMIT) -> str:
    """Return a text that can be stored; empty for other values."""
    return shortened(_UNSTORABLE.sub("\ufffd", value), limit) if isinstance(value, str) else ""


def as_line(value: object) -> str:
    """Return the first non-blank line, shortened to `LINE_LIMIT` characters."""
    lines = (line.strip() for line in as_text(value).splitlines())
    return next((line[:LINE_LIMIT] for line in lines if line), "")


def last_error(text: str) -> str:
    """Return the last line that pytest marks with an E, else the first line."""
    marked = [line[1:].strip() for line in text.splitlines() if line.startswith("E ")]
    return as_line(marked[-1]) if marked else as_line(text)


def skip_reason(text: str) -> str:
    """Return the reason of a skip in pytest's notation ``('path', line, 'Skipped: reason')``."""
    _, mark, reason = text.rstrip().partition("Skipped: ")
    return as_line(reason.removesuffix(")")[:-1] if mark else text)


def as_number(value: object) -> float | None:
    """Return a finite number; None for any other value."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    try:
        number = float(value)
    except (OverflowError, ValueError):
        return None
    return number if math.isfinite(number) else None


def as_seconds(value: object) -> float | None:
    """Return a duration in seconds: a non-negative number, also written as text; else None."""
    if isinstance(value, str):
        value = _from_words(value)
    number = as_number(value)
    return number if number is not None and 0 <= number < 1e12 else None


def as_count(value: object) -> int | None:
    """Return a non-negative whole number, also written as text; else None."""
    number = as_seconds(value)
    return int(number) if number is not None and number == int(number) else None


def as_map(value: object) -> Mapping[str, object]:
    """Return a JSON object as a mapping; empty for other values."""
    return value if isinstance(value, dict) else {}


def as_list(value: object) -> Sequence[object]:
    """Return a JSON array as a sequence; empty for other values."""
    return value if isinstance(value, list) else ()


def _from_words(text: str) -> float | None:
    try:
        return float(text[:64].replace(",", ""))
    except ValueError:
        return None


_FIRST_YEAR: Final = 1990
_LAST_YEAR: Final = 2200
_LAST_S: Final = 4102444800.0
"""The beginning of the year 2100, in seconds since 1970."""
_LONGEST: Final = 64


def parsed_time(text: object) -> Iterator[ParsedTime]:
    """Yield an ISO 8601 time or date; nothing if it is invalid or implausible."""
    if not isinstance(text, str) or not len("2026-01-19") <= len(text.strip()) <= _LONGEST:
        return
    try:
        read = datetime.fromisoformat(text.strip())
    except ValueError:
        return
    if _FIRST_YEAR <= read.year < _LAST_YEAR:
        yield ParsedTime(read)


def parsed_epoch(seconds: float | None) -> Iterator[ParsedTime]:
    """Yield the time of seconds since 1970; nothing if it is implausible."""
    if seconds is None or not math.isfinite(seconds) or not 0 < seconds < _LAST_S:
        return
    read = datetime.fromtimestamp(seconds, UTC)
    if read.year >= _FIRST_YEAR:
        yield ParsedTime(read)
