"""Payloads, tokens, controllers and machines: the same questions to SQLite and to Postgres."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
from sqlalchemy import update

from orchestrator.domain.caller_identity import BrowserSession, Scope, Token
from orchestrator.domain.machine import (
    FakeEndpoint,
    LocalEndpoint,
    Machine,
    MachineState,
    SshEndpoint,
)
from orchestrator.domain.manifest import StoredPayload
from orchestrator.store.database import open_database
from orchestrator.store.tables import ControllerRow
from tests.databases import MANIFEST, NOW, ON_SQLITE, after, together


def test_a_payload_comes_back_and_is_stored_once(stores):
    payload = StoredPayload("d" * 64, 2**40, MANIFEST)
    assert stores.payloads.get("d" * 64) is None
    stores.payloads.put(payload, at=NOW)
    stores.payloads.put(replace(payload, size_bytes=1), at=after(1))
    assert stores.payloads.get("d" * 64) == payload


TOKEN = Token("t1", "ci", Scope.RUN, NOW, after(60))


def test_a_token_is_found_by_its_secrets_hash(stores):
    stores.tokens.add(TOKEN, "ab" * 32)
    stores.tokens.add(TOKEN, "ab" * 32)
    assert stores.tokens.find("ab" * 32) == TOKEN
    assert stores.tokens.find("AB" * 32) is None
    assert stores.tokens.find("\x00") is None


def test_one_secret_that_comes_twice_at_once_is_one_token(database, database_url):
    other = open_database(database_url)
    doors = (database, other)
    work = [
        partial(doors[n % 2].stores.tokens.add, replace(TOKEN, id=f"t{n}"), "cd" * 32)
        for n in range(6)
    ]
    assert together(work) == [None] * 6
    assert len(database.stores.tokens.list()) == 1
    other.close()


def test_tokens_are_listed_oldest_first(stores):
    late = replace(TOKEN, id="t2", created_at=after(5), expires_at=None)
    stores.tokens.add(late, "1")  # ids begin with their time
    stores.tokens.add(TOKEN, "2")
    assert stores.tokens.list() == [TOKEN, late]


def session_named(id_: str, **more: object) -> BrowserSession:
    values = {"token": "t1", "created_at": NOW, "last_used_at": NOW, "expires_at": after(30)}
    values |= {"name": "ci", "display_name": "", "scope": Scope.RUN, "roles_digest": ""}
    values |= {"address": "192.0.2.7", "agent": "Firefox"}
    return BrowserSession(id=id_, **(values | more))


def test_a_session_comes_back_by_its_secret_until_it_or_its_token_is_revoked(stores):
    stores.tokens.add(TOKEN, "s")
    sessions = stores.browser_sessions
    of_token = session_named("one")
    of_person = session_named("two", token=None, display_name="Ana", created_at=after(1))
    sessions.add(of_token, "1", id_token=None)
    sessions.add(of_person, "2", id_token="header.claims.signature")
    assert (sessions.find("1"), sessions.find("2")) == (of_token, of_person)
    assert sessions.list() == [of_token, of_person]
    assert [sessions.find(name) for name in ("s", "one", "")] == [None] * 3
    assert [sessions.id_token(one) for one in ("one", "two", "no")] == [
        None,
        "header.claims.signature",
        None,
    ]
    stores.tokens.revoke("t1", at=after(6))
    assert sessions.find("1") is None
    assert sessions.list() == [of_person]
    assert [sessions.end("two"), sessions.end("two")] == [of_person, None]
    assert sessions.find("2") is None


def test_the_display_name_of_a_person_is_that_of_the_latest_sign_in(stores):
    stores.tokens.add(TOKEN, "s")
    begin = stores.browser_sessions.add
    begin(session_named("one", token=None, name="p", display_name="Ann"), "1", id_token=None)
    begin(session_named("two", token=None, name="p", display_name="Ana"), "2", id_token=None)
    begin(session_named("three"), "3", id_token=None)
    names = stores.browser_sessions.display_names
    assert names(["p", "ci", "x"]) == {"p": "Ana"}
    assert names([]) == {}


def test_a_session_is_forgotten_when_another_begins_after_its_end(stores):
    sessions = stores.browser_sessions
    sessions.add(session_named("one", token=None), "1", id_token=None)
    late = session_named("two", token=None, created_at=after(30), expires_at=after(60))
    sessions.add(late, "2", id_token=None)
    assert sessions.list() == [late]


def test_the_last_use_of_a_session_never_goes_backwards(stores):
    sessions = stores.browser_sessions
    sessions.add(session_named("one", token=None), "1", id_token=None)
    for second in (5, 9, 7):
        sessions.used("one", at=after(second))
    assert sessions.find("1").last_used_at == after(9)


def test_the_last_use_never_goes_backwards(stores):
    stores.tokens.add(TOKEN, "s")
    for second in (5, 9, 7):
        stores.tokens.used("t1", at=after(second))
    stores.tokens.used("unknown", at=NOW)
    assert stores.tokens.find("s").last_used_at == after(9)


def test_a_token_is_revoked_once(stores):
    stores.tokens.add(TOKEN, "s")
    assert stores.tokens.revoke("t1", at=after(1)) is True
    assert stores.tokens.revoke("t1", at=after(2)) is False
    assert stores.tokens.revoke("unknown", at=after(2)) is False
    assert stores.tokens.find("s").revoked_at == after(1)


def test_a_time_without_a_zone_is_refused(stores):
    with pytest.raises(Exception, match="no time zone"):
        stores.tokens.add(replace(TOKEN, created_at=NOW.replace(tzinfo=None)), "s")


def test_a_silent_controller_is_dead_and_claimed_by_one(database, stores):
    for name in ("c1", "c2"):
        stores.controllers.beat(name)
    silent(database, "c1")
    assert stores.controllers.dead(grace_s=30) == ["c1"]
    claim = partial(stores.controllers.claim, "c1", grace_s=30)
    assert together([claim] * 6).count(True) == 1
    silent(database, "c1")
    assert stores.controllers.dead(grace_s=30) == ["c1"], "a claim may come to nothing"
    assert claim()
    stores.controllers.leave("c1")
    assert stores.controllers.dead(grace_s=-60) == ["c2"]
    assert not claim()


def silent(database, name):
    """It was last heard of a minute ago, by the database's clock."""
    with database.sessions.write() as session:
        ago = update(ControllerRow).values(last_seen_s=ControllerRow.last_seen_s - 60)
        session.execute(ago.where(ControllerRow.id == name))


