"""Migrations, and opening a database in every state it may be found in."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import make_dataclass
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import inspect

from orchestrator.store import database as databases
from orchestrator.store import sessions
from orchestrator.store.database import (
    SchemaRevisions,
    migrate,
    open_database,
    revisions_of,
)
from orchestrator.store.errors import DatabaseNewerError, DatabaseOutdatedError, StoreError
from orchestrator.store.sessions import Access, connect
from orchestrator.store.tables import TableBase
from orchestrator.store.tables.shared_columns import table_of
from tests.databases import create

ROOT = Path(__file__).parents[2]
HEAD = "0001"


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.needs_postgres)])
def empty_url(request, tmp_path):
    """A database without tables."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'new.db'}"
    return request.getfixturevalue("postgres_url_factory")(migrated=False)


@pytest.mark.needs_postgres
def test_a_database_of_another_encoding_is_refused_with_the_fix(postgres_server):
    name = "in_ascii"
    options = "TEMPLATE template0 ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C'"
    postgres_server.sql(f"CREATE DATABASE {name} {options}")
    try:
        with pytest.raises(StoreError, match=r"encoding SQL_ASCII.*--encoding UTF8"):
            migrate(postgres_server.url(name))
    finally:
        postgres_server.sql(f"DROP DATABASE {name} WITH (FORCE)")


def names(url):
    engine = connect(url, Access.READ)
    try:
        return set(inspect(engine).get_table_names())
    finally:
        engine.dispose()


def run_sql(url, *statements):
    engine = connect(url, Access.MIGRATE)
    with engine.begin() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)
    engine.dispose()


def differences(url):
    """Between the tables that the migrations made and those that the program has."""
    engine = connect(url, Access.WRITE)
    with engine.connect() as connection:
        options = {"compare_type": True, "compare_server_default": True}
        context = MigrationContext.configure(connection, opts=options)
        found = compare_metadata(context, TableBase.metadata)
    engine.dispose()
    return found


def partial_indexes(url):
    engine = connect(url, Access.READ)
    with engine.connect() as connection:
        catalogue = (
            "SELECT name, sql FROM sqlite_master WHERE type = 'index'"
            if engine.dialect.name == "sqlite"
            else "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'"
        )
        rows = connection.exec_driver_sql(catalogue).all()
    engine.dispose()
    return {name for name, sql in rows if sql and " WHERE " in sql.upper()}


def test_revisions_are_those_that_alembic_finds(tmp_path, monkeypatch):
    scripts = ScriptDirectory.from_config(databases.configuration())
    assert databases._known() == tuple(one.revision for one in scripts.walk_revisions())
    versions = tmp_path / "migrations" / "versions"
    versions.mkdir(parents=True)
    for name, (revision, before) in {
        "b": ('"0001"', "None"),
        "c": ("'0003'", "'0002'"),
        "a": ('"0002"', '"0001"'),
    }.items():
        text = f"revision: str = {revision}\ndown_revision: str | None = {before}\n"
        (versions / f"{name}.py").write_text(text)
    monkeypatch.setattr(databases, "asset_dir", tmp_path.joinpath)
    assert databases._known.__wrapped__() == ("0003", "0002", "0001")


def test_migrating_makes_every_table_and_again_changes_nothing(empty_url):
    migrate(empty_url)
    assert names(empty_url) == {*TableBase.metadata.tables, "alembic_version"}
    assert differences(empty_url) == []
    wanted = {
        index.name
        for table in TableBase.metadata.tables.values()
        for index in table.indexes
        if index.dialect_options["sqlite"]["where"] is not None
    }
    assert len(wanted) == 12
    assert partial_indexes(empty_url) == wanted
    database = open_database(empty_url, migrate=True)
    create(database.stores)
    database.close()
    database = open_database(empty_url, migrate=True)
    assert database.check() == SchemaRevisions(HEAD, HEAD)
    assert database.stores.runs.find("latest") == ("run-1",), "migrating again changes nothing"
    database.close()


@pytest.mark.parametrize("kind", [list, str | None])
def test_a_record_with_a_field_that_no_column_holds_has_no_table(kind):
    with pytest.raises(TypeError):
        table_of("thing", make_dataclass("Thing", [("name", str), ("what", kind)]), ("name",))
    assert "thing" not in TableBase.metadata.tables


def test_many_who_migrate_at_once_migrate_once(postgres_url_factory):
    url = postgres_url_factory(migrated=False)
    script = (
        "import sys; from orchestrator.store.database import open_database;"
        "open_database(sys.argv[1], migrate=True).close()"
    )
    running = [
        subprocess.Popen([sys.executable, "-W", "error", "-c", script, url], cwd=ROOT)
        for _ in range(3)
    ]
    assert [process.wait(timeout=200) for process in running] == [0, 0, 0]
    assert revisions_of(url).is_current


