"""The page of a gate: its rules, verdicts, waivers, approvals and policy, and what may be done."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.application.sign_off import NewWaiver, request_waiver
from orchestrator.dashboard.pages.gates import gate
from tests.integration import gate_world
from tests.integration.dashboard.desk import PageDesk
from tests.integration.dashboard.shown import read_page

FAILED = {"tests/test_a.py::one": "passed", "tests/test_a.py::two": "failed"}
RULE = "job/unit@here"


@pytest.fixture
def pages(pages: PageDesk) -> PageDesk:
    gate_world.put(pages.api)
    return pages


@pytest.fixture(scope="module")
def red(shared_pages: PageDesk) -> PageDesk:
    """A gate whose only verdict fails; nobody changes it."""
    gate_world.put(shared_pages.api)
    failing(shared_pages)
    return shared_pages


def failing(pages: PageDesk) -> None:
    gate_world.ran(pages.api, tests=FAILED)
    gate_world.check(pages.api, "fails")


def test_before_its_first_verdict_it_says_what_to_do(pages: PageDesk) -> None:
    page = pages.page("/gates/release")
    assert "seatrial gate check release" in page.one(class_="decision").text
    assert not page.all(id="rules")
    assert page.rows("versions")[0]["Version"].endswith("present")


def test_a_passing_gate_has_nothing_in_its_way(pages: PageDesk) -> None:
    assert "There is no verdict yet." in pages.page("/gates/release").one(id="waive").text
    gate_world.ran(pages.api)
    gate_world.check(pages.api, "passes")
    assert "No rule blocks the release." in pages.page("/gates/release").one(id="waive").text


def test_a_badge_is_not_offered_to_who_cannot_see_it(red: PageDesk) -> None:
    page = red.page("/gates/release")
    assert "only for who is signed in" in page.text
    assert not [one for one in page.all("button") if "README" in one.text]


def test_a_gate_that_is_not_there_says_which_are(red: PageDesk) -> None:
    assert "known: release" in red.page("/gates/other", status=404).text


def test_the_decision_is_a_sentence_and_rules_say_what_they_saw(red: PageDesk) -> None:
    page = red.page("/gates/release")
    said = page.one(class_="big-words").text
    assert said == "✗ FAIL 1 blocking rule is violated: job/unit@here."
    row, level = page.rows("rules")
    assert (row["Rule"], row["Outcome"]) == (RULE, "✗ violated")
    assert level["Rule"].startswith("payload_level")
    assert (row["Observed"], row["Allowed"]) == ("1 failed", "0 not tolerated")
    facts = page.one(id="rules").all("details")[0].one("dl").text
    assert "outcome failed" in facts
    assert "intolerable 1" in facts
    passed = {one["Rule"]: (one["Observed"], one["Allowed"]) for one in page.rows("rules-ok")}
    assert "job/demo@here" in passed
    assert passed["attestation/here"] == ("attested", "required")


def test_verdicts_say_what_changed_and_are_paged(
    pages: PageDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate, "PAGE_SIZE", 3)
    gate_world.ran(pages.api)
    gate_world.check(pages.api, "first")
    gate_world.ran(pages.api, "key-2", FAILED)
    for number in range(4):
        gate_world.check(pages.api, f"again-{number}")
    page = pages.page("/gates/release")
    rows = page.rows("verdicts")
    assert len(rows) == 3
    assert rows[0]["Verdict"] == "V-0005"
    assert rows[0]["Since the one before"] == "no blocking rule changed"
    more = page.one(id="verdicts").one("a", rel="next")["href"]
    rest = pages.page(more.partition("#")[0]).rows("verdicts")
    assert [row["Verdict"] for row in rest] == ["V-0002", "V-0001"]
    assert rest[0]["Since the one before"] == "1 worse: job/unit@here"
    assert rest[1]["Since the one before"] == "the first one"


def test_a_rule_is_waived_once_however_often_the_form_is_sent(pages: PageDesk) -> None:
    failing(pages)
    form: dict[str, Any] = {"rule": RULE, "reason": "known upstream", "days": "7"}
    sent = [pages.post("/gates/release/waivers", **form) for _ in range(2)]
    assert {one.headers["location"] for one in sent} == {"/gates/release#W-0001"}
    page = pages.page("/gates/release")
    [row] = page.rows("waivers")
    assert (row["State"], row["Requested by"]) == ("? needs approval", "a admin")
    assert row["Approved"] in ("", "–")
    assert "".join(row["Rule"].split()) == f"{RULE}fortests/test_a.py::two"
    address = "/gates/release/waivers/W-0001/approve"
    assert not page.all("form", action=address)
    refused = pages.post(address, status=422)
    assert "cannot approve it" in read_page(refused.text).one(class_="refused").text
    other = pages.as_viewer("gate")
    assert other.page("/gates/release").all("form", action=address)
    for _ in range(2):
        assert other.post(address).headers["location"] == "/gates/release#W-0001"
    late = pages.post(address, status=409)
    said = read_page(late.text).one(class_="refused").text
    assert "W-0001 is approved already, by a gate at" in said
    [row] = pages.page("/gates/release").rows("waivers")
    assert (row["State"], row["Approved by"]) == ("● active", "a gate")
    assert row["Approved"].startswith("2026-")
    made = pages.post("/gates/release/verdicts", key="k", runs="V-0001").headers["location"]
    again = pages.post("/gates/release/verdicts", key="k", runs="V-0001").headers["location"]
    assert made == again == "/verdicts/V-0002"
    shown = pages.page("/gates/release")
    assert shown.rows("rules")[0]["Outcome"] == "✓* waived by W-0001"
    pages.api.clock.move(days=8)
    late = pages.as_viewer("read").page("/gates/release").rows("waivers")
    assert late[0]["State"].endswith("expired")


def test_a_waiver_is_for_the_verdict_that_the_page_showed(pages: PageDesk) -> None:
    assert not pages.page("/gates/release").all("input", name="only_this")
    failing(pages)
    seen = gate_world.check(pages.api, "other-line", lineage="nightly")
    gate_world.ran(pages.api, "key-2", FAILED)
    gate_world.check(pages.api, "newer")
    form = pages.page("/gates/release?lineage=nightly").one(id="waive")
    shown = form.one("input", name="verdict")["value"]
    assert shown == seen["id"]
    assert f"Only for the evidence of {shown}" in form.text
    sent: dict[str, Any] = {"rule": RULE, "reason": "known", "only_this": "1", "verdict": shown}
    refused = pages.post("/gates/release/waivers", status=422, **sent, days="0")
    again = read_page(refused.text).one(id="waive")
    assert again.one("input", name="verdict")["value"] == shown
    assert f"Only for the evidence of {shown}" in again.text
    for _ in range(2):  # as by a reload
        pages.post("/gates/release/waivers", **sent, days="7")
    [waiver] = pages.stores.gates.waivers()
    assert (waiver.verdict, waiver.waiver.evidence) == (shown, seen["evidence_digest"])


def test_a_waiver_for_a_verdict_of_nowhere_is_refused_in_words(red: PageDesk) -> None:
    form: dict[str, Any] = {"rule": RULE, "reason": "known", "days": "7"}
    answer = red.post("/gates/release/waivers", status=422, **form, verdict="V-0009")
    page = read_page(answer.text).one(id="waive")
    assert "there is no verdict 'V-0009'" in page.text
    assert page.one("input", name="verdict")["value"] == "V-0001"
    assert red.stores.gates.waivers() == []


@pytest.mark.parametrize(
    ("changed", "field", "says"),
    [
        ({"days": "91"}, "days", "from 1 to 90"),
        ({"days": "1e9"}, "days", "from 1 to 90"),
        ({"reason": " "}, "reason", "must not be empty"),
        ({"rule": "job/unti@here"}, "rule", "did you mean 'job/unit@here'"),
        ({"rule": "freshness/here"}, "rule", "stale evidence cannot be waived"),
        ({"rule": "<script>alert(1)</script>"}, "rule", "there is no rule"),
    ],
)
def test_a_waiver_that_cannot_be_keeps_what_was_written(
    red: PageDesk, changed: dict[str, str], field: str, says: str
) -> None:
    form = {"rule": RULE, "reason": "because <b>", "days": "7", **changed}
    answer = red.post("/gates/release/waivers", status=422, **form)
    assert "<b>" not in answer.text
    assert "<script>alert" not in answer.text
    page = read_page(answer.text)
    assert page.one("details", id="waive").has("open")
    assert says in page.one(id=f"{field}-mistake").text
    assert page.one(id=field).get("aria-describedby") == f"{field}-mistake"
    for name in ("rule", "days"):
        assert page.one("input", id=name)["value"] == form[name]
    assert red.stores.gates.waivers() == []


def test_the_rule_in_the_address_stands_in_the_form(red: PageDesk) -> None:
    page = red.page(f"/gates/release?rule={RULE}")
    assert page.one("input", id="rule")["value"] == RULE
    assert [one["value"] for one in page.one(id="waivable").all("option")] == [RULE]


def test_evidence_is_approved_by_name_and_once(pages: PageDesk) -> None:
    failing(pages)
    for _ in range(2):
        pages.post("/gates/release/approvals", verdict="V-0001")
    [row] = pages.page("/gates/release").rows("approvals")
    assert row["Approved by"] == "a admin"
    assert row["Evidence"].startswith("of V-0001")
    assert row["Remark"] == "It counts for nothing: V-0001 asks for no approval."
    [row] = pages.page("/verdicts/V-0001").rows("approvals")
    assert row["Remark"] == "It counts for nothing: V-0001 asks for no approval."
    text = pages.post("/gates/release/approvals", status=422, verdict="V-0009").text
    assert "there is no verdict" in text


def test_who_may_only_look_sees_no_forms_and_changes_nothing(red: PageDesk) -> None:
    for scope in ("read", "run"):
        reader = red.as_viewer(scope)
        posts = reader.page("/gates/release").all("form", method="post")
        assert [form["action"] for form in posts] == ["/logout"]
        for action in ("waivers", "approvals", "verdicts"):
            reader.post(f"/gates/release/{action}", status=403)
    assert red.as_viewer("gate").page("/gates/release").all("form", action="*")


def test_the_policy_is_shown_as_it_came_with_its_versions(pages: PageDesk) -> None:
    hostile = "# </pre><script>alert(1)</script> \u202e\u200b\n" + gate_world.POLICY
    changed = hostile.replace("{id: here}", "{id: here, consecutive_green: 2}")
    gate_world.put(pages.api, changed)
    old, new = (one.digest for one in reversed(pages.stores.gates.policy_history("release")))
    page = pages.page("/gates/release")
    lines = page.one("pre", class_="policy-text").all("bdi")
    assert lines[0].text == "# </pre><script>alert(1)</script> \\u202e\\u200b"
    assert len(lines) == len(changed.splitlines())
    before = pages.page(f"/gates/release?version={old}")
    assert "not the gate's policy any more" in before.one(id="policy").text
    diff = pages.page(f"/gates/release?version={new}&against={old}").one("pre", class_="diff")
    assert [one.text for one in diff.all("del")] == ["- - {id: here}"]
    assert diff.all("ins")[-1].text == "+ - {id: here, consecutive_green: 2}"
    assert pages.json("/gates/release")["policy"]["text"] == changed
    pages.page("/gates/release?version=none", status=404)


def test_a_policy_of_many_lines_keeps_the_page_small(pages: PageDesk) -> None:
    text = gate_world.POLICY + "# x\n" * 2_500
    gate_world.put(pages.api, text.replace("{id: here}", "{id: here, consecutive_green: 3}"))
    page = pages.page("/gates/release")
    assert len(list(page.walk())) < 1_500
    assert "more lines" in page.one(id="policy").text
    old, new = (one.digest for one in reversed(pages.stores.gates.policy_history("release")))
    compared = pages.page(f"/gates/release?version={new}&against={old}")
    assert "too long to be compared" in compared.one(id="policy").text


def test_many_waivers_and_verdicts_cost_no_more_statements(pages: PageDesk) -> None:
    failing(pages)
    pages.page("/gates/release")
    with pages.counted() as few:
        pages.page("/gates/release")
    for number in range(51):
        new = NewWaiver(gate="release", rule=RULE, reason=f"{number}", days=1)
        request_waiver(pages.api.context, new, author=pages.viewer.person)
    for number in range(3):
        gate_world.check(pages.api, f"more-{number}")
    with pages.counted() as many:
        page = pages.page("/gates/release")
    assert len(many) <= len(few) + 4 <= 20
    assert len(page.rows("waivers")) == 50
    assert len(list(page.walk())) < 5_000
