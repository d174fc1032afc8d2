"""Schedules: looked at, added, paused, triggered and removed from the page."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from orchestrator.domain.commit import Commit
from orchestrator.domain.schedule import Firing, FiringState
from tests.integration.api_context import MATRIX
from tests.integration.dashboard.desk import PageDesk
from tests.integration.dashboard.shown import read_page

GIVEN = {
    "name": "nightly",
    "cron": "0  2 * * *",
    "tz": "Europe/Berlin",
    "owner": "release team",
    "gate": "",
    "deadline": "06:00",
    "overlap": "queue",
    "catch_up": "latest",
    "matrix": MATRIX,
}


def add(pages: PageDesk, *, status: int = 303, **more: Any) -> Any:
    return pages.post("/schedules", status=status, **(GIVEN | more))


def fired(pages: PageDesk, days: int, **more: Any) -> None:
    """A firing so many days ago, as it came to its end."""
    due = pages.api.clock.now() - timedelta(days=days)
    store = pages.stores.schedules
    new = Firing(schedule="nightly", due_at=due, claimed_at=due)
    taken = store.take(store.trigger(new), "me", lease_s=60)
    assert taken is not None
    ended = {"ended_at": due + timedelta(hours=1), "deadline_at": due + timedelta(hours=2)}
    told = replace(taken, state=FiringState.NOTIFIED, **(ended | more))
    assert store.save(told, "me")


def test_none_yet(shared_pages: PageDesk) -> None:
    empty = shared_pages.page("/schedules").one(class_="empty")
    assert "seatrial schedule add" in empty.one("code").text
    form = shared_pages.page("/schedules")
    chosen = [one["value"] for one in form.all("option") if one.has("selected")]
    assert chosen == ["skip", "latest"]


def test_one_is_added_from_the_form(pages: PageDesk) -> None:
    assert add(pages).headers["location"] == "/schedules/nightly"
    (row,) = pages.page("/schedules").rows("schedules")
    assert (row["State"], row["When"]) == (
        "● active",
        "every day at 02:00, Europe/Berlin 0 2 * * *",
    )
    assert (row["Next"], row["Last"], row["Owner"]) == (
        "2026-03-02 01:00 UTC",
        "–",
        "release team verdict by 06:00, Europe/Berlin",
    )
    shown = pages.page("/schedules/nightly")
    assert "queued while an earlier one is not over" in shown.text
    assert "the latest of the last 24 h after a downtime" in shown.text
    assert "It has not fired yet" in shown.text
    assert MATRIX.splitlines()[2] in shown.one("pre").text
    told = pages.json("/schedules/nightly")
    assert (told["matrix"], told["upcoming"][0]) == (MATRIX, "2026-03-02T01:00:00+00:00")


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("name", "a b", "must be at most 64 letters"),
        ("cron", "0 2 * *", "has 4 fields"),
        ("tz", "Mars/Phobos", "is no time zone"),
        ("deadline", "soon", "must be a time of day"),
        ("gate", "none", "none"),
        ("overlap", "maybe", "must be one of"),
        ("matrix", "", "must be the text of a matrix file"),
        ("matrix", "kind: Matrix\nname: x\n", "line 1, column 1"),
    ],
)
def test_what_is_refused_is_shown_with_what_was_written(
    shared_pages: PageDesk, field: str, value: str, said: str
) -> None:
    answer = add(shared_pages, status=422, **{field: value})
    shown = answer.text
    assert said in shown
    assert f'id="{field}-mistake"' in shown
    assert 'value="release team"' in shown
    assert shared_pages.stores.schedules.list() == []


def test_one_is_changed_and_keeps_its_firings(pages: PageDesk) -> None:
    add(pages)
    store = pages.stores.schedules
    commit = Commit(sha="1f0c2d9a41b2", branch="main", author="Ann", is_dirty=True)
    known = replace(store.get("nightly"), catch_up_hours=7, commit=commit)
    assert store.replace(known, next_due_at=pages.api.clock.now())
    fired(pages, 1, outcome="passed")
    pages.post("/schedules/nightly/pause")
    shown = pages.page("/schedules?change=nightly")
    assert shown.one("h2", id="add").text == "Change nightly"
    assert shown.one("input", id="cron")["value"] == "0 2 * * *"
    changed = {**GIVEN, "change": "nightly", "name": "", "cron": "30 4 * * *"}
    answer = pages.post("/schedules", status=303, **changed)
    assert answer.headers["location"] == "/schedules/nightly"
    after = store.get("nightly")
    assert (after.cron, after.catch_up_hours, after.commit) == ("30 4 * * *", 7, commit)
    told = pages.page("/schedules/nightly").text
    assert "Commit 1f0c2d9a41b2+ on main by Ann, with local changes" in told
    assert after.paused_at is not None
    assert len(store.firings("nightly")) == 1
    refused = pages.post("/schedules", status=422, **(changed | {"cron": "x"}))
    assert read_page(refused.text).one("h2", id="add").text == "Change nightly"
    pages.page("/schedules?change=none", status=404)


def test_a_name_that_is_taken_is_refused(pages: PageDesk) -> None:
    add(pages)
    assert "already" in add(pages, status=422, cron="0 3 * * *").text


def test_missed_deadlines_are_loud(pages: PageDesk) -> None:
    add(pages)
    fired(pages, 3, outcome="passed", run="run-1", verdict="V-0001")
    fired(pages, 2, outcome="missed", reason="nobody was there", ended_at=None)
    fired(pages, 1, outcome="failed", overdue=True)
    shown = pages.page("/schedules")
    assert shown.one(class_="notice").one("a").text == "nightly"
    (row,) = shown.rows("schedules")
    assert (row["Outcome"], row["Last"]) == ("✗ failed", "1 d ago")
    assert row["Deadline"].startswith("◷ deadline missed")
    assert row["Latest 10"] == "1 failed, 1 missed, 1 passed"
    one = pages.page("/schedules/nightly")
    firings = one.rows("firings")
    assert [row["Outcome"] for row in firings] == ["✗ failed", "? missed", "✓ passed"]
    assert [row["Deadline"].rpartition(" 2026")[0] for row in firings] == [
        "◷ deadline missed",
        "◷ deadline missed",
        "✓ in time",
    ]
    assert "(1 in time, 2 missed)" in one.one("dl", "facts").text
    links = {one["href"] for one in one.one(id="firings").all("a")}
    assert {"/runs/run-1", "/verdicts/V-0001"} <= links


def test_a_firing_that_launched_nothing_is_not_called_as_a_test_is(pages: PageDesk) -> None:
    add(pages)
    fired(pages, 1, outcome="skipped", reason="the firing of 02:00 is not over")
    for path in ("/schedules", "/schedules/nightly"):
        assert "– not launched" in pages.page(path).text
        assert "skipped" not in pages.page(path).text
    assert pages.rows("/schedules/nightly", "firings")[0]["outcome"] == "skipped"


def test_it_is_paused_resumed_triggered_and_removed(pages: PageDesk) -> None:
    add(pages)
    assert pages.post("/schedules/nightly/pause").headers["location"] == "/schedules/nightly"
    assert "never, while it is paused" in pages.page("/schedules/nightly").text
    pages.post("/schedules/nightly/resume")
    assert pages.page("/schedules").rows("schedules")[0]["State"] == "● active"
    pages.post("/schedules/nightly/trigger")
    (firing,) = pages.page("/schedules/nightly").rows("firings")
    assert (firing["Outcome"], firing["Why"]) == ("▸ claimed", "triggered by a admin")
    assert pages.post("/schedules/nightly/remove").headers["location"] == "/schedules"
    pages.post("/schedules/nightly/remove")
    for verb in ("pause", "resume", "trigger"):
        pages.post(f"/schedules/nightly/{verb}", status=404)
    pages.page("/schedules/nightly", status=404)


def test_each_scope_has_its_actions(pages: PageDesk) -> None:
    add(pages)

    def actions(scope: str) -> set[str]:
        shown = pages.as_viewer(scope).page("/schedules/nightly")
        return {one["action"] for one in shown.all("form", method="post")} - {"/logout"}

    assert actions("read") == set()
    assert actions("run") == {"/schedules/nightly/trigger"}
    assert len(actions("gate")) == 3
    runner = pages.as_viewer("run")
    runner.post("/schedules/nightly/trigger")
    for verb in ("pause", "resume", "remove"):
        runner.post(f"/schedules/nightly/{verb}", status=403)
    add(runner, status=403, name="other")
    pages.as_viewer("read").post("/schedules/nightly/trigger", status=403)
    pages.get("/schedules/nightly/trigger", status=405)


def test_statements_do_not_grow_with_schedules(pages: PageDesk) -> None:
    add(pages)
    pages.page("/schedules")
    with pages.counted() as few:
        pages.page("/schedules")
    for name in "abcdef":
        add(pages, name=name)
    with pages.counted() as many:
        pages.page("/schedules")
    assert len(many) == len(few) <= 10
