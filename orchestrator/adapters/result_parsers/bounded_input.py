"""Foreign documents piece by piece: decoded, and no text or number of them larger than we like."""

from __future__ import annotations

import codecs
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Final

from orchestrator.application.ports.result_parsers import Artifact

TEXT_LIMIT: Final = 65_536
"""Characters of a traceback; of a longer one the beginning and the end are kept."""
LINE_LIMIT: Final = 2_000
"""Characters of a message, a reason or a name."""
DEEPEST: Final = 64
"""Levels of nesting; what nests deeper is refused."""
_CHUNK_BYTES: Final = 65_536
_MARKS: Final = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def head_text(artifact: Artifact) -> str:
    """The first bytes as text, without what no text has."""
    return artifact.head.decode(encoding(artifact.head), "replace").lstrip()


def encoding(head: bytes) -> str:
    """What a byte order mark says; UTF-8 where there is none."""
    return next((name for mark, name in _MARKS.items() if head.startswith(mark)), "utf-8")


def chunks(artifact: Artifact, codec: str = "") -> Iterator[str]:
    """The whole text in pieces; bytes that are none are replaced."""
    decoder = codecs.getincrementaldecoder(codec or encoding(artifact.head))("replace")
    with artifact.path.open("rb") as file:
        while block := file.read(_CHUNK_BYTES):
            yield decoder.decode(block)
    yield decoder.decode(b"", final=True)


def shortened(text: str, limit: int = TEXT_LIMIT) -> str:
    """The text, or its two ends with a mark that says how much is left out."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n... [{len(text) - 2 * half} characters left out] ...\n{text[-half:]}"


def as_text(value: object, limit: int = TEXT_LIMIT) -> str:
    """A text that can be stored; empty where there is none."""
    return shortened(_UNSTORABLE.sub("\ufffd", value), limit) if isinstance(value, str) else ""


def as_line(value: object) -> str:
    """The first line of a text that says something, short enough for a table."""
    lines = (line.strip() for line in as_text(value).splitlines())
    return next((line[:LINE_LIMIT] for line in lines if line), "")


def last_error(text: str) -> str:
    """The last line that pytest marks with an E, or the first line."""
    marked = [line[1:].strip() for line in text.splitlines() if line.startswith("E ")]
    return as_line(marked[-1]) if marked else as_line(text)


def skip_reason(text: str) -> str:
    """Of a skip as pytest's reports keep it: ``('path', line, 'Skipped: reason')``."""
    _, mark, reason = text.rstrip().partition("Skipped: ")
    return as_line(reason.removesuffix(")")[:-1] if mark else text)


def as_number(value: object) -> float | None:
    """A finite number; None of anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    try:
        number = float(value)
    except (OverflowError, ValueError):
        return None
    return number if math.isfinite(number) else None


def as_seconds(value: object) -> float | None:
    """A duration: a number that is not negative, be it written as text."""
    if isinstance(value, str):
        value = _from_words(value)
    number = as_number(value)
    return number if number is not None and 0 <= number < 1e12 else None


def as_count(value: object) -> int | None:
    """A whole number of things, be it written as text."""
    number = as_seconds(value)
    return int(number) if number is not None and number == int(number) else None


def as_map(value: object) -> Mapping[str, object]:
    """An object; empty where there is none."""
    return value if isinstance(value, dict) else {}


def as_list(value: object) -> Sequence[object]:
    """A list; empty where there is none."""
    return value if isinstance(value, list) else ()


def _from_words(text: str) -> float | None:
    try:
        return float(text[:64].replace(",", ""))
    except ValueError:
        return None
