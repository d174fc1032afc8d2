"""Searching for a test, and one test over all versions and platforms."""

from __future__ import annotations

from datetime import date, timedelta

import pytest

from orchestrator.application.describe_run import describe_run
from orchestrator.application.known_issues import add_known_issue
from orchestrator.dashboard import urls
from orchestrator.dashboard.pages import tests
from orchestrator.domain.gate.snapshot import Quarantine
from orchestrator.domain.known_issue import IssueMatch, IssueScope, KnownIssue
from orchestrator.domain.node_ids import Alias, AliasState, NameChange
from orchestrator.domain.run_record import ArtifactRecord
from tests.contract.test_stores_grids import done
from tests.contract.test_stores_release_board import launch
from tests.integration.api_context import BEGIN
from tests.integration.dashboard.desk import PageDesk
from tests.integration.dashboard.nights_of import night

NAME = "tests/test_a.py::TestA::test_it[f16]"


def address_of(pages: PageDesk, name: str = NAME) -> str:
    """Of the page of a test."""
    found = pages.stores.tests.page(product="proof", job=None, contains=name, limit=5, after=None)
    return urls.test_url(found[0].id)


def went(pages: PageDesk, *outcomes: str, cell: str = "here", name: str = NAME) -> list[str]:
    """A night for each outcome, an hour apart; the runs."""
    runs = []
    for number, outcome in enumerate(outcomes):
        runs.append(night(pages.api, f"1.{number}", {cell: {name: outcome}}))
        pages.api.clock.move(hours=1)
    return runs


def test_tests_are_found_by_parts_of_their_names(pages: PageDesk) -> None:
    went(pages, "passed", "failed")
    night(pages.api, "1.2", {"there": {"tests/test_b.py::other": "passed"}})
    [row] = pages.page("/tests?q=test_it").rows("tests")
    assert row["Test"] == "TestA::test_it[f16] tests/test_a.py · unit"
    assert (row["Newest result"], row["Version"], row["When"]) == ("✗ failed", "1.1", "1 h ago")
    assert len(pages.page("/tests").rows("tests")) == 2
    assert "No test" in pages.page("/tests?q=nothing").one(id="tests").text


def test_a_broken_test_says_since_when_and_leads_to_the_comparison(pages: PageDesk) -> None:
    runs = went(pages, "passed", "passed", "failed", "failed")
    page = pages.page(address_of(pages))
    assert page.one("h1").text == "TestA::test_it[f16]"
    assert page.all("dd", "bad")[0].text == "fails on 1 of 1"
    [row] = page.rows("platforms")
    assert (row["Platform"], row["Newest"], row["Passed"]) == (
        "here",
        "✗ failed",
        "50.0% 2/4 2 failed",
    )
    assert row["Regression range"].startswith("1.1 → 1.2")
    [link] = [one for one in page.all("a") if one.text == "1.1 → 1.2"]
    assert link["href"] == urls.compare_url(runs[1], runs[2])
    [strip] = page.all("svg", "strip")
    assert strip["aria-label"] == "here, 4 results: 2 passed, 2 failed"
    assert "ValueError: 3" in page.one("pre", "message").text


def test_a_deleted_test_is_gone_and_does_not_fail_now(pages: PageDesk) -> None:
    went(pages, "passed", "failed")
    since = night(pages.api, "2.0", {"here": {"t.py::other": "passed"}})
    night(pages.api, "2.1", {"here": {"t.py::other": "passed"}})
    page = pages.page(address_of(pages))
    facts = [one.text for one in page.all("dd")]
    assert facts[0].startswith("gone"), facts
    assert not page.all("dd", "bad")
    [row] = page.rows("platforms")
    assert row["Newest"].startswith("● gone since run")
    assert (row["Version"], row["Regression range"]) == ("1.1 1 h ago", "–")
    links = [one["href"] for one in page.one(id="platforms").all("a") if "gone" in one.text]
    assert links == [urls.cell_url(since, "here")]
    [found] = pages.page("/tests?q=test_it").rows("tests")
    assert found["Newest result"].startswith("● gone since run")
    assert ", 2.0, " in found["Newest result"]


