"""Kinds of failures, in a list and one by one."""

from __future__ import annotations

from datetime import timedelta

import pytest

from orchestrator.application.quarantine import NewQuarantine, add_quarantine
from orchestrator.dashboard.pages import failure_groups as listed
from tests.failure_groups_world import KindsWorld, raises
from tests.integration.dashboard.desk import PageDesk

SHAPES = raises("expected 3 dimensions, got 2", frame="ops.reshape")
DISK = raises("no space left on device", "OSError")
HOSTILE = "<img src=x onerror=alert(1)>\u202e\u200b\x1b[31m" + "w" * 5_000


@pytest.fixture
def world(pages: PageDesk) -> KindsWorld:
    return KindsWorld(pages.stores, pages.api.clock.now() - timedelta(days=3))


def signature(pages: PageDesk, words: str) -> str:
    found: str = pages.rows(f"/failures?q={words}", "failures")[0]["signature"]
    return found


def test_nothing_failed_yet(pages: PageDesk) -> None:
    empty = pages.page("/failures").one(class_="empty")
    assert "No run has been launched yet." in empty.text
    assert "seatrial run" in empty.one("code").text


def test_what_is_new_comes_first_then_what_is_largest(pages: PageDesk, world: KindsWorld) -> None:
    world.run({"t.py::a": SHAPES, "t.py::b": SHAPES}, {"t.py::a": DISK})
    world.run({"t.py::a": SHAPES}, {}, version="1.11")
    shown = pages.page("/failures")
    rows = shown.rows("failures")
    assert [row["Results"] for row in rows] == ["3", "1"]
    assert [row["Status"] for row in rows] == ["+ new", "+ new"]
    assert rows[0]["Versions"] == "1.11 and 1 more"
    assert "at lib.ops.reshape" in rows[0]["Failure"]
    assert "probably the machine" in rows[1]["Failure"]
    assert [row["Owner"] for row in rows] == ["no owner", "no owner"]
    links = [one["href"] for one in shown.one(id="failures").all("a") if "s1-" in one["href"]]
    assert links[0] == f"/failures/{signature(pages, 'dimensions')}"


def test_every_filter_stands_in_the_address(pages: PageDesk, world: KindsWorld) -> None:
    world.run({"a": SHAPES, "b": DISK}, {"a": SHAPES})
    world.run({"a": SHAPES}, version="1.11")

    def results(query: str) -> list[int]:
        return [row["results"] for row in pages.rows(f"/failures?{query}", "failures")]

    assert results("") == [3, 1]
    assert results("platform=p1") == [1]
    assert results("version=1.11") == [1]
    assert results("runs=1") == [1]
    assert results("q=SPACE") == [1]
    assert results("status=known") == []
    assert results("product=proof") == [3, 1]
    shown = pages.page("/failures?platform=p1&status=new")
    tabs = {one.text: one["href"] for one in shown.one("ul", "counts").all("a")}
    assert tabs["All 1"] == "/failures?platform=p1"
    assert "Take a filter away".lower() in pages.page("/failures?q=zzz").text.lower()
    assert "no run of a product 'x'" in pages.page("/failures?product=x", status=404).text
    pages.page("/failures?runs=9999", status=422)


def test_a_run_marks_its_failures_in_a_quarantine_that_began_later(
    pages: PageDesk, world: KindsWorld
) -> None:
    run = world.run({"t.py::a": SHAPES, "t.py::b": DISK})
    [before, _] = pages.page(f"/runs/{run}").rows("failures")
    assert before["Known"] == "not known"
    new = NewQuarantine(product="proof", nodeid="t.py::a", reason="r", owner="me", days=9)
    add_quarantine(pages.api.context, new, author=pages.viewer.person)
    rows = pages.page(f"/runs/{run}").rows("failures")
    assert sorted(row["Known"] for row in rows) == ["Q-0001 1 of 1 tolerated", "not known"]


