"""Known issues: how they stand, added and ended from the page."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.failure_groups_world import KindsWorld, raises
from tests.integration.dashboard.desk import PageDesk

SHAPES = raises("expected 3 dimensions, got 2")
GIVEN = {
    "product": "proof",
    "title": "Shapes",
    "owner": "ops-team",
    "expires": "2026-03-20",
    "contains": "dimensions",
    "url": "https://tracker.example/1",
    "max_failures": "1",
    "platforms": "p*, here",
}


@pytest.fixture
def world(pages: PageDesk) -> KindsWorld:
    return failed_once(pages)


@pytest.fixture(scope="module")
def seen(shared_pages: PageDesk) -> PageDesk:
    """The same, which nobody changes."""
    failed_once(shared_pages)
    return shared_pages


def failed_once(pages: PageDesk) -> KindsWorld:
    made = KindsWorld(pages.stores, pages.api.clock.now() - timedelta(days=3))
    made.run({"a": SHAPES})
    return made


def add(pages: PageDesk, *, status: int = 303, **more: Any) -> Any:
    return pages.post("/known-issues", status=status, **(GIVEN | more))


def test_none_yet(pages: PageDesk) -> None:
    shown = pages.page("/known-issues")
    assert "No known issue yet" in shown.one(class_="empty").text
    assert "held against the newest 0 runs" in shown.text


def test_runs_are_counted_before_there_is_an_issue(seen: PageDesk) -> None:
    assert "held against the newest 1 run of proof" in seen.page("/known-issues").text


def test_one_is_added_from_the_form(pages: PageDesk, world: KindsWorld) -> None:
    assert add(pages).headers["location"] == "/known-issues?product=proof#KI-0001"
    (row,) = pages.page("/known-issues").rows("issues")
    assert row["State"] == "✓* applies"
    assert (row["Owner"], row["Seen"], row["Expected"]) == ("ops-team", "1", "1")
    assert row["Expires"] == "2026-03-20 19 days left"
    assert row["Where"] == "p*, here"
    assert row["About"] == "says dimensions"
    (told,) = pages.rows("/known-issues", "issues")
    assert (told["status"], told["seen"], told["most"]) == ("applies", 1, 1)
    (issue,) = pages.stores.known_issues.list()
    assert (issue.url, issue.scope.platforms) == (GIVEN["url"], ("p*", "here"))
    (failure,) = pages.page("/failures").rows("failures")
    assert failure["Status"] == "● known KI-0001"


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("title", "", "must be filled in"),
        ("expires", "soon", "must be a day"),
        ("expires", "2026-02-01", "it would never apply"),
        ("url", "javascript:alert(1)", "must begin with https://"),
        ("max_failures", "none", "must be a whole number"),
        ("versions", "newest", "must be a range"),
        ("signature", "s1-000000000000", "there is no signature"),
        ("signature", "s1-*", "whole and without wildcards"),
        ("contains", "", "says nothing"),
    ],
)
def test_what_is_refused_is_shown_with_what_was_written(
    seen: PageDesk, field: str, value: str, said: str
) -> None:
    answer = add(seen, status=422, **{field: value})
    assert said in answer.text
    assert 'value="ops-team"' in answer.text
    assert seen.stores.known_issues.list() == []


def test_unmatched_near_and_exceeded_are_loud(pages: PageDesk, world: KindsWorld) -> None:
    add(pages, title="unmatched", contains="nothing like it")
    add(pages, title="near", expires="2026-03-04", max_failures="")
    world.run({"a": SHAPES, "b": SHAPES})
    add(pages, title="exceeded")
    shown = pages.page("/known-issues")
    rows = shown.one(id="issues").one("tbody").all("tr")
    assert [(row["id"], row["class"]) for row in rows] == [
        ("KI-0003", "bad"),
        ("KI-0001", "warn"),
        ("KI-0002", "warn"),
    ]
    assert "only 3 days left" in rows[2].text
    assert "KI-0002" in shown.one(class_="notice").text


def test_what_is_over_needs_somebody_again(pages: PageDesk, world: KindsWorld) -> None:
    add(pages, expires="2026-03-02")
    pages.api.clock.move(days=3)
    later = pages.as_viewer("read")
    (row,) = later.page("/known-issues").rows("issues")
    assert row["State"] == "◌ expired 1 failure fits it still"
    assert "ago" in row["Expires"]
    (failure,) = later.page("/failures").rows("failures")
    assert failure["Status"] == "◌ issue over KI-0001"


def test_one_is_ended_once(pages: PageDesk, world: KindsWorld) -> None:
    add(pages)
    shown = pages.page("/known-issues")
    assert shown.one("form", action="/known-issues/KI-0001/end").one("button").text == "End KI-0001"
    pages.post("/known-issues/KI-0001/end")
    (row,) = pages.page("/known-issues").rows("issues")
    assert row["State"].startswith("– ended by a admin")
    (failure,) = pages.page("/failures").rows("failures")
    assert failure["Status"] == "◌ issue over KI-0001"
    pages.post("/known-issues/KI-0001/end")
    pages.post("/known-issues/KI-0009/end", status=404)


def test_who_may_not_is_offered_nothing_and_refused(pages: PageDesk, world: KindsWorld) -> None:
    add(pages)
    runner = pages.as_viewer("run")
    shown = runner.page("/known-issues")
    assert [one["action"] for one in shown.all("form", method="post")] == ["/logout"]
    add(runner, status=403)
    runner.post("/known-issues/KI-0001/end", status=403)
    pages.post("/known-issues", status=403, csrf="foreign", **GIVEN)
    assert len(pages.stores.known_issues.list()) == 1


def test_statements_do_not_grow_with_issues(pages: PageDesk, world: KindsWorld) -> None:
    add(pages)
    with pages.counted() as few:
        pages.page("/known-issues")
    for number in range(5):
        add(pages, title=f"issue {number}")
    with pages.counted() as many:
        pages.page("/known-issues")
    assert len(many) == len(few) <= 25


def test_a_run_before_the_issue_was_opened_exceeds_nothing(
    pages: PageDesk, world: KindsWorld
) -> None:
    world.run({"b": SHAPES, "c": SHAPES})
    assert add(pages, expires="2026-03-20").status_code == 303
    assert pages.page("/known-issues").rows("issues")[0]["State"] == "▲ more than expected"
    world.run({"b": SHAPES})
    (row,) = pages.page("/known-issues").rows("issues")
    assert (row["State"], row["Most in a run"]) == ("✓* applies", "2")