def test_each_result_leads_to_its_page_and_the_newest_one_has_its_files(pages: PageDesk) -> None:
    old, new = went(pages, "passed", "failed")
    files = [f"unit.test_it_f16_-{name}" for name in ("plot.png", "values.json")]
    left = [ArtifactRecord(name, 42, "f" * 64) for name in (*files, "unit.txt")]
    pages.stores.results.put_artifacts(pages.api.cell_id(new, "here"), left)
    address = address_of(pages)
    page = pages.page(address)
    test = int(address.rpartition("/")[2])
    results = page.one(id="history").all("a")
    assert [one["href"] for one in results if "cells" in one["href"]] == [
        urls.result_url(run, "here", test) for run in (new, old)
    ]
    links = page.one("section", aria_labelledby="files").all("a")
    assert {one.text: one["href"] for one in links} == {
        "here, 1.1": urls.result_url(new, "here", test),
        **{name: urls.artifact_url(new, "here", name) for name in files},
    }
    assert pages.json(address)["newest_artifacts"] == files
    went(pages, "passed")
    assert "files" not in [one.get("aria-labelledby") for one in pages.page(address).all("section")]


def test_other_platforms_stand_beside_it(pages: PageDesk) -> None:
    night(pages.api, "1.0", {"here": {NAME: "failed"}, "there": {NAME: "passed"}})
    rows = pages.page(address_of(pages)).rows("platforms")
    assert [(row["Platform"], row["Newest"]) for row in rows] == [
        ("here", "✗ failed"),
        ("there", "✓ passed"),
    ]
    assert "fails at least since 1.0" in rows[0]["Regression range"]


def test_results_come_newest_first_and_can_be_of_one_platform(pages: PageDesk) -> None:
    went(pages, "passed", "failed")
    night(pages.api, "1.2", {"there": {NAME: "passed"}})
    address = address_of(pages)
    rows = pages.page(address).rows("history")
    assert [(row["Version"], row["Outcome"]) for row in rows] == [
        ("1.2", "✓ passed"),
        ("1.1", "✗ failed"),
        ("1.0", "✓ passed"),
    ]
    assert rows[1]["Failure"] == "ValueError"
    alone = pages.page(f"{address}?cell=there").rows("history")
    assert [row["Platform"] for row in alone] == ["there"]


def test_a_long_history_comes_page_by_page_without_a_gap(
    pages: PageDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tests, "HISTORY", 5)
    for number in range(4):
        for cell in launch(pages.stores, f"run-{number:02}", f"1.{number}"):
            done(pages.stores, cell, NAME)
    address = address_of(pages)
    first = pages.page(address)
    [more] = first.one(id="history").all("a", rel="next")
    rows = first.rows("history") + pages.page(more["href"]).rows("history")
    seen = [(row["Version"], row["Platform"]) for row in rows]
    assert len(set(seen)) == len(seen) == 8
    with pages.counted() as statements:
        pages.page(address)
    assert len(statements) <= 14


def test_older_names_are_one_test_with_it(pages: PageDesk) -> None:
    went(pages, "passed")
    new = "tests/test_a.py::TestA::test_renamed[f16]"
    went(pages, "failed", name=new)
    old, newer = (int(address_of(pages, name).rpartition("/")[2]) for name in (NAME, new))
    pages.stores.aliases.suggest(
        [
            Alias(
                id=0,
                product="proof",
                job="unit",
                old_test=old,
                old=NAME,
                new_test=newer,
                new=new,
                change=NameChange.RENAMED,
                similarity=0.9,
                state=AliasState.SUGGESTED,
                suggested_at=BEGIN,
            )
        ]
    )
    [alias] = pages.stores.aliases.list()
    pages.stores.aliases.decide(alias.id, AliasState.CONFIRMED, at=BEGIN, by="ann")
    page = pages.page(urls.test_url(old))
    assert page.one("h1").text == "TestA::test_renamed[f16]"
    assert [row["name"] for row in pages.rows(urls.test_url(old), "names")] == [NAME]
    assert len(page.rows("history")) == 2
    assert pages.json(urls.test_url(old))["test"]["older_names"] == [NAME]


