"""A database that is locked, full or damaged: everybody is told, and nobody is told too much."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import event

from orchestrator.store import sessions
from orchestrator.store.database import check_file, lost_commits
from orchestrator.store.errors import DamagedError
from tests.integration.api_context import MATRIX, Desk, desk

RUNS = "/api/v1/runs"


@pytest.fixture
def api(tmp_path: Path, sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    monkeypatch.setattr(sessions, "_BUSY_TIMEOUT_S", 0.1)
    monkeypatch.setattr(sessions, "_PROBE_TIMEOUT_S", 0)
    with desk(tmp_path, sqlite_url) as opened:
        yield opened


def launch(api: Desk):
    return api.client.post(RUNS, json={"matrix": MATRIX}, headers={"Idempotency-Key": "k"})


def refused(api: Desk, said: str) -> None:
    for answer in (launch(api), api.client.get("/readyz")):
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "5"
        assert said in answer.json()["detail"]
        assert "app.db" not in answer.text
        assert "sqlite" not in answer.text


def test_a_locked_database_is_unavailable_and_not_ready(api: Desk) -> None:
    path = api.database.sessions.engine.url.database.removeprefix("file:")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    refused(api, "another process holds the database's lock")
    assert api.client.get(RUNS).status_code == 200, "reading goes on"
    other.execute("ROLLBACK")
    other.close()
    assert launch(api).status_code == 202
    assert api.client.get("/readyz").status_code == 200


def test_a_full_disk_is_unavailable_and_not_ready(
    api: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = api.database.sessions.engine
    engine.dispose()

    @event.listens_for(engine, "connect")
    def no_room(connection: sqlite3.Connection, _record: object) -> None:
        connection.execute("PRAGMA max_page_count=1")

    for number in range(50):
        answer = api.client.post(
            RUNS, json={"matrix": MATRIX}, headers={"Idempotency-Key": str(number)}
        )
        if answer.status_code != 202:
            break
    refused(api, "the database's disk is full")
    event.remove(engine, "connect", no_room)
    monkeypatch.setattr(sessions, "_TROUBLE_S", 0)
    engine.dispose()
    assert launch(api).status_code == 202
    assert api.client.get("/readyz").status_code == 200


FRAME = 24 + 4096


@pytest.fixture
def unclosed(tmp_path: Path) -> Path:
    """A database of ten transactions, as a killed process leaves it."""
    made, left = tmp_path / "made.db", tmp_path / "left.db"
    connection = sqlite3.connect(made, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("CREATE TABLE t (x)")
    for number in range(9):
        connection.execute("INSERT INTO t VALUES (?)", (number,))
    for suffix in ("", "-wal"):
        Path(f"{left}{suffix}").write_bytes(Path(f"{made}{suffix}").read_bytes())
    connection.close()
    return left


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0xFF
    path.write_bytes(data)


def test_a_database_that_was_only_not_closed_is_opened(unclosed: Path) -> None:
    check_file(unclosed)
    with Path(f"{unclosed}-wal").open("ab") as log:
        log.write(b"torn" * 900)
    check_file(unclosed)
    assert not Path(f"{unclosed}-wal.damaged").exists()


@pytest.mark.parametrize("at", [32 + FRAME * 6 + 100, 32 + FRAME * 6 + 17, 5, 25])
def test_committed_transactions_that_are_lost_are_told_once(
    unclosed: Path, at: int, caplog: pytest.LogCaptureFixture
) -> None:
    log = Path(f"{unclosed}-wal")
    assert lost_commits(log) == 0
    flip(log, at)
    assert lost_commits(log) >= 4
    with pytest.raises(DamagedError, match="committed cannot be read any more"):
        check_file(unclosed)
    assert Path(f"{log}.damaged").read_bytes() == log.read_bytes()
    check_file(unclosed)
    assert "goes on with what is left" in caplog.text


def test_a_damaged_file_is_told(unclosed: Path) -> None:
    with sqlite3.connect(unclosed) as connection:
        connection.execute("CREATE TABLE other (x)")
        connection.commit()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.execute("INSERT INTO t VALUES (1)")
        connection.commit()
        data = unclosed.read_bytes()
        unclosed.write_bytes(data[:8192] + b"\xff" * 4096)
        with pytest.raises(DamagedError, match="is damaged"):
            check_file(unclosed)


def test_a_damaged_file_is_told_that_was_closed_well(sqlite_url: str) -> None:
    path = Path(sqlite_url.removeprefix("sqlite:///"))
    check_file(path)
    data = path.read_bytes()
    path.write_bytes(data[:8192] + b"\xff" * 4096 + data[12288:])
    with pytest.raises(DamagedError, match=r"is damaged.*restore the last backup"):
        check_file(path)
