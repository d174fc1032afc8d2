"""Logs, piece by piece: the same questions to SQLite and to Postgres."""

from __future__ import annotations

from itertools import product

import pytest
from sqlalchemy import delete

from orchestrator.domain.cell import Cause, CellState
from orchestrator.domain.outcome import Outcome
from orchestrator.store.attempt_evidence import AttemptLog
from orchestrator.store.errors import CorruptEvidenceError, UnknownIdError
from orchestrator.store.tables import EvidenceChunkRow
from tests.databases import NOW, ON_SQLITE, advance, attempt, create, write_log


@pytest.fixture
def written(stores):
    """An attempt whose log came in three chunks."""
    cell, _ = create(stores)
    name = attempt(stores, cell)
    for offset, chunk in ((0, b"one\n"), (4, b"two"), (7, b"\nthree\n")):
        assert write_log(stores, name, chunk, offset=offset)
    return name


WHOLE = b"one\ntwo\nthree\n"


def test_any_piece_of_a_log_is_read(stores, written):
    for after, limit in product(range(-1, 16), (0, 1, 3, 5, 100)):
        found = stores.logs.read(written, after=after, limit=limit)
        begin = max(after, 0)
        assert found == WHOLE[begin : begin + limit], (after, limit)


def test_each_attempt_has_a_log_however_short(stores, written):
    assert stores.logs.of_cell("run-1.p0") == [AttemptLog(written, 1, 14, is_over=False)]
    assert stores.logs.of_cell("run-1.p1") == []
    advance(stores, "run-1.p0", CellState.RELEASING)
    stores.cells.requeue(written, Cause(Outcome.ERRORED, "lost"), at=NOW)
    second = attempt(stores, "run-1.p0", 2)
    assert stores.logs.of_cell("run-1.p0") == [
        AttemptLog(written, 1, 14, is_over=True),
        AttemptLog(second, 2, 0, is_over=False),
    ]
    assert stores.logs.read(second, after=0, limit=9) == b""


def test_the_log_of_nothing_is_unknown(stores):
    with pytest.raises(UnknownIdError):
        stores.logs.read("nope", after=0, limit=1)


@pytest.mark.parametrize("lost", [0, 4, 7])
@ON_SQLITE
def test_a_log_with_a_hole_is_not_read_over_it(database, written, lost):
    with database.sessions.write() as session:
        session.execute(delete(EvidenceChunkRow).where(EvidenceChunkRow.offset == lost))
    with pytest.raises(CorruptEvidenceError):
        database.stores.logs.read(written, after=0, limit=100)


def test_only_the_chunks_that_are_needed_are_read(database, stores, written):
    with database.sessions.write() as session:
        session.execute(delete(EvidenceChunkRow).where(EvidenceChunkRow.offset == 0))
    assert stores.logs.read(written, after=8, limit=3) == b"thr"


def test_the_feed_tells_its_newest_number(stores, written):
    newest = stores.run_events.after("run-1", 0)[-1].number
    assert stores.run_events.last("run-1") == newest
    assert stores.run_events.last("nope") == 0
