"""Where the money went, as the page tells it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest

from orchestrator.dashboard import urls
from orchestrator.domain.budget import Budget, Period
from orchestrator.domain.schedule import Firing, FiringState, Schedule
from tests.contract.lease_stories import live, one_machine, rent, settle
from tests.databases import create
from tests.integration.api_context import BEGIN, MATRIX, Desk
from tests.integration.dashboard.desk import PageDesk, signed_in


@pytest.fixture
def pages(api: Desk) -> PageDesk:
    api.clock.time = BEGIN + timedelta(days=3)
    return signed_in(api, "admin")


def test_where_nothing_was_spent_every_table_says_what_to_do(pages: PageDesk) -> None:
    page = pages.page(urls.COSTS)
    assert page.one("h1").text == "Costs"
    assert "nothing was reserved" in page.one("dl", class_="tiles").text
    assert "No machine that cost money" in page.one(id="by_platform").text
    assert "No provider refused" in page.one(id="refusals").text
    assert "seatrial schedule add" in page.one(id="forecast").text
    told = pages.json(urls.COSTS)
    assert (told["since"], told["until"]) == ("2026-02-03", "2026-03-04")
    assert (told["settled_usd"], told["idle_usd"]) == ("0", "0")


def test_own_machines_have_no_amount(pages: PageDesk) -> None:
    one_machine(pages.stores, "run-1", usd="0", at=BEGIN, provider="local", price=Decimal(0))
    told = pages.json(urls.COSTS)
    for name in ("by_day", "by_provider", "by_platform", "by_version"):
        assert [row["spent_usd"] for row in told["tables"][name]["rows"]] == [None], name
    tiles = pages.page(urls.COSTS).one("dl", class_="tiles").text
    assert "own machine: nothing is charged" in tiles
    assert "Spent –" in tiles
    facts = pages.page("/runs/run-1/cells/p0").rows("environment")
    shown = {row["What"]: row["Value"] for row in facts}
    assert shown["price"] == "own machine: nothing is charged"


def test_money_is_told_by_everything_that_it_was_spent_on(pages: PageDesk) -> None:
    one_machine(pages.stores, "run-1", usd="1.00", at=BEGIN)
    one_machine(pages.stores, "run-2", usd="3.00", at=BEGIN + timedelta(days=1), provider="gcp")
    told = pages.json(urls.COSTS)
    assert told["settled_usd"] == "4"
    rows = {name: table["rows"] for name, table in told["tables"].items()}
    assert [(row["day"], row["spent_usd"]) for row in rows["by_day"]] == [
        ("2026-03-01", "1"),
        ("2026-03-02", "3"),
    ]
    assert [row["provider"] for row in rows["by_provider"]] == ["gcp", "aws"]
    assert rows["by_version"][0]["version"] == "lib 1.10"
    assert rows["by_platform"][0]["machines"] == 2
    assert [row["run"] for row in rows["runs"]] == ["run-2", "run-1"]
    phases = {row["phase"]: row["spent_usd"] for row in rows["phases"]}
    assert Decimal(phases["running"]) == pytest.approx(Decimal(2), abs=Decimal("0.001"))
    assert Decimal(told["idle_usd"]) == pytest.approx(Decimal(2), abs=Decimal("0.001"))
    page = pages.page(urls.COSTS)
    tiles = page.one("dl", class_="tiles").text
    assert "$4.00" in tiles
    assert "50.0% was paid while no job ran" in tiles
    assert "80.0% of the $5.00 that was reserved" in tiles
    assert page.one("svg", class_="day-columns")["aria-label"].startswith("Spend by day")


def test_budgets_across_runs_are_told_with_what_is_used(api: Desk) -> None:
    api.clock.time = BEGIN + timedelta(hours=2)
    budgets = (Budget(Period.DAY, Decimal("1.25")), Budget(Period.MONTH, Decimal(40)))
    pages = signed_in(replace(api, context=replace(api.context, budgets=budgets)), "read")
    one_machine(pages.stores, "run-1", usd="1.00", at=BEGIN)
    page = pages.page(urls.COSTS)
    told = page.one(id="budgets").text
    assert "SEATRIAL_BUDGET_DAY_USD" in told
    assert "80 % or more" in told
    rows = pages.json(urls.COSTS)["tables"]["budgets"]["rows"]
    assert [(row["period"], row["settled_usd"], row["share"]) for row in rows] == [
        ("day", "1", "80.0%"),
        ("month", "1", "2.5%"),
    ]


def test_the_address_says_which_days(pages: PageDesk) -> None:
    one_machine(pages.stores, "run-1", usd="1.00", at=BEGIN)
    one_machine(pages.stores, "run-2", usd="3.00", at=BEGIN + timedelta(days=1))
    one_day = pages.json(f"{urls.COSTS}?since=2026-03-01&until=2026-03-01")
    assert one_day["settled_usd"] == "1"
    turned = pages.json(f"{urls.COSTS}?since=2026-03-02&until=2026-03-01")
    assert (turned["since"], turned["until"], turned["settled_usd"]) == (
        "2026-03-01",
        "2026-03-02",
        "4",
    )
    assert pages.json(f"{urls.COSTS}?until=2030-01-01")["until"] == "2026-03-04"
    assert pages.json(f"{urls.COSTS}?since=1990-01-01")["since"] == "2023-02-28"
    pages.get(f"{urls.COSTS}?since=soon", status=422)
    weeks = pages.page(f"{urls.COSTS}?since=2025-03-05")
    assert weeks.one("figcaption").text.startswith("Spend by week")


def test_what_runs_now_is_told_beside(pages: PageDesk) -> None:
    (cell,) = create(pages.stores, platforms=1)
    rent(pages.stores, cell, "l-1", at=BEGIN)
    live(pages.stores, cell, "l-1", at=BEGIN)
    pages.api.clock.time = BEGIN + timedelta(hours=1, seconds=50)
    told = pages.json(urls.COSTS)
    assert (told["settled_usd"], told["unsettled_usd"], told["reserved_usd"]) == (
        "0",
        "0.7000",
        "2.5",
    )
    assert (
        "so far, by 1 machine; at most $2.50"
        in pages.page(urls.COSTS).one("dl", class_="tiles").text
    )


def test_refusals_are_told_with_their_last_words(pages: PageDesk) -> None:
    (cell,) = create(pages.stores, platforms=1)
    rent(pages.stores, cell, "l-1", at=BEGIN)
    said = "capacity: <b>none</b> is left"
    settle(pages.stores, "l-1", "0", at=BEGIN + timedelta(minutes=1), refusal=said)
    (row,) = pages.rows(urls.COSTS, "refusals")
    assert (row["provider"], row["reason"], row["times"]) == ("aws", "capacity", 1)
    assert "<b>none</b> is left" in pages.page(urls.COSTS).one(id="refusals").text


def test_tonight_is_reckoned_from_the_last_nights(pages: PageDesk) -> None:
    schedules = pages.stores.schedules
    nightly = Schedule(
        name="nightly", cron="0 2 * * *", tz="UTC", owner="me", matrix=MATRIX, created_at=BEGIN
    )
    schedules.add(nightly, next_due_at=BEGIN + timedelta(days=9))
    paused = replace(nightly, name="weekly", paused_at=BEGIN)
    schedules.add(paused, next_due_at=BEGIN + timedelta(days=9))
    for number, usd in enumerate(("1.00", "9.00", "2.00"), 1):
        one_machine(pages.stores, f"run-{number}", usd=usd, at=BEGIN)
        due = BEGIN + timedelta(hours=number)
        schedules.trigger(
            Firing(
                schedule="nightly",
                due_at=due,
                claimed_at=due,
                state=FiringState.NOTIFIED,
                run=f"run-{number}",
            )
        )
    first, second = pages.rows(urls.COSTS, "forecast")
    assert (first["schedule"], first["next_at"]) == ("nightly", "2026-03-05T02:00:00+00:00")
    assert (first["likely_usd"], first["from_usd"], first["to_usd"]) == ("2", "1", "9")
    assert first["of"] == "$2.00, $9.00, $1.00"
    assert (second["next_at"], second["of"]) == ("paused", "no run with a cost is over yet")


def test_more_runs_are_on_the_next_page(pages: PageDesk) -> None:
    for number in range(21):
        one_machine(pages.stores, f"run-{number:02}", usd=f"{number + 1}", at=BEGIN)
    told = pages.json(urls.COSTS)["tables"]["runs"]
    assert (len(told["rows"]), told["rows"][0]["run"]) == (20, "run-20")
    following = pages.json(told["next"])["tables"]["runs"]
    assert [row["run"] for row in following["rows"]] == ["run-00"]
    assert following["next"] is None


def test_costs_are_csv_and_markdown_too(pages: PageDesk) -> None:
    one_machine(pages.stores, "run-1", usd="1.00", at=BEGIN)
    assert pages.csv(f"{urls.COSTS}?table=by_day")[1][0] == "2026-03-01"
    assert "| 2026-03-01 |" in pages.markdown(f"{urls.COSTS}?table=by_day").replace("\\-", "-")


def test_more_machines_cost_no_more_statements(pages: PageDesk) -> None:
    pages.json(urls.COSTS)  # notes that the token was used, once a while
    asked = []
    for number in range(2):
        for at in range(3):
            one_machine(pages.stores, f"run-{number}-{at}", at=BEGIN)
        with pages.counted() as statements:
            pages.json(urls.COSTS)
        asked.append(len(statements))
    assert asked[0] == asked[1] < 20
