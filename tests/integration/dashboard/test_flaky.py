"""Unsteady tests with their evidence, and quarantines from the page."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.failure_groups_world import RETRIED, KindsWorld, raises
from tests.integration.dashboard.desk import PageDesk
from tests.integration.dashboard.shown import Element

SHAPES = raises("expected 3 dimensions, got 2", frame="ops.reshape")
DISK = raises("no space left on device", "OSError")
GIVEN = {
    "product": "proof",
    "nodeid": "t.py::split",
    "owner": "me",
    "reason": "the seed is not fixed",
    "days": "14",
    "returns_after": "20",
    "platforms": "p0",
}


@pytest.fixture
def world(pages: PageDesk) -> KindsWorld:
    return three_kinds(pages)


@pytest.fixture(scope="module")
def seen(shared_pages: PageDesk) -> PageDesk:
    """The same, which nobody changes."""
    three_kinds(shared_pages)
    return shared_pages


def three_kinds(pages: PageDesk) -> KindsWorld:
    made = KindsWorld(pages.stores, pages.api.clock.now() - timedelta(days=3))
    made.run({"t.py::split": "", "t.py::disk": DISK, "t.py::retried": RETRIED})
    made.run({"t.py::split": SHAPES, "t.py::disk": "", "t.py::retried": ""})
    return made


def quarantine(pages: PageDesk, *, status: int = 303, **more: Any) -> Any:
    return pages.post("/flaky", status=status, **(GIVEN | more))


def by_test(shown: Element) -> dict[str, dict[str, str]]:
    """The list's rows by the tests' names, which may break after their colons."""
    rows = shown.rows("flaky")
    return {row["Test"].replace(":: ", "::").partition(" ")[0]: row for row in rows}


def test_nothing_is_flaky_yet(pages: PageDesk) -> None:
    shown = pages.page("/flaky")
    assert "No test both failed and passed" in shown.text
    assert "No test is in quarantine." in shown.text


def test_each_has_the_runs_that_prove_it(pages: PageDesk, world: KindsWorld) -> None:
    shown = pages.page("/flaky")
    rows = by_test(shown)
    assert rows["t.py::retried"]["Newest evidence"] == "p0: failed, then passed"
    assert rows["t.py::retried"]["Detection"].startswith("≈ passed on retry")
    assert rows["t.py::split"]["Detection"] == "≈ both with one build the test's or the product's"
    assert rows["t.py::disk"]["Detection"] == "≈ both with one build the machine's"
    assert rows["t.py::split"]["Evidence"].startswith("1 failed of 2")
    first, second = world.runs
    links = [one["href"] for one in shown.one(id="flaky").all("a")]
    assert f"/runs/{second}/cells/p0" in links
    assert f"/runs/{first}/cells/p0" in links
    assert f"/compare?a={first}&b={second}" in links
    told = {row["test"]: row for row in pages.rows("/flaky", "flaky")}
    assert told["t.py::split"]["judged"] == 2
    assert 9 < told["t.py::split"]["likely_percent"] < 10
    assert told["t.py::retried"]["passed_on_retry"] == 1


def test_how_and_whose_can_be_asked_for(seen: PageDesk) -> None:
    def tests(query: str) -> set[str]:
        return {row["test"] for row in seen.rows(f"/flaky?{query}", "flaky")}

    assert tests("how=retried") == {"t.py::retried"}
    assert tests("how=split&whose=infra") == {"t.py::disk"}
    assert tests("runs=1") == set()
    tabs = [one.text for one in seen.page("/flaky").one("ul", "counts").all("a")]
    assert tabs == ["All 3", "Passed on retry 1", "Both with one build 2"]
    seen.page("/flaky?runs=5000", status=422)


def test_a_test_is_put_in_quarantine_and_taken_out(pages: PageDesk, world: KindsWorld) -> None:
    link = next(
        one for one in pages.page("/flaky").all("a") if "nodeid=t.py%3A%3Asplit" in one["href"]
    )
    form = pages.page(link["href"].partition("#")[0])
    assert form.one("input", name="nodeid")["value"] == "t.py::split"
    assert form.one("input", name="platforms")["value"] == "p0"
    assert quarantine(pages).headers["location"] == "/flaky?product=proof#Q-0001"
    world.run({"t.py::split": SHAPES}, days=4)
    shown = pages.page("/flaky")
    (row,) = shown.rows("quarantines")
    assert (row["State"], row["Platforms"], row["Failures since"]) == ("● active", "p0", "1")
    assert (row["Passes in a row"], row["Until"]) == ("0 of 20", "2026-03-15 14 days left")
    tests = {name: row["Quarantine"] for name, row in by_test(shown).items()}
    assert tests["t.py::split"] == "Q-0001 me, until 2026-03-15"
    pages.post("/flaky/Q-0001/end")
    (row,) = pages.page("/flaky").rows("quarantines")
    assert row["State"] == "– ended a admin"
    pages.post("/flaky/Q-0009/end", status=404)


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("nodeid", "t.py::spilt", "has no test"),
        ("nodeid", "", "must be filled in"),
        ("owner", "", "must be filled in"),
        ("days", "91", "from 1 to 90"),
        ("returns_after", "many", "from 1 to 1,000"),
    ],
)
def test_what_is_refused_is_shown_with_what_was_written(
    seen: PageDesk, field: str, value: str, said: str
) -> None:
    answer = quarantine(seen, status=422, **{field: value})
    assert said in answer.text
    assert 'value="the seed is not fixed"' in answer.text
    assert seen.stores.quarantines.list() == []


def test_who_may_not_is_offered_nothing_and_refused(pages: PageDesk, world: KindsWorld) -> None:
    quarantine(pages)
    runner = pages.as_viewer("run")
    shown = runner.page("/flaky")
    assert [one["action"] for one in shown.all("form", method="post")] == ["/logout"]
    quarantine(runner, status=403)
    runner.post("/flaky/Q-0001/end", status=403)
    pages.post("/flaky", status=403, csrf="", **GIVEN)


def test_statements_do_not_grow_with_tests(pages: PageDesk, world: KindsWorld) -> None:
    quarantine(pages)
    pages.page("/flaky")
    with pages.counted() as few:
        pages.page("/flaky")
    quarantine(pages, nodeid="t.py::disk")
    world.run({f"t{n}": RETRIED for n in range(12)} | {"t.py::split": ""}, {"a": RETRIED}, days=4)
    with pages.counted() as many:
        shown = pages.page("/flaky")
    assert len(shown.rows("flaky")) > 12
    assert len(many) == len(few) <= 25
