"""The list of runs: its figures, its filters, its pages, and how few questions it asks."""

from __future__ import annotations

import pytest

from orchestrator.dashboard.pages import runs as listed
from orchestrator.domain.outcome import Outcome
from tests.integration.api_context import MATRIX
from tests.integration.dashboard.desk import PageDesk


def launch(pages: PageDesk, key: str, **changed: str) -> str:
    text = MATRIX
    for old, new in changed.items():
        text = text.replace({"version": '"1.10"', "matrix": "nightly"}[old], new)
    return str(pages.api.launch(key, matrix=text)["id"])


def finished(pages: PageDesk, key: str, how: str, outcome: Outcome, **changed: str) -> str:
    run = launch(pages, key, **changed)
    for cell in ("here", "there"):
        agent = pages.api.begin(run, cell)
        agent.send(agent.manifest("a", "b"), agent.test("a"), agent.test("b", how))
    pages.api.finish(run, "here", "there", outcome=outcome)
    return run


def names(pages: PageDesk, query: str = "") -> list[str]:
    return [str(row["run"]) for row in pages.rows(f"/runs{query}", "runs")]


def test_a_row_has_counts_of_done_and_of_living_cells(pages: PageDesk) -> None:
    old = finished(pages, "1", "failed", Outcome.FAILED)
    new = launch(pages, "2")
    agent = pages.api.begin(new, "here")
    agent.send(agent.manifest("a", "b", "c"), agent.test("a"), agent.test("b", "skipped"))
    rows = pages.page("/runs").rows("runs")
    assert [row["Run"] for row in rows] == [f"{run[:13]}…" for run in (new, old)]
    assert rows[0]["Tests"].startswith("100% 1/1 1 skipped")
    assert "missing" not in rows[0]["Tests"]  # they are awaited
    assert rows[0]["Cells passed"] == "0 of 2 2 under way"
    assert rows[1]["Tests"].startswith("50.0% 2/4 2 failed")
    assert rows[1]["Outcome"] == "✗ failed"
    assert "there failed" in rows[1]["Cells passed"]


def test_the_sign_behind_a_commit_is_explained_where_it_stands(pages: PageDesk) -> None:
    commit = {"sha": "1f0c2d9a41b2" + "0" * 28, "branch": "topic"}
    pages.api.launch("1", commit=commit)
    clean = pages.page("/runs").text
    assert ("1f0c2d9 topic" in clean, "behind a commit" in clean) == (True, False)
    pages.api.launch("2", commit=commit | {"is_dirty": True})
    shown = pages.page("/runs").text
    assert "1f0c2d9+ topic" in shown
    assert "+ behind a commit: with local changes." in shown


def test_a_run_that_is_to_end_says_so(pages: PageDesk) -> None:
    run = launch(pages, "1")
    pages.stores.runs.request_cancel(run, at=pages.api.clock.now())
    assert pages.page("/runs").rows("runs")[0]["Outcome"] == "▸ running cancelling"


def test_a_cancelled_run_with_failures_says_both(pages: PageDesk) -> None:
    run = launch(pages, "1")
    pages.stores.runs.request_cancel(run, at=pages.api.clock.now())
    for cell in ("here", "there"):
        agent = pages.api.begin(run, cell)
        agent.send(agent.manifest("a", "b"), agent.test("a"), agent.test("b", "failed"))
    pages.api.finish(run, "here", "there", outcome=Outcome.FAILED)
    assert pages.page("/runs").rows("runs")[0]["Outcome"] == "✗ failed cancelled; 2 failed"
    assert "cancelled; 2 failed" in pages.page(f"/runs/{run}").one("dl", "tiles").text


def test_filters_stand_in_the_address(pages: PageDesk) -> None:
    bad = finished(pages, "1", "failed", Outcome.FAILED)
    good = finished(pages, "2", "passed", Outcome.PASSED, version='"2.0"', matrix="weekly")
    going = launch(pages, "3")
    assert names(pages, "?outcome=failed") == [bad]
    assert names(pages, "?outcome=passed") == names(pages, "?version=2.") == [good]
    assert names(pages, "?outcome=running") == [going]
    assert names(pages, "?matrix=weekly&subject=proof") == [good]
    assert names(pages, "?subject=other") == names(pages, "?version=%25") == []
    assert names(pages, "?outcome=nonsense") == [going, good, bad]
    form = pages.page("/runs?outcome=failed&version=1").one("form", role="search")
    assert form.one("option", value="failed").has("selected")
    assert form.one("input", name="version")["value"] == "1"
    assert [one.text for one in form.one("select", name="matrix").all("option")] == [
        "any",
        "nightly",
        "weekly",
    ]


def test_nothing_says_what_to_do_next(pages: PageDesk) -> None:
    assert "seatrial init && seatrial run seatrial.yaml" in pages.page("/runs").text
    launch(pages, "1")
    shown = pages.page("/runs?subject=none")
    assert "No run is like that" in shown.text
    assert "All runs" in [link.text for link in shown.all("a", href="/runs")]


def test_pages_follow_one_another_and_keep_the_filter(
    pages: PageDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listed, "PAGE_SIZE", 3)
    ids = [launch(pages, str(number)) for number in range(5)]
    first = pages.page("/runs?matrix=nightly")
    assert len(first.rows("runs")) == 3
    following = first.one("a", rel="next")["href"]
    assert following.startswith("/runs?matrix=nightly&before=")
    rest = pages.page(following)
    assert names(pages, following.removeprefix("/runs")) == ids[1::-1]
    assert not rest.all("a", rel="next")


def test_as_many_statements_for_one_run_as_for_many(pages: PageDesk) -> None:
    finished(pages, "0", "failed", Outcome.FAILED)
    with pages.counted() as one:
        pages.page("/runs")
    for number in range(1, 12):
        launch(pages, str(number))
    with pages.counted() as many:
        pages.page("/runs")
    assert len(many) <= len(one) + 2 <= 15
