"""A tape in a file: records that memory has no room for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from orchestrator.domain.assembly.results_pass import Record


class FileTape:
    """Implements `orchestrator.domain.assembly.results_pass.Tape`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._out = path.open("wb")
        self._back = path.open("rb")
        self._size = 0

    def put(self, record: Record) -> int:
        """See the protocol."""
        place = self._size
        line = json.dumps(record, separators=(",", ":"), default=str).encode() + b"\n"
        self._size += self._out.write(line)
        return place

    def records(self) -> Iterator[tuple[int, list[object]]]:
        """See the protocol."""
        self._out.flush()
        with self._path.open("rb") as file:
            place = 0
            for line in file:
                yield place, json.loads(line)
                place += len(line)

    def at(self, place: int) -> list[object]:
        """See the protocol."""
        self._out.flush()
        self._back.seek(place)
        record: list[object] = json.loads(self._back.readline())
        return record

    def close(self) -> None:
        """Let the file go."""
        self._out.close()
        self._back.close()
