"""One cell that writes a log, and nothing else: for what the viewer of logs does with it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from orchestrator.adapters.files.home_folder import prepare_home
from orchestrator.dashboard import urls
from orchestrator.domain.cell import Cause, CellState, Run, RunSpec
from orchestrator.domain.matrix import expand
from orchestrator.domain.outcome import Outcome
from orchestrator.store.database import Database, open_database
from tests.databases import MANIFEST, matrix, write_log

_RUN = "01jlogsoftheviewer00000000"
_CELL = "p0"
_CHUNK_BYTES = 1024 * 1024
_STEPS = (CellState.BOOTING, CellState.PREPARING, CellState.RUNNING)


@dataclass
class Writer:
    """What the cell's machine does."""

    database: Database
    cell_id: str
    attempt_id: str
    written: int = 0

    @property
    def path(self) -> str:
        """Of the log."""
        return urls.log_url(_RUN, _CELL)

    def write(self, text: str | bytes) -> None:
        """More of the log."""
        data = text.encode() if isinstance(text, str) else text
        for begin in range(0, len(data), _CHUNK_BYTES):
            chunk = data[begin : begin + _CHUNK_BYTES]
            assert write_log(self.database.stores, self.attempt_id, chunk, offset=self.written)
            self.written += len(chunk)

    def number(self, first: int, last: int) -> None:
        """Numbered lines, the last one too."""
        self.write("".join(f"line {number} of the log\n" for number in range(first, last + 1)))

    def retry(self) -> None:
        """The attempt is lost; the next one begins."""
        cells, at = self.database.stores.cells, datetime.now(UTC)
        for state in (CellState.COLLECTING, CellState.RELEASING):
            cells.enter(self.cell_id, state, at=at)
        cells.requeue(self.attempt_id, Cause(Outcome.ERRORED, "lost", "it went"), at=at)
        self.attempt_id, self.written = f"{self.cell_id}-2", 0
        self._begin()

    def finish(self) -> None:
        """The cell ends, and its run."""
        stores, at = self.database.stores, datetime.now(UTC)
        for state in (CellState.COLLECTING, CellState.RELEASING):
            stores.cells.enter(self.cell_id, state, at=at)
        stores.cells.conclude(self.cell_id, Cause(Outcome.PASSED, ""), at=at)
        assert stores.runs.finish(_RUN, Outcome.PASSED, at=at)

    def _begin(self) -> None:
        cells, at = self.database.stores.cells, datetime.now(UTC)
        assert cells.admit(self.cell_id, self.attempt_id, max_parallel=9, at=at)
        for state in _STEPS:
            cells.enter(self.cell_id, state, at=at)


@contextmanager
def writer(home: Path) -> Iterator[Writer]:
    """A home with one run, whose only cell is running."""
    prepare_home(home)
    database = open_database(f"sqlite:///{home / 'app.db'}", migrate=True)
    try:
        asked, at = matrix(1), datetime.now(UTC)
        run = Run(_RUN, "nightly", "lib", "1.10", "d" * 64, at)
        (plan,) = expand(asked, MANIFEST)
        cell_id = f"{_RUN}-0"
        database.stores.runs.create(run, RunSpec(asked, MANIFEST), [(cell_id, plan)], key=None)
        found = Writer(database, cell_id, f"{cell_id}-1")
        found._begin()
        yield found
    finally:
        database.close()
