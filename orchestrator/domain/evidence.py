"""Evidence of an attempt: numbered events, parsed from the bytes that a machine sent."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

KINDS = frozenset(
    {
        "phase",
        "environment",
        "manifest",
        "test",
        "check",
        "metric",
        "log",
        "artifact",
        "heartbeat",
        "end",
    }
)
LINE_LIMIT_BYTES = 16 * 1024 * 1024
LATEST_TS = 253_402_300_799
"""The last second of the year 9999; Python has no later time."""


_DECODER = json.JSONDecoder(parse_constant=lambda _: None)
"""The shared decoder, because creating one is as slow as decoding a line."""


class EvidenceError(ValueError):
    """The machine sent malformed evidence, so that the attempt is not trusted."""


@dataclass(frozen=True, slots=True)
class Event:
    """One line of ``events.jsonl``."""

    seq: int
    ts: float
    """Seconds since 1970 by the machine's clock."""
    kind: str
    job: str | None
    data: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class EvidenceBatch:
    """Evidence that was read from the machine of an attempt, from given offsets on."""

    events: bytes
    log: bytes
    alive: bool
    """Whether the agent of the attempt runs."""
    events_size_bytes: int
    """Size of the whole event stream on the machine."""
    log_size_bytes: int
    now_s: float = 0.0
    """Time of the machine's clock, in seconds since 1970."""


def read_events(chunk: bytes, *, after_seq: int) -> tuple[list[Event], int]:
    """Parse the complete lines of a chunk.

    Args:
        chunk: Bytes of the stream, from the first byte that was not ingested.
        after_seq: Number of the last ingested event; events up to it are skipped.

    Returns: The new events, and the number of used bytes; an incomplete last line is not used.

    Raises: EvidenceError: A complete line is not an event, or a number is missing.
    """
    used = chunk.rfind(b"\n") + 1
    if not used and len(chunk) > LINE_LIMIT_BYTES:
        raise EvidenceError(f"a line of more than {LINE_LIMIT_BYTES} bytes")
    events: list[Event] = []
    expected = after_seq + 1
    for line in _text(chunk[:used]).split("\n")[:-1]:
        event = _parse(line)
        if event.seq < expected:
            continue
        if event.seq > expected:
            raise EvidenceError(f"event {expected} is missing: {event.seq} came instead")
        events.append(event)
        expected += 1
    return events, used


def _text(lines: bytes) -> str:
    try:
        return lines.decode()
    except UnicodeDecodeError as error:
        raise EvidenceError(f"not UTF-8: {lines[error.start :][:200]!r}") from error


def _parse(line: str) -> Event:
    try:
        raw = _loaded(line)
        event = Event(raw["seq"], raw["ts"], raw["kind"], raw.get("job"), raw["data"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise EvidenceError(f"not an event: {line[:200]!r}") from error
    whole = isinstance(event.seq, int) and isinstance(event.data, dict) and _is_time(event.ts)
    known = isinstance(event.kind, str) and event.kind in KINDS
    if raw.get("v") != 1 or not whole or not known:
        raise EvidenceError(f"not an event of version 1: {line[:200]!r}")
    if event.job is not None and not isinstance(event.job, str):
        raise EvidenceError(f"a job's id must be text: {line[:200]!r}")
    return event


def _loaded(line: str) -> dict[str, Any]:
    """Decode a line; replace NaN, lone surrogates and NULs, which databases refuse."""
    raw = _DECODER.decode(line)
    if not isinstance(raw, dict):
        raise TypeError("an event is an object")
    return cast("dict[str, Any]", _storable(raw)) if "\\u" in line else raw


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and 0 <= value <= LATEST_TS


def _storable(value: object) -> object:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode().replace("\x00", "\ufffd")
    if isinstance(value, dict):
        return {str(_storable(key)): _storable(each) for key, each in value.items()}
    return [_storable(each) for each in value] if isinstance(value, list) else value
