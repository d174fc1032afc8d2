"""The page of a verdict: what it hangs on, who broke it, and how anybody can check it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from orchestrator.domain.gate.gate_documents import verdict_document
from orchestrator.domain.gate.verdict import Decision, RuleOutcome, RuleResult, StoredVerdict
from tests.integration import gate_world
from tests.integration.dashboard.desk import PageDesk

FAILED = {"tests/test_a.py::one": "passed", "tests/test_a.py::two": "failed"}
HARM = "<img src=x onerror=alert(1)>\u202e\u200b\x1b[31m"


def decided(pages: PageDesk) -> PageDesk:
    """Two verdicts of a gate: PASS, and then FAIL."""
    gate_world.put(pages.api)
    gate_world.ran(pages.api)
    gate_world.check(pages.api, "good")
    gate_world.ran(pages.api, "key-2", FAILED)
    gate_world.check(pages.api, "bad")
    return pages


@pytest.fixture
def pages(pages: PageDesk) -> PageDesk:
    return decided(pages)


@pytest.fixture(scope="module")
def seen(shared_pages: PageDesk) -> PageDesk:
    """The same, which nobody changes."""
    return decided(shared_pages)


def test_it_says_what_was_decided_and_what_changed(seen: PageDesk) -> None:
    page = seen.page("/verdicts/V-0002")
    assert page.one(class_="big-words").text.startswith("✗ FAIL 1 blocking rule is violated")
    assert page.one("a", rel="prev").text == "← V-0001"
    assert "the newest of its line" in page.text
    changed = page.one(class_="changes").text
    assert changed == "job/unit@here ✓ ok → ✗ violated"
    assert not page.all("a", rel="next")
    [row] = page.rows("failing")
    assert row["Test"].replace(" ", "") == "tests/test_a.py::two"
    assert row["Tolerated by"] == "nothing"
    assert page.one(id="failing").one("tbody").one("a")["href"].startswith("/failures/")


def test_rules_are_the_worst_first_and_can_be_narrowed(seen: PageDesk) -> None:
    row, level = seen.page("/verdicts/V-0002").rows("rules")
    assert row["Outcome"] == "✗ violated"
    assert level["Rule"].startswith("payload_level")
    rows = seen.page("/verdicts/V-0002?only=all").rows("rules")
    assert rows[0] == row
    assert rows[-1]["Outcome"] == "✓ ok"
    only = seen.page("/verdicts/V-0002?only=violated").rows("rules")
    assert [row["Rule"] for row in only] == ["job/unit@here"]
    nothing = seen.page("/verdicts/V-0002?only=nonsense&start=9")
    assert "No rule has a result" in nothing.one(id="rules").text
    seen.page("/verdicts/V-0002?start=-1", status=422)


def test_anybody_can_check_it(seen: PageDesk) -> None:
    page = seen.page("/verdicts/V-0002")
    bundle = page.one("a", download="V-0002.intoto.jsonl")["href"]
    assert seen.get(bundle).text.count("\n") >= 2
    keyring = page.one("a", download="keyring.json")["href"]
    assert seen.get(keyring).json()["kind"] == "seatrial-keyring"
    assert page.one(id="verify").text == (
        "seatrial gate verify V-0002.intoto.jsonl --key keyring.json"
    )
    again = seen.page("/verdicts/V-0002?again=1").one(id="replayed").text
    assert again.startswith("The same bytes.")


def test_json_has_the_whole_verdict(seen: PageDesk) -> None:
    stored = seen.stores.gates.verdict("V-0002")
    assert stored is not None
    whole = seen.json("/verdicts/V-0002")
    assert whole["verdict"] == json.loads(json.dumps(verdict_document(stored.verdict)))


def test_a_verdict_that_is_not_there(seen: PageDesk) -> None:
    for name in ("V-0099", "x", "V-0", "V-99999999999"):
        assert "There is no such verdict" in seen.page(f"/verdicts/{name}", status=404).text


def test_what_it_was_made_from_may_be_gone(pages: PageDesk) -> None:
    kept(pages, snapshot_digest="0" * 64)
    page = pages.page("/verdicts/V-0003?again=1")
    assert "cannot be evaluated again" in page.one(id="replayed").text


def test_a_key_that_had_ended_is_said(pages: PageDesk) -> None:
    key = pages.stores.gates.signing_keys()[0]
    pages.stores.gates.retire_key(key.id, at=pages.api.clock.now())
    kept(pages)
    text = pages.page("/verdicts/V-0003").text
    assert "had ended on 2026-03-01 when this was signed: it does not verify" in text
    kept(pages, key_id="nobody's")
    assert "does not know the key" in pages.page("/verdicts/V-0004").text


def test_a_huge_and_hostile_verdict_stays_small_and_harmless(pages: PageDesk) -> None:
    kept(pages, rules=[*map(_job, range(80)), *map(_performance, range(60)), *_others()])
    text = pages.get("/verdicts/V-0003").text
    assert "<img" not in text
    assert not {"\u202e", "\u200b", "\x1b"} & set(text)
    page = pages.page("/verdicts/V-0003")
    assert len(list(page.walk())) < 5_000
    assert len(text) < 900_000
    assert len(page.rows("rules")) == 50
    assert "1 to 50 of 140" in page.text
    assert "the first 50 of 1,600 named by the rules; 400,000 failed" in page.text
    assert len(page.rows("failing")) == len(page.rows("blame")) == 50
    assert len(page.rows("performance")) == 50
    last = pages.page("/verdicts/V-0003?only=all&start=140")
    assert len(last.rows("rules")) == 3
    assert "141 to 143 of 143" in last.text
    with pages.counted() as statements:
        pages.page("/verdicts/V-0003")
    assert len(statements) <= 14


def test_exceptions_are_told_with_their_people(pages: PageDesk) -> None:
    form: dict[str, Any] = {
        "rule": "job/unit@here",
        "reason": "known",
        "days": "7",
    }
    pages.post("/gates/release/waivers", **form)
    pages.as_viewer("gate").post("/gates/release/waivers/W-0001/approve")
    made = pages.post("/gates/release/verdicts", key="k").headers["location"]
    [row] = pages.page(made).rows("exceptions")
    assert row["Exception"] == "W-0001"
    assert row["People"] == "a admin, approved by a gate"
    assert row["Until"] == "2026-03-08 12:00 UTC"


def kept(pages: PageDesk, rules: list[RuleResult] | None = None, **changed: object) -> None:
    """A verdict like the newest one, but for this."""
    stored = pages.stores.gates.verdicts(gate="release", limit=1)[0]
    verdict = stored.verdict
    if rules is not None:
        warnings = tuple(f"{HARM} {number}" for number in range(99))
        verdict = replace(
            verdict,
            rules=tuple(rules),
            decision=Decision.FAIL,
            summary=HARM * 50,
            warnings=warnings,
            subject={"name": HARM, "version": HARM},
        )
    made: StoredVerdict = replace(stored, verdict=verdict, **changed)  # type: ignore[arg-type]
    pages.stores.gates.add_verdict(made)


def _job(number: int) -> RuleResult:
    results = [
        {"name": f"{HARM} {one}", "count": 1, "intolerable": 1, "message": HARM, "by": [HARM]}
        for one in range(20)
    ]
    blame = [{"nodeid": HARM, "answer": HARM, "evidence": HARM * 40} for _ in range(20)]
    return RuleResult(
        id=f"job/{HARM}{number}",
        kind="job",
        blocking=True,
        outcome=RuleOutcome.VIOLATED,
        sentence=HARM * 9,
        inputs={"failing": 5_000, "intolerable": 5_000, "results": results, "blame": blame},
        by=(HARM,),
    )


def _performance(number: int) -> RuleResult:
    figures = {"slowdown": "0.031", "low": "-1e-3", "high": "5e3", "detectable": "1e-9"}
    return RuleResult(
        id=f"performance/{HARM}{number}",
        kind="performance",
        blocking=True,
        outcome=RuleOutcome.UNKNOWN,
        sentence=HARM,
        inputs={**figures, "budget": "3%", "pairs": 30, "reason": HARM},
    )


def _others() -> list[RuleResult]:
    kinds = ("freshness", "something else", "job")
    return [
        RuleResult(id=kind, kind=kind, blocking=False, outcome=RuleOutcome.OK, sentence="")
        for kind in kinds
    ]