def test_the_list_is_paged(
    pages: PageDesk, world: KindsWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listed, "PAGE_SIZE", 5)
    world.run({f"t{n}": raises(f"kind {chr(97 + n)}") for n in range(6)})
    first = pages.json("/failures")["tables"]["failures"]
    assert (len(first["rows"]), first["total"]) == (5, 6)
    assert len(pages.rows(first["next"], "failures")) == 1
    following = pages.page("/failures").one("a", rel="next")["href"]
    assert len(pages.page(following).rows("failures")) == 1


def test_statements_do_not_grow_with_rows(pages: PageDesk, world: KindsWorld) -> None:
    world.run({"a": SHAPES})
    pages.page("/failures")  # its token is noted as used, once a minute
    with pages.counted() as few:
        pages.page("/failures")
    for _ in range(4):
        world.run(*({f"t{n}": raises(f"kind {chr(97 + n)}") for n in range(20)} for _ in "ab"))
    with pages.counted() as many:
        pages.page("/failures")
    assert len(many) == len(few) <= 25
    name = signature(pages, "dimensions")
    with pages.counted() as one:
        pages.page(f"/failures/{name}")
    assert len(one) <= 25


def test_one_failure_has_its_words_its_places_and_a_way_to_a_known_issue(
    pages: PageDesk, world: KindsWorld
) -> None:
    world.run({"t.py::a": raises("got 1 of 7")}, {"t.py::a": raises("got 1 of 7")})
    newest = world.run({"t.py::a": raises("got 2 of 7")}, {})
    name = signature(pages, "got")
    shown = pages.page(f"/failures/{name}")
    assert [row["Message"] for row in shown.rows("variants")] == [
        "E ValueError: got 1 of 7",
        "E ValueError: got 2 of 7",
    ]
    spots = shown.rows("spots")
    assert [(row["Platform"], row["Results"]) for row in spots] == [("p0", "2"), ("p1", "1")]
    assert spots[0]["Newest run"] == newest
    assert "got 2 of 7" in shown.one("pre", "trace").text
    form = next(one["href"] for one in shown.all("a", "button") if "known" in one.text)
    assert form.startswith("/known-issues?product=proof&signature=s1-")
    prefilled = pages.page(form.partition("#")[0])
    assert prefilled.one("input", name="signature")["value"] == name
    assert prefilled.one("input", name="platforms")["value"] == "p0, p1"
    assert prefilled.one("input", name="max_failures")["value"] == "2"
    assert prefilled.all("details", "disclosure", open="*")
    told = pages.json(f"/failures/{name}")
    assert (told["signature"], told["status"], told["owners"]) == (name, "new", [])


def test_who_may_only_read_is_offered_no_form(pages: PageDesk, world: KindsWorld) -> None:
    world.run({"a": SHAPES})
    name = signature(pages, "dimensions")
    reader = pages.as_viewer("run")
    assert not [one for one in reader.page(f"/failures/{name}").all("a") if "Make" in one.text]
    assert "there is no signature" in pages.page("/failures/s1-none", status=404).text


def test_a_quarantine_answers_for_a_failure(pages: PageDesk, world: KindsWorld) -> None:
    world.run({"a": SHAPES})
    new = NewQuarantine(product="proof", nodeid="a", reason="no seed", owner="me", days=9)
    add_quarantine(pages.api.context, new, author=pages.viewer.person)
    (row,) = pages.page("/failures").rows("failures")
    assert (row["Status"], row["Owner"]) == ("≈ quarantined Q-0001", "me")
    assert "no seed" in pages.page(f"/failures/{signature(pages, 'dimensions')}").text


def test_what_machines_say_is_text(pages: PageDesk, world: KindsWorld) -> None:
    world.run({f"t.py::{HOSTILE}": raises(HOSTILE, HOSTILE)}, version="<b>1</b>")
    (row,) = pages.rows("/failures", "failures")
    for path in ("/failures", f"/failures/{row['signature']}", "/failures?q=%3Cscript%3E"):
        answer = pages.get(path)
        assert "<img" not in answer.text
        assert "<b>1" not in answer.text
        assert "<script>" not in answer.text
        assert "\u202e" not in answer.text
        assert "\x1b" not in answer.text
        assert len(answer.text) < 150_000
