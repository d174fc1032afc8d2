"""Restored tokens and sessions, and rows that were added to an archive."""

from __future__ import annotations

import json

import pytest

from orchestrator.bootstrap.backup import backup, restore
from orchestrator.cli.commands.backup import _restored
from orchestrator.cli.errors import RefusedError
from orchestrator.domain.audit import AuditFilters
from orchestrator.store.tables import TableBase
from tests.integration.api_context import desk
from tests.integration.test_api_schedules import post
from tests.integration.test_backup import (
    Place,
    empty,
    filled,
    forged,
    made,
    members_of,
    refused,
)

__all__ = ["filled", "made"]


@pytest.fixture
def trusting(made, tmp_path):
    """A backup with tokens and schedules; one of the tokens is revoked afterwards."""
    here, _ = made
    archive = tmp_path / "two.tar.gz"
    with desk(here.settings.home, here.url) as api:
        for name, scope in (("robot", "gate"), ("gone", "read")):
            token = api.client.post(
                "/api/v1/tokens", json={"name": name, "scope": scope, "days": None}
            ).json()
        assert api.client.delete(f"/api/v1/tokens/{token['id']}").is_success
        for name in ("nightly", "paused"):
            assert post(api, name=name).is_success
        assert api.client.post("/api/v1/schedules/paused/pause").is_success
    backup(here.settings, archive)
    with desk(here.settings.home, here.url) as api:
        [late] = [one for one in api.context.stores.tokens.list() if one.name == "robot"]
        assert api.client.delete(f"/api/v1/tokens/{late.id}").is_success
    return archive


def test_a_restore_lists_the_tokens_and_schedules_that_are_valid_again(trusting, tmp_path) -> None:
    target = empty(tmp_path)
    report = restore(target, trusting)
    named = {one.name: one.scope for one in report.tokens}
    assert named["robot"] == "gate"
    assert "gone" not in named
    assert list(report.schedules) == ["nightly"]
    said = "\n".join(_restored(report))
    assert all(one in said for one in ("robot  gate", "  nightly  ", report.audit_log.head))
    assert report.tokens_revoked == 0


def test_all_tokens_can_be_revoked_by_the_restore(trusting, tmp_path) -> None:
    target = empty(tmp_path)
    report = restore(target, trusting, revoke_tokens=True)
    assert list(report.tokens) == []
    assert report.tokens_revoked >= 2
    database = Place(target).opened()
    try:
        assert all(one.revoked_at for one in database.stores.tokens.list())
        [newest] = database.stores.audit.page(AuditFilters(), limit=1)
        assert newest.after is not None
        assert newest.after["tokens_revoked"] == report.tokens_revoked
        assert newest.after["audit_log"] == {
            "entries": report.audit_log.entries,
            "head": newest.previous,
            "broken_at": None,
            "reason": "",
        }
    finally:
        database.close()


def test_a_broken_audit_log_is_refused_or_accepted_by_name(made, tmp_path) -> None:
    _, archive = made
    entries = members_of(archive)["rows/audit_entry"].decode().splitlines(keepends=True)
    forged(archive, audit_entry="".join([*entries[:1], *entries[2:]]).encode())
    refused(tmp_path, archive, "its audit log is broken at entry 2: the entry is missing")
    target = empty(tmp_path)
    report = restore(target, archive, accept_broken_chain=True)
    assert report.audit_log.broken_at == 2
    assert "broken at entry 2" in "\n".join(_restored(report))
    database = Place(target).opened()
    try:
        [newest] = database.stores.audit.page(AuditFilters(), limit=1)
        assert newest.after is not None
        assert newest.after["audit_log"]["broken_at"] == 2
    finally:
        database.close()


@pytest.mark.parametrize("found", ["", "by-hand"])
def test_a_home_whose_id_is_none_is_not_backed_up(made, tmp_path, found) -> None:
    here, _ = made
    (here.settings.home / "controller.id").write_text(found)
    with pytest.raises(RefusedError, match=r"two\.tar\.gz is not written: controller: "):
        backup(here.settings, tmp_path / "two.tar.gz")
    assert not list(tmp_path.glob("two*"))


DEEP = "[" * 100_000 + "]" * 100_000
ODD = {
    "scope": ("god", 7, ["read"]),
    "name": (7, ["x"], {}),
    "created_at": ("yesterday", 7, "2026-03-01", "0001-01-01T00:00:00+14:00", []),
}


@pytest.mark.parametrize(("column", "value"), [(k, v) for k, some in ODD.items() for v in some])
def test_a_value_of_another_type_is_refused(made, tmp_path, column, value) -> None:
    _, archive = made
    changed(archive, "token", column, value)
    refused(tmp_path, archive, "is no whole backup: a row of the table token cannot be read")


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("audit_entry", "number", 1 << 70),
        ("audit_entry", "number", "1"),
        ("audit_entry", "number", True),
        ("lease", "reserved_usd", "NaN"),
        ("lease", "reserved_usd", "1e99999999"),
        ("lease", "reserved_usd", 1.5),
        ("lease", "simulated", "yes"),
        ("job_result", "started_ts", "x"),
        ("evidence_chunk", "body", "not base64!"),
    ],
)
def test_a_number_that_is_none_is_refused(made, tmp_path, table, column, value) -> None:
    _, archive = made
    changed(archive, table, column, value)
    refused(tmp_path, archive, f"a row of the table {table} cannot be read")


@pytest.mark.parametrize("row", [DEEP, "7", '"abcdefghij"', "{}", "[1]", "", "1" * 5000])
def test_a_line_that_is_no_row_is_refused(made, tmp_path, row) -> None:
    _, archive = made
    forged(archive, token=f"{row}\n".encode())
    refused(tmp_path, archive, "a row of the table token cannot be read")


def test_bytes_that_are_no_text_are_refused(made, tmp_path) -> None:
    _, archive = made
    forged(archive, token=b'["\xff"]\n')
    refused(tmp_path, archive, "a row of the table token is no text")


def test_half_a_character_is_stored_as_any_text_is(made, tmp_path) -> None:
    _, archive = made
    changed(archive, "token", "name", "a\ud800")
    target = empty(tmp_path)
    restore(target, archive)
    database = Place(target).opened()
    try:
        assert [one.name for one in database.stores.tokens.list()] == ["a\N{REPLACEMENT CHARACTER}"]
    finally:
        database.close()


def changed(archive, table: str, column: str, value: object) -> None:
    """Write the archive again with another value in the table's first row."""
    first, *rest = members_of(archive)[f"rows/{table}"].splitlines(keepends=True)
    values = json.loads(first)
    values[list(TableBase.metadata.tables[table].columns.keys()).index(column)] = value
    forged(archive, **{table: b"".join([json.dumps(values).encode() + b"\n", *rest])})
