"""One database for many tests: what a test leaves in it, no other one meets."""

from __future__ import annotations

from contextlib import closing

import psycopg
import pytest

from orchestrator.store.database import open_database
from tests.contract.test_stores_history import ISSUE
from tests.databases import create
from tests.postgres import SharedDatabase


def test_rows_numbers_and_connections_of_a_test_are_gone(shared_postgres: SharedDatabase) -> None:
    for _ in range(2):
        holding = psycopg.connect(shared_postgres.url)
        with closing(open_database(shared_postgres.url)) as opened:
            assert opened.stores.runs.unfinished() == ()
            create(opened.stores)
            assert opened.stores.known_issues.add(ISSUE).id == "KI-0001"
            holding.execute("SELECT * FROM run FOR UPDATE")
            shared_postgres.empty()
            with pytest.raises(psycopg.OperationalError):
                holding.execute("SELECT 1")


def test_changed_tables_are_made_anew(shared_postgres: SharedDatabase) -> None:
    for change in ("CREATE TABLE more (x int)", "UPDATE alembic_version SET version_num = '9'"):
        with psycopg.connect(shared_postgres.url) as connection:
            connection.execute(change)
        shared_postgres.empty()
        with closing(open_database(shared_postgres.url)) as database:
            assert database.stores.runs.unfinished() == ()
