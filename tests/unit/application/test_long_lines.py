"""An event that is longer than one look takes."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from orchestrator.application.cell.collecting import pull_evidence
from orchestrator.domain.evidence import LINE_LIMIT_BYTES, EvidenceBatch, EvidenceError
from orchestrator.store.attempt_evidence import EvidencePosition

AT = datetime(2026, 1, 1, tzinfo=UTC)


def line(size: int) -> bytes:
    event = {
        "v": 1,
        "seq": 1,
        "ts": 1.0,
        "kind": "log",
        "job": None,
        "data": {"message": "x" * size},
    }
    return json.dumps(event).encode() + b"\n"


class Machine:
    """It has these events, and gives so many bytes at a time."""

    def __init__(self, events: bytes) -> None:
        self.events = events

    def pull(
        self, _: str, *, events_offset: int, log_offset: int, limit_bytes: int
    ) -> EvidenceBatch:
        piece = self.events[events_offset : events_offset + limit_bytes]
        return EvidenceBatch(piece, b"", True, len(self.events), 0)


class Store:
    """Keeps the chunks."""

    def __init__(self) -> None:
        self.chunks: list[bytes] = []

    def append(
        self, _: str, have: EvidencePosition, *, events: bytes, **__: Any
    ) -> EvidencePosition:
        assert have.events_bytes == sum(map(len, self.chunks))
        self.chunks.append(events)
        return EvidencePosition(len(self.chunks), have.events_bytes + len(events), 0)


def test_it_is_fetched_whole() -> None:
    store, events = Store(), line(5_000)
    pull_evidence(Machine(events), store, "a", EvidencePosition(), at=AT, limit_bytes=1_000)  # type: ignore[arg-type]
    assert store.chunks == [events]


def test_it_is_refused_beyond_the_limit() -> None:
    machine = Machine(line(LINE_LIMIT_BYTES))
    with pytest.raises(EvidenceError, match="a line of more than"):
        pull_evidence(machine, Store(), "a", EvidencePosition(), at=AT, limit_bytes=1_000_000)  # type: ignore[arg-type]
