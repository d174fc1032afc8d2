"""What belongs to a lease, and what the janitor and the prices need: on SQLite and on Postgres."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from functools import partial
from itertools import permutations
from pathlib import Path

import pytest

from orchestrator.domain.attestation import Attestation, Device
from orchestrator.domain.budget import Budget, Period
from orchestrator.domain.cell import (
    Cause,
    CellState,
    LeaseState,
    PlacementDecision,
    PlacementResult,
)
from orchestrator.domain.machine import Login
from orchestrator.domain.outcome import Outcome
from orchestrator.domain.prices import Price
from orchestrator.store.database import open_database
from orchestrator.store.errors import DamagedError, UnknownIdError
from orchestrator.store.leases import Reservation
from tests.databases import NOW, advance, after, attempt, create, lease, together

LOGIN = Login("ssh-ed25519 AAAA", "-----BEGIN secret one", "ssh-ed25519 BBBB", "secret two")
OTHER = Login("ssh-ed25519 CCCC", "other", "ssh-ed25519 DDDD", "other")
SEEN = Attestation(
    facts={"instance_id": "i-1", "image_id": "ami-1"},
    devices=(Device("nvidia", "NVIDIA A10G", "GPU-1", "8.6", "580.1"),),
    torch="2.9.1+cu130",
    simulated=False,
    mismatch="",
)


@pytest.fixture
def opened(stores):
    """Two cells with an attempt and a lease each."""
    attempts = [attempt(stores, cell_id) for cell_id in create(stores)]
    for number, of in enumerate(attempts, 1):
        stores.leases.reserve(lease(f"l{number}", of), run_id="run-1", exclusive=False)
    return attempts


def rows(database, table):
    with database.sessions.read() as session:
        return session.connection().exec_driver_sql(f"SELECT * FROM {table}").all()


def run_sql(database, statement):
    with database.sessions.write() as session:
        session.connection().exec_driver_sql(statement)


def test_the_first_keys_of_a_lease_stand(stores, opened):
    assert stores.leases.login("l1") is None
    assert stores.leases.keep_login("l1", LOGIN) == LOGIN
    assert stores.leases.keep_login("l1", OTHER) == LOGIN
    assert stores.leases.login("l1") == LOGIN
    assert stores.leases.login("l2") is None
    assert stores.leases.login("nobody") is None


def test_of_many_who_make_keys_at_once_all_get_the_same(stores, opened):
    made = [replace(LOGIN, private_key=f"key {n}") for n in range(8)]
    kept = set(together(partial(stores.leases.keep_login, "l1", one) for one in made))
    assert kept == {stores.leases.login("l1")}


def test_keys_are_erased_when_the_machine_is_gone_and_never_come_back(database, stores, opened):
    stores.leases.keep_login("l1", LOGIN)
    stores.leases.keep_login("l2", OTHER)
    stores.leases.releasing("l1")
    assert stores.leases.login("l1") == LOGIN
    stores.leases.gone("l1", at=NOW, cost_usd=Decimal(0))
    assert stores.leases.login("l1") is None
    assert stores.leases.keep_login("l1", LOGIN) == LOGIN
    assert stores.leases.login("l1") is None
    assert stores.leases.login("l2") == OTHER
    assert len(rows(database, "lease_credentials")) == 1


def test_no_key_is_left_in_the_file_of_a_database(sqlite_url):
    database = open_database(sqlite_url)
    cells = create(database.stores)
    for number, of in enumerate([attempt(database.stores, cell_id) for cell_id in cells]):
        one = lease(f"l{number}", of)
        database.stores.leases.reserve(one, run_id="run-1", exclusive=False)
        database.stores.leases.keep_login(f"l{number}", replace(LOGIN, private_key="k" * 9_000))
    path = Path(sqlite_url.removeprefix("sqlite:///"))
    database.close()
    assert b"kkkkkkkk" in path.read_bytes()
    database = open_database(sqlite_url)
    for number in range(2):
        database.stores.leases.gone(f"l{number}", at=NOW, cost_usd=Decimal(0))
    database.close()
    assert b"kkkkkkkk" not in path.read_bytes()
    assert b"secret two" not in path.read_bytes()


def test_keys_stand_in_no_log_no_feed_and_no_error(database, stores, opened, caplog):
    caplog.set_level(logging.DEBUG)
    stores.leases.keep_login("l1", LOGIN)
    assert "secret" not in repr(stores.leases.login("l1"))
    assert "secret" not in repr(stores.leases.get("l1"))
    assert "secret" not in repr(rows(database, "run_event"))
    run_sql(
        database, "UPDATE lease_credentials SET login = replace(login, 'host_public_key', 'lost')"
    )
    with pytest.raises(DamagedError, match="a stored Login cannot be read back: host_pub") as bad:
        stores.leases.login("l1")
    assert "secret" not in f"{bad.value!r} {bad.value.__context__!r} {bad.value.__cause__!r}"
    assert "secret" not in caplog.text


def test_an_attestation_comes_back_and_the_last_one_stands(stores, opened):
    stores.leases.attest("l2", replace(SEEN, torch=""))
    stores.leases.attest("l1", SEEN)
    stores.leases.attest("l2", replace(SEEN, mismatch="asked for L4", devices=(), simulated=True))
    found = stores.leases.attested("run-1")[1]
    assert list(found) == ["l1", "l2"]
    assert found["l1"] == SEEN
    assert found["l2"] == replace(SEEN, mismatch="asked for L4", devices=(), simulated=True)
    assert stores.leases.attested("run-2")[1] == {}
    # A cell that closes needs its own only, however large its run is.
    assert [stores.leases.attestations(of) for of in opened] == [
        {lease_id: found[lease_id]} for lease_id in ("l1", "l2")
    ]
    assert stores.leases.attestations("nothing") == {}
    stores.leases.gone("l1", at=NOW, cost_usd=Decimal(0))
    assert stores.leases.attested("run-1")[1]["l1"] == SEEN, "it outlives its machine"


def test_what_a_machine_says_of_itself_cannot_break_the_store(stores, opened):
    hostile = "a\x00b\ud800\u2028" + "x" * 10_000
    said = replace(SEEN, devices=(Device(hostile, hostile),), facts={hostile: hostile})
    stores.leases.attest("l1", said)
    kept = stores.leases.attested("run-1")[1]["l1"]
    assert kept.devices[0].name == "a\ufffdb\ufffd\u2028" + "x" * 10_000
    assert next(iter(kept.facts)).startswith("a\ufffdb\ufffd")
    stores.leases.note("l1", {hostile: hostile}, simulated=False)
    assert stores.leases.get("l1").facts == {kept.devices[0].name: kept.devices[0].name}


def gone(stores, lease_id, usd, *, seconds=0.0, refusal=""):
    stores.leases.gone(lease_id, at=after(seconds), cost_usd=Decimal(usd), refusal=refusal)


def test_a_machine_that_turns_up_late_is_paid_for_after_all(database, stores, opened):
    stores.leases.launching("l1", at=after(1))
    gone(stores, "l1", "0", seconds=9, refusal="never made")
    advance(stores, "run-1.p0", CellState.RELEASING)
    stores.cells.conclude("run-1.p0", Cause(Outcome.ERRORED, "capacity"), at=after(10))
    stores.leases.reopen("l1", "us-east-1/i-9")
    stores.leases.reopen("l1", "us-east-1/i-10")
    again = stores.leases.get("l1")
    assert (again.state, again.machine_id) == (LeaseState.RELEASING, "us-east-1/i-9")
    assert (again.launched_at, again.gone_at, again.cost_usd) == (after(1), None, None)
    assert [x.id for x in stores.leases.open()] == ["l1", "l2"]
    assert stores.leases.placed("run-1.p1-1", "fake", NOW)[1] == []
    gone(stores, "l1", "0.25", seconds=99, refusal=again.refusal)
    assert stores.leases.get("l1").cost_usd == Decimal("0.25")
    ((_, usd, *_),) = rows(database, "cell_rollup")
    assert Decimal(usd) == Decimal("0.25")


def test_a_lease_that_was_never_asked_for_is_opened_again_from_its_reservation(stores, opened):
    gone(stores, "l1", "0")
    stores.leases.reopen("l1", "i-9")
    assert stores.leases.get("l1").launched_at == NOW


def test_what_is_opened_again_does_not_hold_a_place_that_another_has(stores, opened):
    places = partial(lease, place="host")
    for name, of in (("l3", opened[0]), ("l4", opened[1])):
        answer = stores.leases.reserve(places(name, of), run_id="run-1", exclusive=True)
        assert answer.answer is Reservation.RESERVED
        if name == "l3":
            gone(stores, "l3", "0")
    stores.leases.reopen("l3", "m-1")
    assert {x.id: x.state for x in stores.leases.open()}["l3"] is LeaseState.RELEASING


def test_what_is_opened_again_counts_against_the_money_of_its_run(stores, opened):
    gone(stores, "l1", "0")
    stores.leases.reopen("l1", "m-1")
    more = lease("l3", opened[1], usd="0.01")
    two = Budget(Period.RUN, Decimal(2))
    told = stores.leases.reserve(more, run_id="run-1", exclusive=False, budgets=[two])
    assert (told.answer, told.short.budget) == (Reservation.BUDGET_RESERVED, two)


def test_only_a_lease_that_is_gone_can_be_opened_again(stores, opened):
    stores.leases.launching("l1", at=NOW)
    before = stores.leases.get("l1")
    stores.leases.reopen("l1", "i-9")
    assert stores.leases.get("l1") == before


def test_every_provider_that_ever_had_a_lease_is_named_once(stores, opened):
    assert stores.leases.providers() == ["fake"]
    other = replace(lease("l3", opened[0]), provider="aws")
    stores.leases.reserve(other, run_id="run-1", exclusive=False)
    gone(stores, "l3", "0")
    assert stores.leases.providers() == ["aws", "fake"]


def decision(
    place, result=PlacementResult.REFUSED, reason="capacity", *, seconds=0.0, detail="none"
):
    return PlacementDecision(after(seconds), place, result, reason, detail)


def test_decisions_keep_their_order_and_are_made_once(stores, opened):
    stores.leases.decide(opened[0], decision("b", PlacementResult.SKIPPED, "quota"))
    stores.leases.decide(opened[0], decision("a", seconds=1, detail="InsufficientInstanceCapacity"))
    stores.leases.decide(opened[0], decision("a", seconds=2, detail="again"))
    stores.leases.decide(opened[0], decision("a", PlacementResult.AGAIN, "throttle", seconds=3))
    stores.leases.decide(opened[0], decision("c", PlacementResult.CHOSEN, "", seconds=4))
    found = stores.leases.decisions("run-1")
    assert list(found) == ["run-1.p0", "run-1.p1"]
    assert [(x.place, x.result, x.reason) for x in found["run-1.p0"]] == [
        ("b", PlacementResult.SKIPPED, "quota"),
        ("a", PlacementResult.REFUSED, "capacity"),
        ("a", PlacementResult.AGAIN, "throttle"),
        ("c", PlacementResult.CHOSEN, ""),
    ]
    first = decision("a", seconds=1, detail="InsufficientInstanceCapacity")
    assert found["run-1.p0"][1] == replace(first, attempt=1)
    assert found["run-1.p1"] == []


def test_decisions_of_later_attempts_come_later_and_say_whose_they_are(stores, opened):
    stores.leases.decide(opened[0], decision("a"))
    advance(stores, "run-1.p0", CellState.RELEASING)
    stores.cells.requeue(opened[0], Cause(Outcome.ERRORED, "lost"), at=NOW)
    second = attempt(stores, "run-1.p0", 2)
    stores.leases.decide(second, decision("a"))
    stores.leases.decide(opened[0], decision("z"))
    found = stores.leases.decisions("run-1")["run-1.p0"]
    assert [(x.attempt, x.place) for x in found] == [(1, "a"), (1, "z"), (2, "a")]


def test_a_decision_that_many_make_at_once_is_one(stores, opened):
    asks = [partial(stores.leases.decide, opened[0], decision(f"p{n % 3}")) for n in range(9)]
    assert sorted(together(asks)) == [False] * 6 + [True] * 3
    assert sorted(x.place for x in stores.leases.decisions("run-1")["run-1.p0"]) == [
        "p0",
        "p1",
        "p2",
    ]


def test_words_of_a_provider_of_any_length_are_kept(stores, opened):
    long = "NUL \x00 " + "\U0001f600" * 5_000
    for _ in range(2):
        stores.leases.decide(opened[0], decision(long, reason=long, detail=long))
    (one,) = stores.leases.decisions("run-1")["run-1.p0"]
    assert one.detail == long.replace("\x00", "\ufffd")
    assert one.place.startswith("NUL \ufffd")


def test_what_is_unknown_is_an_error_that_names_it(stores, opened):
    with pytest.raises(UnknownIdError, match="no lease 'nobody'"):
        stores.leases.keep_login("nobody", LOGIN)
    with pytest.raises(UnknownIdError, match="no lease 'nobody'"):
        stores.leases.attest("nobody", SEEN)
    with pytest.raises(UnknownIdError, match="no lease 'nobody'"):
        stores.leases.note("nobody", {}, simulated=False)
    with pytest.raises(UnknownIdError, match="no attempt 'nobody'"):
        stores.leases.decide("nobody", decision("a"))


def test_what_is_seen_again_keeps_the_time_it_was_first_seen(stores):
    assert stores.orphans.see("aws", ["i-1", "i-2"], at=NOW) == {"i-1": NOW, "i-2": NOW}
    seen = stores.orphans.see("aws", ["i-2", "i-3", "i-3"], at=after(60))
    assert seen == {"i-2": NOW, "i-3": after(60)}


def test_what_is_not_seen_is_forgotten_and_new_when_it_comes_back(stores):
    stores.orphans.see("aws", ["i-1", "i-2"], at=NOW)
    stores.orphans.see("gcp", ["i-1"], at=NOW)
    assert stores.orphans.see("aws", ["i-2"], at=after(1)) == {"i-2": NOW}
    assert stores.orphans.see("aws", ["i-1"], at=after(2)) == {"i-1": after(2)}
    assert stores.orphans.see("aws", [], at=after(3)) == {}
    assert stores.orphans.see("aws", ["i-1"], at=after(4)) == {"i-1": after(4)}
    assert stores.orphans.see("gcp", ["i-1"], at=after(5)) == {"i-1": NOW}


def test_what_could_not_be_read_is_not_forgotten(stores):
    stores.orphans.see("aws", ["i-1", "i-2", "i-3"], at=NOW)
    assert stores.orphans.see("aws", ["i-2"], at=after(1), cleared=["i-3"]) == {"i-2": NOW}
    seen = stores.orphans.see("aws", ["i-1", "i-2", "i-3"], at=after(2))
    assert seen == {"i-1": NOW, "i-2": NOW, "i-3": after(2)}


def test_names_that_only_differ_at_their_end_are_two(stores):
    one, two = "x" * 5_000 + "1", "x" * 5_000 + "2"
    stores.orphans.see("aws", [one], at=NOW)
    assert stores.orphans.see("aws", [one, two], at=after(1)) == {one: NOW, two: after(1)}


def test_janitors_that_look_at_once_agree(stores):
    machines = [f"i-{n:03}" for n in range(40)]
    parts = [machines[n::7] for n in range(7)] + [machines, machines[::-1], []]
    looks = [partial(stores.orphans.see, "aws", part, at=NOW) for part in parts]
    assert together(looks) == [dict.fromkeys(part, NOW) for part in parts]


def price(usd="1.006", *, days=0, **changes):
    one = Price("aws", "g5.xlarge", "us-east-1", "on-demand", Decimal(usd), NOW, "table")
    return replace(one, as_of=NOW + timedelta(days=days), **changes)


def test_prices_come_back_to_the_last_digit(stores):
    asked = [price(), price("0.4310", market="spot", place="us-east-1a", source="spot history")]
    stores.prices.write(iter([*asked, price("9", provider="gcp")]))
    assert stores.prices.of("aws") == tuple(asked)
    assert str(stores.prices.of("aws")[1].usd_per_hour) == "0.4310"
    assert stores.prices.of("azure") == ()
    stores.prices.write([])


def test_only_a_newer_price_replaces_one_at_once_or_one_by_one(stores):
    three = [price(str(n + 1), days=n, source=f"read {n}") for n in range(3)]
    for order in permutations(three):
        at_once, one_by_one = ("".join(one.source[-1] for one in order) + how for how in "ab")
        stores.prices.write(replace(one, item=at_once) for one in order)
        for one in order:
            stores.prices.write([replace(one, item=one_by_one)])
        stores.prices.write([replace(three[2], item=at_once, usd_per_hour=Decimal(9))])
        kept = {one.item: one for one in stores.prices.of("aws")}
        for item in (at_once, one_by_one):
            assert kept[item] == replace(three[2], item=item)
