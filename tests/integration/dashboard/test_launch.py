"""Launching from the page: the plan, the start, and what people get wrong."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.dashboard.pages import launch
from orchestrator.dashboard.pages.launch import LaunchForm
from tests.integration.api_context import MATRIX
from tests.integration.dashboard.desk import PageDesk
from tests.integration.dashboard.shown import Element, read_page


def plan(pages: PageDesk, status: int = 200, **fields: Any) -> Element:
    values = {"text": MATRIX, "name": "nightly.yaml", "action": "plan", **fields}
    return read_page(pages.post("/launch", status=status, **values).text)


def values_of(page: Element) -> dict[str, Any]:
    """What a browser would send of the form."""
    form = page.one("form", method="post", class_="launch")
    found: dict[str, Any] = {}
    for field in form.all("input"):
        if field.get("type") in ("file", "submit"):
            continue
        if field.get("type") == "checkbox" and not field.has("checked"):
            continue
        found.setdefault(field["name"], []).append(field.get("value"))
    found["text"] = "".join(str(one) for one in form.one("textarea").children).removeprefix("\n")
    found.pop("csrf")
    return found


def runs(pages: PageDesk) -> int:
    return len(pages.stores.runs.page(limit=100, before=None)[0])


def test_the_page_begins_with_a_ready_matrix(shared_pages: PageDesk) -> None:
    shown = shared_pages.page("/launch")
    assert "local" in shown.one("select", name="matrix").text
    chosen = shared_pages.page("/launch?matrix=release")
    assert "aws-mi300x" in [one["value"] for one in chosen.all("input", name="platform")]
    assert "there is no ready matrix" in shared_pages.page("/launch?matrix=../x", status=404).text


def test_without_ready_matrices_there_is_no_choice(
    pages: PageDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "_ready", dict)
    assert not pages.page("/launch").all("select", name="matrix")


def test_a_plan_says_what_it_would_do_and_changes_nothing(shared_pages: PageDesk) -> None:
    shown = plan(shared_pages)
    assert "2 cells, 4 jobs, at most $" in shown.text
    assert "(limit $9.00)" in shown.text
    rows = shown.rows("plan")
    assert [row["Cell"] for row in rows] == ["here", "there"]
    assert "north" in rows[1]["Places, in this order"]
    assert "/h" in rows[1]["Places, in this order"]
    assert runs(shared_pages) == 0
    assert shown.one("button", value="start")
    assert values_of(shown)["text"] == MATRIX


def test_what_was_planned_is_started_once(pages: PageDesk) -> None:
    sent = values_of(plan(pages)) | {"action": "start"}
    first = pages.post("/launch", **sent).headers["location"]
    assert pages.post("/launch", **sent).headers["location"] == first
    assert runs(pages) == 1
    assert pages.page(first).one("h1").text == "proof 1.10"


def test_a_run_is_launched_again_with_other_values(pages: PageDesk) -> None:
    sent = values_of(plan(pages, hold_minutes="20", reruns="2", version="1.11"))
    first = pages.post("/launch", **(sent | {"action": "start"})).headers["location"]
    [link] = [one["href"] for one in pages.page(first).all("a") if "/launch?run=" in one["href"]]
    shown = values_of(pages.page(link))
    assert shown["hold_minutes"] == ["20"]
    assert shown["reruns"] == ["2"]
    assert "1.11" in shown["text"]
    changed = {**shown, "text": shown["text"].replace("1.11", "1.12"), "action": "plan"}
    ready = values_of(read_page(pages.post("/launch", status=200, **changed).text))
    second = pages.post("/launch", **(ready | {"action": "start"})).headers["location"]
    assert pages.page(second).one("h1").text == "proof 1.12"
    old, new = (pages.stores.runs.get(one.rpartition("/")[2]) for one in (first, second))
    assert old.payload_digest == new.payload_digest
    specs = [pages.stores.runs.spec(one.id) for one in (old, new)]
    assert specs[0].matrix.platforms == specs[1].matrix.platforms
    assert specs[0].matrix.jobs == specs[1].matrix.jobs
    assert "there is no run" in pages.page("/launch?run=nothing", status=404).text


def test_what_changed_since_the_plan_is_planned_again(pages: PageDesk) -> None:
    sent = values_of(plan(pages)) | {"action": "start", "version": "2.0"}
    shown = read_page(pages.post("/launch", status=409, **sent).text)
    assert "has changed since it was planned" in shown.text
    assert runs(pages) == 0
    again = values_of(shown) | {"action": "start"}
    run = pages.post("/launch", **again).headers["location"].removeprefix("/runs/")
    assert pages.stores.runs.get(run).subject_version == "2.0"


def test_starting_without_a_plan_shows_one_first(shared_pages: PageDesk) -> None:
    shared_pages.post("/launch", status=409, text=MATRIX, action="start")
    assert runs(shared_pages) == 0


def test_only_chosen_platforms_run(pages: PageDesk) -> None:
    fields = {"known": ["here", "there"], "platform": ["there"]}
    shown = plan(pages, **fields)
    assert [row["Cell"] for row in shown.rows("plan")] == ["there"]
    boxes = {one["value"]: one.has("checked") for one in shown.all("input", name="platform")}
    assert boxes == {"here": False, "there": True}
    run = pages.post("/launch", **(values_of(shown) | {"action": "start"})).headers["location"]
    cells = pages.stores.cells.of_run(run.removeprefix("/runs/"))
    assert [cell.name for cell in cells] == ["there"]
    none = plan(pages, status=422, known=["here", "there"])
    assert "choose at least one" in none.text


def test_a_mistake_has_its_line_and_every_value_is_kept(shared_pages: PageDesk) -> None:
    text = MATRIX.replace("provider: fake}", "provider: fak}", 1)
    shown = plan(shared_pages, status=422, text=text, version="3.0", reruns="2")
    said = shown.one("section", "notice")
    assert "line 7, column" in said.text
    assert "did you mean 'fake'" in said.text
    excerpt = said.one("pre").children[0]
    assert isinstance(excerpt, str)
    lines = excerpt.split("\n")
    assert lines[1].startswith("   7  ")
    assert lines[1][lines[2].index("^") :].startswith("fak")
    kept = values_of(shown)
    assert (kept["text"], kept["version"], kept["reruns"]) == (text, ["3.0"], ["2"])
    assert not shown.all("button", value="start")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"text": "  "}, "Write a matrix"),
        ({"text": "{"}, "line 1"),
        ({"payload": "x"}, "must be a sha256"),
        ({"payload": "0" * 64}, "was not uploaded"),
        ({"hold_minutes": "-1"}, "must be a number from 0 to 1440"),
        ({"reruns": "1.5"}, "must be a whole number"),
        ({"source": "odd"}, "is none of"),
        ({"source": "wheel", "wheel": "0" * 64}, "was not uploaded"),
        ({"source": "wheel"}, "is not on the server: upload the wheel first"),
        ({"source": "package", "package": "no version"}, "subject"),
    ],
)
def test_what_is_wrong_is_said(shared_pages: PageDesk, fields: dict[str, str], said: str) -> None:
    shown = plan(shared_pages, status=422, **fields)
    assert said in shown.text
    assert runs(shared_pages) == 0


def test_more_is_handed_on(pages: PageDesk) -> None:
    fields = {"hold_minutes": "5", "reruns": "2", "diagnose": "1", "reuse_hours": "36"}
    sent = values_of(plan(pages, **fields)) | {"action": "start"}
    run = pages.post("/launch", **sent).headers["location"].removeprefix("/runs/")
    spec = pages.stores.runs.spec(run)
    assert (spec.hold_minutes, spec.reuse_max_age_s) == (5.0, 36 * 3600)
    assert spec.retests is not None
    assert (spec.retests.reruns, spec.retests.diagnose) == (2, True)


def test_a_package_comes_from_the_form(pages: PageDesk) -> None:
    shown = plan(pages, source="package", package="proof==1.9", version="1.9")
    run = pages.post("/launch", **(values_of(shown) | {"source": "package", "action": "start"}))
    name = run.headers["location"].removeprefix("/runs/")
    assert pages.stores.runs.spec(name).matrix.subject.package == "proof==1.9"


def test_a_file_takes_the_place_of_the_text(pages: PageDesk) -> None:
    values = {"csrf": pages.viewer.csrf(), "text": "old", "action": "plan", "known": ["here"]}
    sent = {"file": ("mine.yaml", MATRIX.encode(), "text/yaml")}
    headers = {"Origin": "http://trials.example", "Sec-Fetch-Site": "same-origin"}
    answer = pages.client.post("/launch", data=values, files=sent, headers=headers)
    assert answer.status_code == 200, answer.text[:500]
    shown = read_page(answer.text)
    assert values_of(shown)["text"] == MATRIX
    assert values_of(shown)["name"] == ["mine.yaml"]


def test_who_may_only_read_cannot_launch(shared_pages: PageDesk) -> None:
    reader = shared_pages.as_viewer("read")
    assert "needs the scope run" in reader.page("/launch", status=403).text
    reader.post("/launch", status=403, text=MATRIX, action="start")
    shared_pages.post("/launch", status=403, csrf="AAAA", text=MATRIX, action="start")
    assert runs(shared_pages) == 0


def test_a_form_is_known_by_all_of_its_values() -> None:
    one = LaunchForm(text="a", platforms=("x",))
    assert one.fingerprint == LaunchForm(text="a", platforms=("x",)).fingerprint
    assert one.fingerprint != LaunchForm(text="a", platforms=("y",)).fingerprint
