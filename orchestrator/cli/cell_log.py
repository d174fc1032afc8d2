"""A cell's log in whole lines."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.cli.client import Client
from orchestrator.cli.errors import RefusalError
from orchestrator.cli.session import cell_path
from orchestrator.domain.run_record import CellRecord, RunResponse


class WholeLines:
    """Splits incoming bytes after line breaks, never within a character or an escape sequence."""

    def __init__(self) -> None:
        self._torn = b""

    def add(self, piece: bytes) -> bytes:
        """Return the lines that this piece completes."""
        lines, end, self._torn = (self._torn + piece).rpartition(b"\n")
        return lines + end

    def rest(self) -> bytes:
        """Return the incomplete last line, terminated."""
        line, self._torn = self._torn, b""
        return line + b"\n" if line else b""


class CellLog:
    """Reads a cell's log from the last position."""

    def __init__(
        self, client: Client, run: RunResponse, cell: CellRecord, *, prefixed: bool
    ) -> None:
        """With `prefixed`, each line begins with the cell's id."""
        self._client = client
        self._path = cell_path(run, cell) + "/log"
        self._prefix = f"[{cell.id}] ".encode() if prefixed else b""
        self._offset = 0
        self._lines = WholeLines()

    def new(self, *, to_the_end: bool) -> Iterator[bytes]:
        """Return new whole lines; at the end, an incomplete one too."""
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
