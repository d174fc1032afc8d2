"""What is rented, orphans, and ending it: without waiting for a cloud to look."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.dashboard import urls
from orchestrator.domain.cell import LeaseFact
from tests.integration.api_clouds import Clouds, clouds
from tests.integration.dashboard.desk import PageDesk


@pytest.fixture
def here(pages: PageDesk) -> Clouds:
    return clouds(pages.api)


@pytest.fixture
def desk(pages: PageDesk, here: Clouds) -> PageDesk:
    """Pages over the same cloud."""
    context = pages.api.context
    traits = {"fake": context.traits["fake"]}
    janitor = replace(context.janitor, provider=lambda _: here.provider, traits=traits)
    pages.api.context = replace(
        context, janitor=janitor, traits=traits, provider=lambda _: here.provider
    )
    return pages.as_viewer("admin")


def sweep(desk: PageDesk) -> None:
    desk.api.context.janitor.sweep()


def test_nothing_is_running_and_that_is_said(desk: PageDesk) -> None:
    page = desk.page(urls.MACHINES)
    assert (
        "No machine is running; nothing costs money." in page.one("header", class_="page-head").text
    )
    assert "where this controller has credentials of it" in page.one(id="providers").text
    assert "every three minutes" not in page.one("main").text
    assert not page.all(class_="bad")


def test_a_machine_stands_there_with_its_run_its_price_and_its_end(
    desk: PageDesk, here: Clouds
) -> None:
    run = str(desk.api.launch()["id"])
    desk.api.begin(run, "here")
    here.lease(run, "here", "lease-1")
    desk.api.clock.move(hours=1)
    (row,) = desk.rows(urls.MACHINES, "rented")
    assert (row["machine"], row["provider"], row["cell"]) == ("fake-lease-1", "fake", "here")
    assert (row["state"], row["age_s"], row["cost_usd"]) == ("active", 3600.0, "1.0233")
    assert row["expires_at"] > row["launched_at"] if "launched_at" in row else row["expires_at"]
    shown = desk.page(urls.MACHINES)
    links = [link["href"] for link in shown.one(id="rented").all("a")]
    assert urls.cell_url(run, "here") in links
    assert "no money" in shown.one("header", class_="page-head").text
    desk.api.clock.move(hours=9)
    assert "bad" in desk.page(urls.MACHINES).one(id="rented").all("tr")[1].classes


def test_an_orphan_is_loud_and_known_without_asking_the_cloud(desk: PageDesk, here: Clouds) -> None:
    name = here.rent("nobodys")
    sweep(desk)
    desk.api.clock.move(minutes=5)
    here.cloud.fail_verb("inventory", times=9)
    page = desk.page(urls.MACHINES)
    notice = page.one("section", class_="notice")
    assert notice.one("h2").text == "1 orphan costs money"
    assert "bad" in notice.classes
    (row,) = desk.rows(urls.MACHINES, "orphans")
    assert (row["machine"], row["ownership"], row["run"]) == (name, "orphan", "run-x")
    assert (row["age"], row["ends_after"]) == (
        "2026-03-01T12:00:00+00:00",
        "2026-03-01T12:20:00+00:00",
    )
    assert "1 machine orphan" in page.one(id="providers").text


def test_what_another_controller_saw_is_known_by_the_database(desk: PageDesk) -> None:
    desk.stores.orphans.see("aws", ["i-1"], at=desk.api.clock.now())
    desk.api.clock.move(hours=1)
    (row,) = desk.rows(urls.MACHINES, "orphans")
    assert (row["machine"], row["provider"]) == ("i-1", "aws")
    assert "should have ended it" in desk.page(urls.MACHINES).one(id="orphans").text


def test_a_provider_that_does_not_answer_is_told_with_what_it_said_before(
    desk: PageDesk, here: Clouds
) -> None:
    sweep(desk)
    desk.api.clock.move(minutes=3)
    here.cloud.fail_verb("inventory", times=1)
    desk.api.context.janitor.take_inventory(["fake"])
    text = desk.page(urls.MACHINES).one(id="providers").text
    assert "unknown" in text
    assert "inventory" in text
    assert "it answered last at 12:00 UTC" in text


def test_who_administers_ends_an_orphan_in_two_steps(desk: PageDesk, here: Clouds) -> None:
    name = here.rent("nobodys")
    sweep(desk)
    act = desk.page(urls.MACHINES).one(id="orphans").one("details")
    form = act.one("form")
    assert form["action"] == urls.end_machine_url("fake", name)
    assert act.one("summary").text.startswith("End")
    answer = desk.post(form["action"])
    assert answer.headers["location"] == urls.MACHINES
    here.cloud.inspect(name)
    assert here.cloud.live() == ()
    sweep(desk)
    assert desk.rows(urls.MACHINES, "orphans") == []


def test_others_are_not_offered_that_and_may_not(desk: PageDesk, here: Clouds) -> None:
    name = here.rent("nobodys")
    sweep(desk)
    for scope in ("read", "run", "gate"):
        viewer = desk.as_viewer(scope)
        assert not viewer.page(urls.MACHINES).one(id="orphans").all("form")
        viewer.post(urls.end_machine_url("fake", name), status=403)
    desk.post(urls.end_machine_url("fake", name), status=403, csrf="")
    assert here.cloud.terminates == 0


def test_a_machine_at_work_stays_and_why_is_said(desk: PageDesk, here: Clouds) -> None:
    run = str(desk.api.launch()["id"])
    desk.api.begin(run, "here")
    here.lease(run, "here", "lease-1")
    name = here.rent("lease-1", **{"seatrial-run": run})
    answer = desk.post(urls.end_machine_url("fake", name), status=409)
    assert f"seatrial cancel {run}" in answer.text
    desk.post(urls.end_machine_url("fake", "nope"), status=404)
    desk.post(urls.end_machine_url("nope", "a/b"), status=404)
    here.cloud.fail_verb("terminate", times=1)
    orphan = here.rent("nobodys")
    desk.post(urls.end_machine_url("fake", orphan), status=502)


def test_the_emergency_stop_ends_everything_for_who_administers(
    desk: PageDesk, here: Clouds
) -> None:
    run = str(desk.api.launch()["id"])
    here.rent("one", **{"seatrial-controller": "another"})
    runner = desk.as_viewer("run")
    assert "Emergency stop" not in runner.page(urls.MACHINES).text
    runner.post(f"{urls.MACHINES}/terminate-all", status=403)
    assert here.cloud.terminates == 0
    assert "Terminate everything of seatrial" in desk.page(urls.MACHINES).text
    desk.post(f"{urls.MACHINES}/terminate-all")
    assert here.cloud.terminates == 1
    assert desk.api.database.stores.runs.get(run).cancel_requested_at is not None
    here.rent("two")
    here.cloud.fail_verb("terminate", times=1)
    answer = desk.post(f"{urls.MACHINES}/terminate-all", status=502)
    assert "may still be billed" in answer.text


def test_what_went_last_is_told(desk: PageDesk, here: Clouds) -> None:
    run = str(desk.api.launch()["id"])
    desk.api.begin(run, "here")
    here.lease(run, "here", "lease-1")
    desk.api.clock.move(hours=1)
    cost = here.settle("lease-1")
    (row,) = desk.rows(urls.MACHINES, "gone")
    assert (row["machine"], row["held_s"], row["cost_usd"]) == ("fake-lease-1", 3600.0, f"{cost:f}")


def test_a_host_that_was_never_reached_was_not_held(desk: PageDesk, here: Clouds) -> None:
    run = str(desk.api.launch()["id"])
    desk.api.begin(run, "here")
    here.lease(run, "here", "lease-1")
    leases = desk.api.database.stores.leases
    asked = leases.get("lease-1").launched_at
    assert asked is not None
    leases.note("lease-1", {LeaseFact.ENDED_AT: asked.isoformat()}, simulated=False)
    desk.api.clock.move(hours=1)
    here.settle("lease-1")
    (row,) = desk.rows(urls.MACHINES, "gone")
    assert (row["machine"], row["held_s"]) == ("fake-lease-1", None)
    assert "never held" in desk.page(urls.MACHINES).text


def test_many_machines_cost_no_more_statements(desk: PageDesk, here: Clouds) -> None:
    run = str(desk.api.launch()["id"])
    desk.api.begin(run, "here")
    desk.page(urls.MACHINES)  # notes that the token was used, once a while
    asked = []
    for number in range(2):
        for at in range(5):
            here.lease(run, "here", f"lease-{number}-{at}")
        with desk.counted() as statements:
            assert len(desk.rows(urls.MACHINES, "rented")) == 5 * (number + 1)
        asked.append(len(statements))
    assert asked[0] == asked[1] < 15
