"""The payload's level: nobody's word, somebody's, and how long it holds."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from orchestrator.domain.collected_tests import Hook, TestSet
from orchestrator.domain.gate.payload_review import PayloadReview, review_in_force, review_state
from orchestrator.domain.gate.policy import EvidenceRule
from orchestrator.domain.gate.rule_context import rule_fault
from orchestrator.domain.gate.verdict import Decision, RuleOutcome
from tests.unit.gate.builders import NOW, cell, job, judge, policy, result, snapshot

PASS, FAIL, OPEN = Decision.PASS, Decision.FAIL, Decision.INCONCLUSIVE
DIGEST = "cd" * 32
SUBJECT = {"name": "torchbridge", "version": "0.4.6", "payload_sha256": DIGEST}


def said(level: str = "reviewed", *, hours_ago: int = 1, **more: object) -> PayloadReview:
    told: dict[str, object] = {
        "id": f"R-{99 - hours_ago:04d}", "payload": DIGEST, "by": "ann", "token": "t-1",
        "at": NOW - timedelta(hours=hours_ago), "expires": NOW + timedelta(days=9),
    }  # fmt: skip
    return PayloadReview(level=level, **{**told, **more})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("reviews", "level"),
    [
        ([], "untrusted"),
        ([said()], "reviewed"),
        ([said("trusted", hours_ago=2), said()], "trusted"),
        ([said("trusted", hours_ago=2, expires=NOW), said()], "reviewed"),
        ([said(expires=NOW)], "untrusted"),
        ([said(hours_ago=-1)], "untrusted"),
        ([said(payload="ab" * 32)], "untrusted"),
        ([said("trusted", hours_ago=2), said("untrusted")], "untrusted"),
        ([said("untrusted", hours_ago=2), said()], "reviewed"),
        # What was taken back stays so when the word that took it back is over.
        ([said("trusted", hours_ago=2), said("untrusted", expires=NOW)], "untrusted"),
    ],
)
def test_what_a_payload_is_held_for(reviews: list[PayloadReview], level: str):
    for order in (reviews, reviews[::-1]):
        found = review_in_force(DIGEST, order, NOW)
        assert (found.level if found else "untrusted") == level


@pytest.mark.parametrize(
    ("wanted", "reviews", "decision", "outcome"),
    [
        ("untrusted", (), PASS, RuleOutcome.UNKNOWN),
        ("untrusted", (said(),), PASS, RuleOutcome.OK),
        ("reviewed", (), FAIL, RuleOutcome.VIOLATED),
        ("reviewed", (said(),), PASS, RuleOutcome.OK),
        ("reviewed", (said("trusted"),), PASS, RuleOutcome.OK),
        ("trusted", (said(),), FAIL, RuleOutcome.VIOLATED),
        ("trusted", (said("trusted"),), PASS, RuleOutcome.OK),
    ],
)
def test_a_policy_may_ask_for_a_level(wanted, reviews, decision, outcome):
    rules = policy(evidence=EvidenceRule(payload_level=wanted))
    verdict = judge(rules, snapshot(cell(subject=SUBJECT), reviews=reviews))
    assert verdict.decision is decision
    found = result(verdict, "payload_level")
    assert (found.outcome, found.blocking) == (outcome, wanted != "untrusted")


def test_it_names_the_digest_who_read_it_what_to_read_and_the_command():
    hooks = (
        Hook(name="pytest_runtest_makereport", file="conftest.py"),
        Hook(name="pytest_pyfunc_call", file="conftest.py"),
    )
    evidence = snapshot(cell("gcp-l4", job(test_set=TestSet(hooks=hooks)), subject=SUBJECT))
    asked = policy(evidence=EvidenceRule(payload_level="reviewed"))
    assert result(judge(asked, evidence), "payload_level").sentence == (
        f"A payload that is reviewed is asked for; the payload sha256:{DIGEST} is untrusted: nobody"
        " has reviewed it; whoever reads it says so by `seatrial gate review"
        f" {DIGEST} --level reviewed --days 90`; to be read before all: conftest.py"
        " (pytest_pyfunc_call, pytest_runtest_makereport)."
    )
    assert result(judge(policy(), evidence), "payload_level").sentence == (
        f"The payload sha256:{DIGEST} is untrusted: nobody has reviewed it."
    )
    read = replace(evidence, reviews=(said(),))
    assert result(judge(asked, read), "payload_level").sentence == (
        f"The payload sha256:{DIGEST} is reviewed: ann said so, until 2026-01-29."
    )


def test_of_several_payloads_each_must_have_been_read():
    other = SUBJECT | {"payload_sha256": "ab" * 32}
    cells = (cell(subject=SUBJECT), cell("aws-a10g", subject=other))
    asked = policy("gcp-l4", "aws-a10g", evidence=EvidenceRule(payload_level="reviewed"))
    verdict = judge(asked, snapshot(*cells, reviews=(said(),)))
    assert result(verdict, "payload_level").outcome is RuleOutcome.VIOLATED


def test_where_no_payload_is_known_nobody_can_have_read_it():
    asked = policy(evidence=EvidenceRule(payload_level="reviewed"))
    verdict = judge(asked, snapshot(cell()))
    assert verdict.decision is OPEN
    assert "of gcp-l4 no payload is known" in result(verdict, "payload_level").sentence
    assert not [one for one in judge(policy(), snapshot(cell())).rules if one.id == "payload_level"]


def test_nothing_waives_it_but_to_read_the_payload():
    assert "seatrial gate review DIGEST" in rule_fault("payload_level", policy())


def test_a_withdrawn_review_names_who_withdrew_it():
    def said(name, level, days, by):
        at = NOW - timedelta(days=days)
        return PayloadReview(id=name, payload=DIGEST, level=level, by=by, token=by, at=at,
                             expires=NOW + timedelta(days=9))  # fmt: skip

    first, taken = said("R-0001", "reviewed", 3, "ann"), said("R-0002", "untrusted", 2, "bob")
    both = (first, taken)
    evidence = snapshot(cell(subject=SUBJECT), reviews=both)
    told = result(judge(policy(), evidence), "payload_level").sentence
    assert told.endswith(f"is untrusted: bob withdrew its review on {taken.at:%Y-%m-%d}.")
    assert [review_state(one, both, NOW) for one in both] == ["withdrawn", "active"]
    assert review_state(first, both, NOW + timedelta(days=10)) == "expired"
    again = said("R-0003", "reviewed", 1, "ann")
    assert review_state(again, (*both, again), NOW) == "active"
