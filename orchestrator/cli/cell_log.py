"""The log of a cell, in whole lines."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.cli.client import Client
from orchestrator.cli.errors import RefusalError
from orchestrator.cli.session import cell_path
from orchestrator.domain.run_record import CellRecord
from orchestrator.domain.run_response import RunResponse


class WholeLines:
    """Cuts bytes that come in pieces after a line break: never in a character or a sequence."""

    def __init__(self) -> None:
        self._torn = b""

    def add(self, piece: bytes) -> bytes:
        """The lines that are complete with this piece."""
        lines, end, self._torn = (self._torn + piece).rpartition(b"\n")
        return lines + end

    def rest(self) -> bytes:
        """The last line, ended, where its line break has not come."""
        line, self._torn = self._torn, b""
        return line + b"\n" if line else b""


class CellLog:
    """One cell's log, from where it was left."""

    def __init__(
        self, client: Client, run: RunResponse, cell: CellRecord, *, prefixed: bool
    ) -> None:
        """`prefixed` writes the cell's id before each line."""
        self._client = client
        self._path = cell_path(run, cell) + "/log"
        self._prefix = f"[{cell.id}] ".encode() if prefixed else b""
        self._offset = 0
        self._lines = WholeLines()

    def new(self, *, to_the_end: bool) -> Iterator[bytes]:
        """Whole lines that were not seen yet; at the end, the torn one as well."""
        while True:
            try:
                data, after = self._client.log_bytes(self._path, after=self._offset)
            except RefusalError as error:
                if error.status == 404:
                    return  # nothing was written yet
                raise
            yield from self._prefixed(self._lines.add(data))
            if after <= self._offset or not data:
                break
            self._offset = after
        if to_the_end:
            yield from self._prefixed(self._lines.rest())

    def _prefixed(self, lines: bytes) -> Iterator[bytes]:
        if lines:
            yield b"".join(self._prefix + line + b"\n" for line in lines[:-1].split(b"\n"))
