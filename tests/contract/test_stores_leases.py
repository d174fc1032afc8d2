"""The ledger: the same questions to SQLite and to Postgres."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial

import pytest

from orchestrator.domain.budget import Budget, Period
from orchestrator.domain.cell import LeaseState
from orchestrator.domain.machine import FakeEndpoint, LocalEndpoint, Place, SshEndpoint
from orchestrator.store.errors import UnknownIdError
from orchestrator.store.leases import Reservation
from tests.databases import NOW, ON_SQLITE, after, attempt, create, lease, together


@pytest.fixture
def opened(stores):
    """Two cells with an attempt each."""
    return [attempt(stores, cell_id) for cell_id in create(stores)]


def reserve(stores, one, *, run_id="run-1", exclusive=False, max_usd=None, budgets=()):
    if max_usd is not None:
        budgets = (Budget(Period.RUN, Decimal(max_usd)), *budgets)
    return stores.leases.reserve(one, run_id=run_id, exclusive=exclusive, budgets=budgets).answer


def test_a_lease_comes_back_as_it_was_reserved(stores, opened):
    one = lease("l1", opened[0], usd="0.10")
    assert reserve(stores, one) is Reservation.RESERVED
    assert stores.leases.get("l1") == one
    assert str(stores.leases.get("l1").price_usd_per_hour) == "0.7000"


def test_a_lease_that_exists_is_reserved(stores, opened):
    one = lease("l1", opened[0])
    reserve(stores, one, exclusive=True, max_usd="1")
    assert reserve(stores, one, exclusive=True, max_usd="1") is Reservation.RESERVED
    assert len(stores.leases.open()) == 1


@ON_SQLITE
def test_the_ways_to_a_machine_come_back(stores, opened):
    reserve(stores, lease("l1", opened[0]))
    for endpoint in (
        LocalEndpoint("here"),
        SshEndpoint("10.0.0.5", "ubuntu", "ssh-ed25519 AAAA", "id_ed25519", 2222),
        SshEndpoint("10.0.0.5", "ubuntu", "ssh-ed25519 AAAA", lease="l1"),
        FakeEndpoint("m-1"),
    ):
        stores.leases.reached("l1", endpoint)
        assert stores.leases.get("l1").endpoint == endpoint


def test_the_life_of_a_lease(stores, opened):
    reserve(stores, lease("l1", opened[0]))
    stores.leases.launching("l1", at=after(1))
    stores.leases.launching("l1", at=after(2))
    assert stores.leases.get("l1").launched_at == after(1)
    stores.leases.active("l1", "m-1", at=after(3))
    held = stores.leases.get("l1")
    assert (held.state, held.machine_id, held.launched_at) == (LeaseState.ACTIVE, "m-1", after(1))
    stores.leases.launching("l1", at=after(4))
    assert stores.leases.get("l1").state is LeaseState.ACTIVE
    stores.leases.releasing("l1")
    stores.leases.active("l1", "m-2", at=after(5))
    late = stores.leases.get("l1")
    assert (late.state, late.machine_id) == (LeaseState.RELEASING, "m-1")
    for usd in ("0.123", "9"):
        stores.leases.gone("l1", at=after(6), cost_usd=Decimal(usd), refusal="capacity: none")
    gone = stores.leases.get("l1")
    assert (gone.state, gone.gone_at, gone.cost_usd) == (
        LeaseState.GONE,
        after(6),
        Decimal("0.123"),
    )
    assert gone.refusal == "capacity: none"
    stores.leases.releasing("l1")
    assert stores.leases.get("l1").state is LeaseState.GONE
    assert stores.leases.open() == []


def test_an_exclusive_place_is_given_once_until_it_is_free(stores, opened):
    assert reserve(stores, lease("l1", opened[0]), exclusive=True) is Reservation.RESERVED
    assert reserve(stores, lease("l2", opened[1]), exclusive=True) is Reservation.BUSY
    other = lease("l3", opened[1], place="elsewhere")
    assert reserve(stores, other, exclusive=True) is Reservation.RESERVED
    with pytest.raises(UnknownIdError):
        stores.leases.get("l2")
    stores.leases.gone("l1", at=NOW, cost_usd=Decimal(0))
    assert reserve(stores, lease("l2", opened[1]), exclusive=True) is Reservation.RESERVED


def test_a_place_for_many_is_never_busy(stores, opened):
    for number in range(3):
        answer = reserve(stores, lease(f"l{number}", opened[0]))
        assert answer is Reservation.RESERVED


def test_an_exclusive_place_is_given_to_one_of_many_runs(stores):
    asks = []
    for number in range(8):
        (cell_id,) = create(stores, f"r{number}", platforms=1)
        one = lease(f"l{number}", attempt(stores, cell_id))
        asks.append(partial(reserve, stores, one, run_id=f"r{number}", exclusive=True))
    answers = together(asks)
    assert sorted(answers) == [Reservation.BUSY] * 7 + [Reservation.RESERVED]


def test_money_is_never_promised_twice(stores, opened):
    asks = [
        partial(reserve, stores, lease(f"l{n}", opened[0], usd="0.30"), max_usd="1.00")
        for n in range(10)
    ]
    assert together(asks).count(Reservation.RESERVED) == 3


def test_money_not_spent_is_free_again(stores, opened):
    assert reserve(stores, lease("l1", opened[0], usd="4"), max_usd="4") is Reservation.RESERVED
    assert reserve(stores, lease("l2", opened[1], usd="0.01"), max_usd="4") is (
        Reservation.BUDGET_RESERVED
    ), "the first may settle below what it has reserved"
    stores.leases.gone("l1", at=NOW, cost_usd=Decimal("0.10"))
    assert reserve(stores, lease("l2", opened[1], usd="3.90"), max_usd="4") is Reservation.RESERVED
    assert reserve(stores, lease("l3", opened[1], usd="0.01"), max_usd="4") is (
        Reservation.BUDGET_RESERVED
    )
    assert reserve(stores, lease("l3", opened[1], usd="3.91"), max_usd="4") is (
        Reservation.OVER_BUDGET
    ), "0.10 USD are spent"


DAY = Budget(Period.DAY, Decimal(4))
MONTH = Budget(Period.MONTH, Decimal(6))
PROJECT = Budget(Period.PROJECT, Decimal(7))


def other_run(stores, number, *, usd, at, untrusted=False):
    (cell_id,) = create(stores, f"r{number}", platforms=1, untrusted=untrusted)
    one = lease(f"o{number}", attempt(stores, cell_id), usd=usd)
    return {"one": replace(one, reserved_at=at), "run_id": f"r{number}"}


def test_a_day_a_month_and_the_project_are_limited_across_runs(stores):
    night = datetime(2026, 11, 20, 23, 59, tzinfo=UTC)
    budgets, hour = (DAY, MONTH, PROJECT), timedelta(hours=1)

    def asked(number, usd, at):
        ask = other_run(stores, number, usd=usd, at=at)
        told = stores.leases.reserve(
            ask["one"], run_id=ask["run_id"], exclusive=False, budgets=budgets
        )
        return told.answer, told.short and told.short.budget

    assert asked(1, "3", night) == (Reservation.RESERVED, None)
    assert asked(2, "2", night) == (Reservation.BUDGET_RESERVED, DAY)
    stores.leases.gone("o1", at=night, cost_usd=Decimal("2.50"))
    assert asked(3, "2", night) == (Reservation.OVER_BUDGET, DAY), "2.50 are spent"
    assert asked(4, "3", night + hour) == (Reservation.RESERVED, None), "another day"
    assert asked(5, "1", night + hour) == (Reservation.BUDGET_RESERVED, MONTH)
    assert asked(6, "1", night + 20 * 24 * hour) == (Reservation.RESERVED, None), "December"
    assert asked(7, "1", night + 20 * 24 * hour) == (Reservation.BUDGET_RESERVED, PROJECT)
    uses = stores.leases.budget_uses(budgets, night + hour)
    assert [(use.settled_usd, use.reserved_usd) for use in uses] == [
        (Decimal(0), Decimal(4)),
        (Decimal("2.5"), Decimal(4)),
        (Decimal("2.5"), Decimal(4)),
    ]


def test_untrusted_runs_have_a_budget_of_a_day_beside_the_others(stores):
    budgets = (PROJECT, Budget(Period.UNTRUSTED, Decimal(2)))
    for number, usd, untrusted in ((1, "3", False), (2, "1.50", True)):
        ask = other_run(stores, number, usd=usd, at=NOW, untrusted=untrusted)
        assert reserve(stores, budgets=budgets[: 1 + untrusted], **ask) is Reservation.RESERVED
    ask = other_run(stores, 3, usd="1", at=NOW, untrusted=True)
    assert reserve(stores, budgets=budgets, **ask) is Reservation.BUDGET_RESERVED
    uses = stores.leases.budget_uses(budgets, NOW)
    assert [use.reserved_usd for use in uses] == [Decimal("4.5"), Decimal("1.5")]
    assert stores.runs.get("r2").untrusted
    assert not stores.runs.get("r1").untrusted
    ask = other_run(stores, 4, usd="1", at=NOW + timedelta(days=1), untrusted=True)
    assert reserve(stores, budgets=budgets, **ask) is Reservation.RESERVED, "another day"


def test_a_machine_of_an_emulation_uses_no_budget_across_runs(stores):
    ask = other_run(stores, 1, usd="4", at=NOW)
    reserve(stores, budgets=(PROJECT,), **ask)
    stores.leases.launching("o1", at=NOW)
    stores.leases.active("o1", "m-1", at=NOW, simulated=True)
    (use,) = stores.leases.budget_uses((PROJECT,), NOW)
    assert use.used_usd == 0


def test_money_of_a_day_is_never_promised_twice_to_many_runs(stores):
    asks = [other_run(stores, number, usd="0.30", at=NOW) for number in range(10)]
    day = (Budget(Period.DAY, Decimal(1)),)
    answers = together([partial(reserve, stores, budgets=day, **ask) for ask in asks])
    assert sorted(answers).count(Reservation.RESERVED) == 3


def test_another_runs_money_is_another_runs(stores, opened):
    (cell_id,) = create(stores, "run-2", platforms=1)
    mine = lease("l2", attempt(stores, cell_id))
    reserve(stores, lease("l1", opened[0]), max_usd="1")
    assert reserve(stores, mine, run_id="run-2", max_usd="1") is Reservation.RESERVED


def test_leases_are_found_by_attempt_and_by_run(stores, opened):
    for name, of in (("b", opened[0]), ("a", opened[0])):
        reserve(stores, lease(name, of))
    assert [x.id for x in stores.leases.of_attempt(opened[0])] == ["b", "a"]
    assert stores.leases.of_attempt(opened[1]) == []
    by_cell = stores.leases.of_run("run-1")
    assert {c: [x.id for x in found] for c, found in by_cell.items()} == {
        "run-1.p0": ["b", "a"],
        "run-1.p1": [],
    }
    assert by_cell["run-1.p0"][0] == lease("b", opened[0])


OFFER = Place(
    "us-east-1a/g5.xlarge/spot",
    price_usd_per_hour=Decimal("0.4310"),
    disk_usd_per_hour=Decimal("0.01644"),
    address_usd_per_hour=Decimal("0.005"),
    minimum_s=60,
    priced="table 2026-11-21",
    region="us-east-1",
    zone="us-east-1a",
    market="spot",
    instance_type="g5.xlarge",
    options={"zone_id": "use1-az4", "a": "b"},
)


def test_an_offer_comes_back_to_the_last_digit(stores, opened):
    one = replace(lease("l1", opened[0]), offer=OFFER, facts={"zone": "x"}, simulated=True)
    reserve(stores, one)
    kept = stores.leases.get("l1")
    assert kept == one
    assert str(kept.offer.price_usd_per_hour) == "0.4310"
    assert list(kept.offer.options) == ["zone_id", "a"]


def test_what_is_noted_of_a_machine_adds_up(stores, opened):
    reserve(stores, lease("l1", opened[0]))
    stores.leases.note("l1", {"instance_id": "i-1", "zone": "a"}, simulated=False)
    stores.leases.note("l1", {"zone": "b", "image_id": "ami-1"}, simulated=False)
    stores.leases.note("l1", {}, simulated=False)
    noted = stores.leases.get("l1")
    assert noted.facts == {"instance_id": "i-1", "zone": "b", "image_id": "ami-1"}
    assert not noted.simulated
    for simulated in (True, False):
        stores.leases.note("l1", {}, simulated=simulated)
    assert stores.leases.get("l1").simulated, "once is always"


def refuse(stores, lease_id, attempt_id, *, seconds, refusal="capacity: none", **changes):
    of = changes.pop("run_id", "run-1")
    reserve(stores, replace(lease(lease_id, attempt_id), **changes), run_id=of)
    stores.leases.gone(lease_id, at=after(seconds), cost_usd=Decimal(0), refusal=refusal)


def test_refusals_of_every_run_are_remembered_newest_first(stores, opened):
    (cell_id,) = create(stores, "run-2", platforms=1)
    refuse(stores, "before", opened[0], seconds=9)
    refuse(stores, "on-time", opened[0], seconds=10)
    refuse(stores, "newest", attempt(stores, cell_id), seconds=12, run_id="run-2", offer=OFFER)
    refuse(stores, "newer", opened[1], seconds=11)
    refuse(stores, "given", opened[1], seconds=11, refusal="")
    refuse(stores, "elsewhere", opened[1], seconds=11, provider="gcp")
    reserve(stores, lease("open", opened[1]))
    _, found = stores.leases.placed("nobody's", "fake", after(10))
    assert [x.id for x in found] == ["newest", "newer", "on-time"]
    assert (found[0].offer, found[1].attempt_id) == (OFFER, opened[1])
    mine, others = stores.leases.placed(opened[0], "fake", after(10))
    assert [x.id for x in mine] == ["before", "on-time"]
    assert [x.id for x in others] == ["newest", "newer"]


def test_leases_are_found_by_the_tokens_that_machines_carry(stores, opened):
    for name in ("l1", "l2"):
        reserve(stores, lease(name, opened[0]))
    stores.leases.gone("l2", at=NOW, cost_usd=Decimal(0))
    strange = ["l2", "l2", "L1", "", "nobody's", "a\x00b", "\ud800", "x" * 100_000]
    found = stores.leases.by_token(strange)
    assert {key: one.state for key, one in found.items()} == {"l2": LeaseState.GONE}
    assert stores.leases.by_token(f"t{n}" for n in range(5_000)) == {}
    assert stores.leases.by_token([]) == {}
