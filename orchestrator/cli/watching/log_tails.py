"""The end of each cell's log, fetched from where the last look ended."""

from __future__ import annotations

from collections import deque

from orchestrator.cli.client import Client
from orchestrator.cli.errors import RefusalError
from orchestrator.cli.responses import Run
from orchestrator.cli.safe_text import log_line
from orchestrator.cli.view.live_run import LOG_LINES, LogTail

_LOOKS_AT_ONCE = 8
"""Parts fetched in one go: a long log is caught up with little by little."""
_LINE_LIMIT = 4096


class Tails:
    """Follows the log of one cell at a time: the one that runs, as long as it runs."""

    def __init__(self, client: Client, run_id: str) -> None:
        self._client = client
        self._run_id = run_id
        self._cell = ""
        self._offset = 0
        self._lines: deque[str] = deque(maxlen=LOG_LINES * 2)
        self._torn = ""

    def look(self, run: Run) -> LogTail:
        """Fetch what is new and return the tail. Raises UnreachableError."""
        cell = _chosen(run, self._cell)
        if cell != self._cell:
            self._cell, self._offset, self._torn = cell, 0, ""
            self._lines.clear()
        if cell:
            self._fetch()
        torn = log_line(self._torn)
        lines = (*self._lines, torn) if torn.strip() else tuple(self._lines)
        return LogTail(self._cell, lines[-LOG_LINES:])

    def _fetch(self) -> None:
        path = f"/runs/{self._run_id}/cells/{self._cell}/log"
        for _ in range(_LOOKS_AT_ONCE):
            try:
                data, after = self._client.log_bytes(path, after=self._offset)
            except RefusalError:
                return  # no log yet
            self._take(data.decode(errors="replace"))
            if after <= self._offset:
                return
            self._offset = after

    def _take(self, text: str) -> None:
        *whole, torn = (self._torn + text).split("\n")
        self._torn = torn[-_LINE_LIMIT:]
        for line in whole[-LOG_LINES * 2 :]:
            safe = log_line(line[:_LINE_LIMIT])
            if safe.strip():
                self._lines.append(safe)


def _chosen(run: Run, present: str) -> str:
    """The cell whose log is shown: the present one as long as it runs, else the first that does."""
    running = [cell.id for cell in run.cells if cell.state in ("running", "preparing")]
    if present in running or not running:
        return present
    return running[0]