def test_a_migration_that_fails_leaves_nothing(empty_url):
    run_sql(empty_url, "CREATE TABLE attempt (mine INTEGER)")
    with pytest.raises(StoreError, match="attempt"):
        migrate(empty_url)
    assert names(empty_url) == {"attempt"}
    assert revisions_of(empty_url) == SchemaRevisions(None, HEAD)


def test_a_database_without_tables_says_what_to_do(postgres_url_factory, tmp_path):
    Path(tmp_path / "empty.db").touch()
    for url in (postgres_url_factory(migrated=False), f"sqlite:///{tmp_path / 'empty.db'}"):
        with pytest.raises(DatabaseOutdatedError, match="run `seatrial db upgrade`") as caught:
            open_database(url)
        assert (caught.value.current, caught.value.head) == (None, HEAD)


def test_a_newer_database_says_what_to_do_and_is_left_alone(database_url):
    run_sql(database_url, "UPDATE alembic_version SET version_num = '9999'")
    for arguments in ({}, {"migrate": True}, {"read_only": True}):
        with pytest.raises(DatabaseNewerError, match="install the newer version") as caught:
            open_database(database_url, **arguments)
        assert caught.value.current == "9999"


def test_a_missing_file_is_an_error_and_is_not_made(tmp_path):
    for arguments in ({}, {"read_only": True}):
        with pytest.raises(StoreError, match="there is no database at"):
            open_database(f"sqlite:///{tmp_path / 'none.db'}", **arguments)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("url", ["", "nonsense", "mysql://x/y", "sqlite://", "sqlite:///:memory:"])
def test_a_url_that_cannot_be_is_an_error(url):
    with pytest.raises(StoreError):
        open_database(url)


def test_a_server_that_is_not_there_is_an_error_without_the_password(tmp_path):
    with pytest.raises(StoreError, match="failed") as caught:
        open_database(f"postgresql://me:secret@/x?host={tmp_path}")
    assert "secret" not in str(caught.value)


def test_reading_only_writes_nothing(sqlite_url, tmp_path):
    database = open_database(sqlite_url)
    create(database.stores)
    database.close()
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    reader = open_database(sqlite_url, read_only=True)
    assert reader.stores.runs.find("latest") == ("run-1",)
    with pytest.raises(StoreError, match="readonly database"):
        create(reader.stores, "run-2")
    reader.close()
    after = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    assert {n: after[n] for n in before} == before
    assert set(after) - set(before) <= {"app.db-shm", "app.db-wal"}


def test_a_reader_sees_what_a_writer_that_still_lives_has_written(database_url):
    writer = open_database(database_url)
    reader = open_database(database_url, read_only=True)
    create(writer.stores)
    assert reader.stores.runs.find("latest") == ("run-1",)
    reader.close()
    writer.close()


def test_reading_only_refuses_to_write_on_postgres(postgres_url):
    reader = open_database(postgres_url, read_only=True)
    with pytest.raises(StoreError, match="read-only"):
        create(reader.stores)
    reader.close()


def test_sqlite_is_set_up_to_lose_nothing(sqlite_url, synced_pragmas, monkeypatch):
    monkeypatch.setattr(sessions, "_pragmas", synced_pragmas)
    database = open_database(sqlite_url)
    with database.sessions.engine.connect() as connection:
        found = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        }
    database.close()
    full = 2
    assert found == {
        "journal_mode": "wal",
        "synchronous": full,
        "foreign_keys": 1,
        "busy_timeout": 10_000,
    }


def test_a_writer_waits_for_another_process(sqlite_url):
    database = open_database(sqlite_url)
    path = sqlite_url.removeprefix("sqlite:///")
    script = (
        "import sqlite3, sys, time; c = sqlite3.connect(sys.argv[1], isolation_level=None);"
        "c.execute('BEGIN IMMEDIATE'); print('held', flush=True); time.sleep(0.5);"
        "c.execute('COMMIT')"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", script, path], stdout=subprocess.PIPE, text=True
    )
    assert other.stdout.readline() == "held\n"
    create(database.stores)
    other.communicate()
    assert database.stores.runs.find("latest") == ("run-1",)
    database.close()


def test_an_error_in_a_transaction_undoes_all_of_it(database_url):
    database = open_database(database_url)

    def half_done():
        with database.sessions.write() as session:
            session.connection().exec_driver_sql("DELETE FROM cell_plan")
            raise KeyError

    create(database.stores)
    with pytest.raises(KeyError):
        half_done()
    assert database.stores.cells.plan("run-1.p0").id == "p0"
    database.close()