def test_a_controller_that_was_never_heard_of_is_dead(stores):
    stores.controllers.note([])
    for _ in range(2):
        stores.controllers.beat("c1")
    stores.controllers.note(["c1", "stranger"])
    assert not stores.controllers.claim("c1", grace_s=30)
    assert stores.controllers.dead(grace_s=30) == ["stranger"]
    claim = partial(stores.controllers.claim, "stranger", grace_s=30)
    assert together([claim] * 6).count(True) == 1


@pytest.mark.parametrize(
    "machine",
    [
        Machine("m", "token", MachineState.BOOTING, None, "on its way"),
        Machine("m", "token", MachineState.READY, LocalEndpoint("here")),
        Machine("m", "token", MachineState.READY, SshEndpoint("::1", "u", "ssh-ed25519 A", "k")),
        Machine("m", "token", MachineState.READY, FakeEndpoint("m")),
        Machine(
            "us-east-1/i-1",
            "token",
            MachineState.STOPPING,
            ended="preempted",
            kind="disk",
            tags={"seatrial-token": "l1", "seatrial-run": "r"},
            facts={"zone": "us-east-1a"},
            simulated=True,
        ),
    ],
)
@ON_SQLITE
def test_a_machine_comes_back(stores, machine):
    stores.static_hosts.write("fake", machine)
    assert stores.static_hosts.read("fake", machine.id) == machine
    assert stores.static_hosts.read("static", machine.id) is None


def test_a_machine_that_an_older_version_stored_comes_back(database, stores):
    older = '{"id":"m","token":"t","state":"ready","endpoint":null,"detail":"","ended":""}'
    with database.sessions.write() as session:
        session.connection().exec_driver_sql(
            f"INSERT INTO static_host (provider, id, machine) VALUES ('fake', 'm', '{older}')"
        )
    assert stores.static_hosts.read("fake", "m") == Machine("m", "t", MachineState.READY)


def test_machines_are_replaced_listed_and_erased(stores):
    machine = Machine("m", "token", MachineState.BOOTING)
    other = Machine("a", "token", MachineState.READY)
    for one in (machine, other, replace(machine, state=MachineState.READY)):
        stores.static_hosts.write("fake", one)
    stores.static_hosts.write("static", machine)
    assert stores.static_hosts.pages("fake") == (other, replace(machine, state=MachineState.READY))
    for _ in range(2):
        stores.static_hosts.erase("fake", "m")
    assert stores.static_hosts.pages("fake") == (other,)
    assert stores.static_hosts.pages("static") == (machine,)