def test_a_test_in_two_jobs_has_its_job_everywhere_and_is_counted_once(pages: PageDesk) -> None:
    run = str(pages.api.launch()["id"])
    agent = pages.api.begin(run, "here")
    for job in ("unit", "demo"):
        agent.send(
            agent.line("phase", job, name="started"),
            agent.manifest(NAME, job=job),
            agent.test(NAME, "failed", job=job, longrepr="E   ValueError: boom"),
        )
    [group] = describe_run(pages.stores, run, at=BEGIN).failure_groups
    signature = group.signature.id
    page = pages.page(address_of(pages))
    assert "job unit" in page.one(class_="where").text
    assert page.one("a", href=urls.with_query(urls.TESTS, q=NAME)).text.endswith("every job")
    for path, table in (
        (f"/runs/{run}/cells/here", "tests"),
        (f"/runs/{run}/slowest", "slowest"),
        (f"/failures/{signature}", "spots"),
        ("/tests", "tests"),
    ):
        assert sorted(row["job"] for row in pages.rows(path, table)) == ["demo", "unit"], path
        shown = pages.markdown(f"{path}?table={table}")
        assert all(f"({job})" in shown for job in ("demo", "unit")), shown
        header, *rows = pages.csv(f"{path}?table={table}")
        assert {row[header.index("job")] for row in rows} == {"demo", "unit"}
    for path in (f"/runs/{run}", "/failures"):
        [row] = pages.rows(path, "failures")
        assert (row["results"], row["tests"]) == (2, 1), path
    assert "2, of 1 test in 1 run" in pages.page(f"/failures/{signature}").text
    assert "more" not in pages.page("/failures").rows("failures")[0]["Failure"]


def test_what_people_said_of_it_is_beside_it(pages: PageDesk) -> None:
    went(pages, "failed")
    new = KnownIssue(
        product="proof",
        title="values are three",
        owner="ann",
        id="",
        opened=date(2026, 3, 1),
        author=pages.viewer.person.name,
        expires=date(2026, 3, 9),
        match=IssueMatch(exception="ValueError"),
        scope=IssueScope(platforms=("he*",), requires_package=""),
    )
    add_known_issue(pages.api.context, new)
    pages.stores.quarantines.add(
        Quarantine(
            id="",
            product="proof",
            nodeid=NAME,
            reason="it flips",
            owner="bo",
            opened=BEGIN,
            expires=BEGIN + timedelta(days=9),
        )
    )
    page = pages.page(address_of(pages))
    rows = page.rows("excuses")
    assert [(row["Id"], row["What"], row["Owner"]) for row in rows] == [
        ("KI-0001", "values are three", "ann"),
        ("Q-0001", "it flips", "bo"),
    ]
    assert "1 known issue, 1 quarantine" in page.one("dl", "tiles").text


def test_a_flaky_test_shows_why(pages: PageDesk) -> None:
    for outcome in ("passed", "failed", "passed", "passed"):
        night(pages.api, "1.0", {"here": {NAME: outcome}})
        pages.api.clock.move(hours=1)
    text = pages.page(address_of(pages)).one("dl", "tiles").text
    assert "passes on 1 of 1" in text
    assert "last failed 3 h ago, on here" in text
    assert "flaky: 1 time both with one build, 2 flips in 3" in text


def test_a_test_that_another_version_mended_is_not_called_flaky(pages: PageDesk) -> None:
    went(pages, "passed", "failed", "passed", "passed")
    text = pages.page(address_of(pages)).one("dl", "tiles").text
    assert "no failure in 3 counted results (without builds that never passed on a platform" in text


def test_there_are_no_other_tests(pages: PageDesk) -> None:
    assert "there is no test 7" in pages.page("/tests/7", status=404).text
    pages.page("/tests/seven", status=422)


def test_a_message_that_means_harm_is_text(pages: PageDesk) -> None:
    night(pages.api, "1.0", {"here": {"t.py::<img src=x>": "failed"}})
    html = pages.get(address_of(pages, "<img")).text
    assert "<img" not in html
