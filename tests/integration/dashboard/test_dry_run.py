"""Trying an edited policy: beside what the gate has said, and nothing is kept."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.integration import gate_world
from tests.integration.dashboard.desk import PageDesk
from tests.integration.dashboard.shown import Element, read_page

FAILED = {"tests/test_a.py::one": "passed", "tests/test_a.py::two": "failed"}
URL = "/gates/release/dry-run"
LAX = gate_world.POLICY.replace("{id: unit, on: [here]}", "{id: unit, on: [here], level: advisory}")


@pytest.fixture
def pages(pages: PageDesk) -> PageDesk:
    gate_world.put(pages.api)
    return pages


@pytest.fixture(scope="module")
def gate(shared_pages: PageDesk) -> PageDesk:
    """A gate without any run."""
    gate_world.put(shared_pages.api)
    return shared_pages


def tried(pages: PageDesk, status: int = 200, **fields: str) -> Element:
    return read_page(pages.post(URL, status=status, **fields).text)


def test_the_present_policy_stands_in_the_form(gate: PageDesk) -> None:
    page = gate.page(URL)
    assert _text(page) == gate_world.POLICY
    assert page.one("input", value="newest").has("checked")
    gate.page("/gates/other/dry-run", status=404)


def test_an_edited_policy_stands_beside_the_stored_verdict(pages: PageDesk) -> None:
    gate_world.ran(pages.api, tests=FAILED)
    gate_world.check(pages.api)
    page = tried(pages, policy=LAX)
    result = page.one(id="result").text
    assert result.startswith("Decision ✓ PASS All ")
    assert "V-0001 of the same runs says ✗ FAIL" in result
    [row] = page.rows("changes")
    assert (row["Rule"], row["Stored verdict"], row["Dry run"]) == (
        "job/unit@here",
        "✗ violated",
        "only informs",
    )
    assert _text(page) == LAX
    assert len(pages.stores.gates.verdicts()) == 1
    assert len(pages.stores.gates.policy_history("release")) == 1


def test_a_browsers_line_ends_change_no_line(gate: PageDesk) -> None:
    wrong = gate_world.POLICY.replace("{id: here}", "{id: here, levle: blocking}")
    page = tried(gate, 422, policy=wrong.replace("\n", "\r\n"))
    [problem] = page.one(id="problems").all("li")
    assert "did you mean 'level'" in problem.text
    link = problem.one("a")
    line = int(link["data-line"])
    assert link["href"] == f"#L{line}"
    assert "levle" in page.one("bdi", class_="wrong").text
    assert page.one("bdi", id=f"L{line}").classes == {"wrong"}
    assert _text(page) == wrong
    assert page.one("textarea")["aria-describedby"] == "problems"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\x00",
        "{" * 3_000,
        "a: &a [*a]",
        "&a [*a, *a]",
        "!!python/object/apply:os.system [id]",
        "</textarea><script>alert(1)</script>",
        "\u202e" * 200,
        "- " * 500,
        "metadata: [1]",
        "x: y\n" * 300,
    ],
)
def test_a_text_that_is_no_policy_is_refused_and_kept(gate: PageDesk, text: str) -> None:
    answer = gate.post(URL, status=422, policy=text)
    assert "<script>alert" not in answer.text
    page = read_page(answer.text)
    assert page.one(id="problems").all("li")
    assert len(list(page.walk())) < 5_000


def test_what_it_would_have_said_of_the_last_verdicts(pages: PageDesk) -> None:
    gate_world.ran(pages.api)
    gate_world.check(pages.api, "good")
    gate_world.ran(pages.api, "key-2", FAILED)
    gate_world.check(pages.api, "bad")
    pages.api.clock.move(hours=20)
    pages = pages.as_viewer("admin")
    page = tried(pages, policy=LAX, against="past", last="5")
    rows = page.rows("past")
    assert [row["Verdict"] for row in rows] == ["V-0002", "V-0001"]
    assert rows[0]["Stored decision"] == "✗ FAIL"
    assert rows[0]["Dry run"] == "✓ PASS another decision"
    assert rows[0]["What differs"] == "1 better: job/unit@here"
    assert rows[1]["Dry run"] == "✓ PASS"
    assert len(tried(pages, policy=LAX, against="past", last="1").rows("past")) == 1
    button = page.one(id="past").one("button")
    assert button["data-copy-text"].startswith("**Decisions on past evidence**")
    assert not page.one(id="past").all("a", href="/gates/release/dry-run.csv?table=past")


def test_evidence_that_is_gone_is_said(pages: PageDesk) -> None:
    gate_world.ran(pages.api)
    gate_world.check(pages.api)
    stored = pages.stores.gates.verdicts()[0]
    pages.stores.gates.add_verdict(replace(stored, snapshot_digest="0" * 64))
    rows = tried(pages, policy=LAX, against="past").rows("past")
    assert rows[0]["What differs"] == "its evidence is gone"
    assert rows[0]["Dry run"] == "–"
    assert rows[1]["Dry run"] == "✓ PASS"


@pytest.mark.parametrize("last", ["0", "21", "-1", "x", "9" * 5_000, "²"])
def test_how_many_is_checked(gate: PageDesk, last: str) -> None:
    page = tried(gate, 422, policy=gate_world.POLICY, against="past", last=last)
    assert "choose from 1 to 20" in page.one(id="result").text


def test_runs_are_named_by_their_beginnings(pages: PageDesk) -> None:
    run = gate_world.ran(pages.api)
    page = tried(pages, policy=gate_world.POLICY, against="runs", runs=f" {run[:-2]}, ")
    assert "The gate has no verdict on" in page.one(id="result").text
    assert page.one(id="result").one("a")["href"] == f"/runs/{run}"
    for runs, says in (("", "name the runs"), ("nothing", "no run"), ("a " * 11, "at most 10")):
        page = tried(pages, 422, policy=gate_world.POLICY, against="runs", runs=runs)
        assert says in page.one(id="result").text
        assert page.one("input", name="runs")["value"] == runs


def test_a_policy_of_another_product_is_said(pages: PageDesk) -> None:
    run = gate_world.ran(pages.api)
    other = gate_world.POLICY.replace("product: proof", "product: other")
    page = tried(pages, 422, policy=other, against="runs", runs=run)
    assert "the gate is of 'other'" in page.one(id="result").text
    assert "no finished run" in tried(pages, policy=other).one(id="result").text


def test_whoever_may_look_may_try_and_only_from_our_page(gate: PageDesk) -> None:
    reader = gate.as_viewer("read")
    assert reader.post(URL, status=200, policy=gate_world.POLICY)
    reader.post(URL, status=403, csrf="", policy=gate_world.POLICY)


def test_the_answer_can_be_had_as_json(pages: PageDesk) -> None:
    gate_world.ran(pages.api)
    told = pages.post(f"{URL}.json", status=200, policy=gate_world.POLICY).json()
    assert told["verdict"]["decision"] == "PASS"
    assert told["stored"] is None


def _text(page: Element) -> str:
    """The browser drops the first line end of a text area."""
    raw = "".join(str(one) for one in page.one("textarea").children)
    return raw.removeprefix("\n")
