"""What is tolerated: known issues, flaky tests, quarantines; and what is new."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, timedelta

import pytest

from orchestrator.domain.cell import Cause
from orchestrator.domain.gate.policy import (
    FlakyRule,
    JobRule,
    NewFailureRule,
)
from orchestrator.domain.gate.snapshot import JobEvidence, Quarantine
from orchestrator.domain.gate.verdict import Decision
from orchestrator.domain.known_issue import IssueMatch, IssueScope, KnownIssue
from orchestrator.domain.outcome import Counts, Outcome
from tests.unit.gate.builders import (
    NOW,
    PRODUCT,
    cell,
    failed,
    issue,
    job,
    judge,
    policy,
    result,
    snapshot,
)

PASS, WITH = Decision.PASS, Decision.PASS_WITH_EXCEPTIONS
FAIL, OPEN = Decision.FAIL, Decision.INCONCLUSIVE
STALE = "KI-1 (known) is a stale exception: what it is about ran, and nothing failed so. Delete it."


def test_a_known_issue_tolerates_what_it_is_about():
    evidence = snapshot(cell("gcp-l4", job("moe", failed(), failed("t.py::b"))))
    verdict = judge(policy(known_issues=(issue(),)), evidence)
    assert verdict.decision is WITH
    assert result(verdict, "job/moe@gcp-l4").by == ("KI-1",)
    told = result(verdict, "known_issue/KI-1")
    assert told.sentence == "KI-1 (known, team) tolerates 2 of any number, until 2026-03-01."
    assert not told.blocking


@pytest.mark.parametrize(
    "more",
    [
        {"match": IssueMatch(exception="KeyError")},
        {"scope": IssueScope(platforms=("aws-a10g",))},
        {"scope": IssueScope(jobs=("fp8",))},
        {"scope": IssueScope(versions=">=0.5")},
        {"scope": IssueScope(requires_package="torch")},
        {"scope": IssueScope(tests=("t.py::b",))},
        {"expires": date(2026, 1, 19)},
        {"max_failures": 1},
    ],
)
def test_a_known_issue_tolerates_nothing_else(more: dict[str, object]):
    evidence = snapshot(cell("gcp-l4", job("moe", failed(), failed("t.py::b"))))
    assert judge(policy(known_issues=(issue(**more),)), evidence).decision is FAIL


def test_more_failures_than_it_allows_are_new_ones():
    evidence = snapshot(cell("gcp-l4", job("moe", failed(), failed("b"), failed("c"))))
    verdict = judge(policy(known_issues=(issue(max_failures=2),)), evidence)
    found = result(verdict, "job/moe@gcp-l4")
    assert (found.inputs["intolerable"], found.inputs["tolerated"]) == (1, {"KI-1": 2})
    assert "KI-1 would fit, and allows no more" in found.sentence


def test_a_known_issue_whose_failures_are_gone():
    verdict = judge(policy(known_issues=(issue(),)), snapshot(cell()))
    assert verdict.decision is PASS
    assert verdict.warnings == (STALE,)


def test_a_known_issue_that_expired():
    rules = policy(known_issues=(issue(expires=date(2026, 1, 8)),))
    verdict = judge(rules, snapshot(cell("gcp-l4", job("moe", failed()))))
    assert verdict.decision is FAIL
    assert verdict.warnings == (
        "KI-1 (known) expired 12 days ago, on 2026-01-08; 1 failing result would fit.",
    )


def test_a_known_issue_of_the_product():
    stored = KnownIssue(
        id="KI-0009",
        product=PRODUCT,
        title="stored",
        match=IssueMatch(signature="s1-aa"),
        owner="team",
        opened=date(2026, 1, 1),
        expires=date(2026, 2, 1),
    )
    evidence = snapshot(cell("gcp-l4", job("moe", failed())), known_issues=(stored,))
    assert judge(policy(), evidence).decision is WITH
    ended = replace(stored, ended_at=NOW, ended_by="ann")
    assert judge(policy(), replace(evidence, known_issues=(ended,))).decision is FAIL


def test_failures_that_nobody_names():
    counted = job("moe", counts=Counts(passed=5, failed=3), outcome=Outcome.FAILED)
    evidence = snapshot(cell("gcp-l4", counted))
    assert judge(policy(known_issues=(issue(),)), evidence).decision is FAIL
    scope = IssueScope(platforms=("gcp-l4",), jobs=("moe",))
    told = issue(scope=scope, max_failures=3, without_signature="allowed")
    assert judge(policy(known_issues=(told,)), evidence).decision is WITH
    less = replace(told, max_failures=2)
    assert judge(policy(known_issues=(less,)), evidence).decision is FAIL


def test_a_failed_check_is_known_by_its_name():
    demo = job(
        "demo",
        kind="demo",
        outcome=Outcome.FAILED,
        reason="checks",
        counts=Counts(),
        failed_checks=("training",),
    )
    evidence = snapshot(cell("gcp-l4", job(), demo))
    assert judge(policy(), evidence).decision is FAIL
    told = issue(match=IssueMatch(contains="training"))
    assert judge(policy(known_issues=(told,)), evidence).decision is WITH


def test_a_time_out_is_a_failure_of_its_own():
    late = job("moe", failed(), outcome=Outcome.TIMED_OUT, reason="timeout")
    verdict = judge(policy(known_issues=(issue(),)), snapshot(cell("gcp-l4", late)))
    assert verdict.decision is FAIL
    assert result(verdict, "job/moe@gcp-l4").inputs["intolerable"] == 1


@pytest.mark.parametrize(
    ("ending", "decision"),
    [
        (Cause(Outcome.FAILED, "crashed", "pytest died of signal 11"), FAIL),
        (Cause(Outcome.FAILED, "exit", "pytest exited with 77"), FAIL),
        (Cause(Outcome.TIMED_OUT, "deadline"), FAIL),
        (Cause(Outcome.ERRORED, "lost", "the machine is gone"), OPEN),
        (Cause(Outcome.CANCELLED, "cancelled"), OPEN),
    ],
)
@pytest.mark.parametrize("by", ["issue", "scope", "quarantine", "flaky"])
def test_tolerated_tests_excuse_no_other_end_of_their_job(by: str, ending: Cause, decision):
    test = failed(quarantine="Q-0001", reruns=("passed",))
    wide = {"scope": IssueScope(platforms=("gcp-l4",), jobs=("moe",)), "max_failures": 9}
    rules = {
        "issue": {"known_issues": (issue(),)},
        "scope": {"known_issues": (issue(**wide, without_signature="allowed"),)},
        "quarantine": {},
        "flaky": {"flaky": FlakyRule(reruns=1, rerun_success="flaky", max=9)},
    }[by]
    held = {"quarantines": (quarantine(),)} if by == "quarantine" else {}
    for ended, then in ((None, WITH), (ending, decision)):
        evidence = snapshot(cell("gcp-l4", job("moe", test, ending=ended)), **held)
        assert judge(policy(**rules), evidence).decision is then


CRASH = Cause(Outcome.FAILED, "crashed", "the interpreter ended in t.py::a: died of signal 11")
REPORT = "it printed 'FAILED' and ended with exit code 0"


@pytest.mark.parametrize(
    ("failing", "told"),
    [
        (job("moe", failed(exception="crashed"), ending=CRASH), "t.py::a crashed (SIGSEGV)"),
        (job("moe", failed(exception="hung")), "1 not tolerated (t.py::a hung)"),
        (job("moe", failed()), "1 not tolerated (t.py::a)"),
        (job("moe", outcome=Outcome.FAILED, reason="checks", failed_checks=("self-report",),
             check_reasons={"self-report": REPORT}), f"1 not tolerated (self-report: {REPORT})"),
        (job("moe", outcome=Outcome.FAILED, reason="exit", counts=Counts(), passed=0),
         "1 not tolerated (exit)"),
    ],
)  # fmt: skip
def test_a_job_says_how_it_failed_and_where_to_look(failing: JobEvidence, told: str):
    sentence = result(judge(policy(), snapshot(cell("gcp-l4", failing))), "job/moe@gcp-l4").sentence
    assert told in sentence
    assert "((" not in sentence
    assert sentence.endswith(" See `seatrial show run-1`.")


def test_it_says_how_a_job_ended_beside_its_tests_and_a_known_issue_may_be_about_that():
    crash = Cause(Outcome.FAILED, "crashed", "pytest died of signal 11")
    evidence = snapshot(cell("gcp-l4", job("moe", failed(), ending=crash)))
    verdict = judge(policy(known_issues=(issue(),)), evidence)
    assert result(verdict, "job/moe@gcp-l4").sentence == (
        "moe on gcp-l4 ended failed (tests); 2 failed: 1 tolerated by KI-1, 1 not tolerated"
        " (crashed: pytest died of SIGSEGV). See `seatrial show run-1`."
    )
    meant = issue("KI-2", match=IssueMatch(contains="died of signal 11"), max_failures=1)
    assert judge(policy(known_issues=(issue(), meant)), evidence).decision is WITH


def test_new_failures():
    rules = policy(
        jobs=(JobRule(id="moe", level="advisory"), JobRule(id="ok")),
        new_failures=NewFailureRule(max=0),
    )
    known = cell("gcp-l4", job("ok"), job("moe", failed(is_new=False)))
    assert judge(rules, snapshot(known, last_green="run-0")).decision is PASS
    new = cell("gcp-l4", job("ok"), job("moe", failed(is_new=True)))
    verdict = judge(rules, snapshot(new, last_green="run-0"))
    assert verdict.decision is FAIL
    assert result(verdict, "new_failures").inputs["tests"] == ["moe: t.py::a"]
    assert judge(rules, snapshot(known)).decision is OPEN


def test_flaky_tests():
    again = failed(reruns=("failed", "passed"))
    evidence = snapshot(cell("gcp-l4", job("moe", again, replace(again, nodeid="t.py::b"))))
    assert judge(policy(flaky=FlakyRule(reruns=2)), evidence).decision is FAIL
    allowed = FlakyRule(reruns=2, rerun_success="flaky", max=2)
    verdict = judge(policy(flaky=allowed), evidence)
    assert verdict.decision is WITH
    assert result(verdict, "job/moe@gcp-l4").by == ("flaky",)
    assert "2 failed tests passed when run again; 2 may." in result(verdict, "flaky").sentence
    assert judge(policy(flaky=replace(allowed, max=1)), evidence).decision is FAIL


def quarantine(**more: object) -> Quarantine:
    told: dict[str, object] = {
        "product": PRODUCT, "nodeid": "t.py::a", "reason": "flaky", "owner": "team",
        "opened": NOW - timedelta(days=9), "expires": NOW + timedelta(days=1),
    }  # fmt: skip
    return Quarantine(id="Q-0001", **{**told, **more})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("one", "honoured", "decision"),
    [
        (quarantine(), "honoured", WITH),
        (quarantine(), "ignored", FAIL),
        (quarantine(expires=NOW), "honoured", FAIL),
        (quarantine(platforms=("aws-a10g",)), "honoured", FAIL),
        (quarantine(ended_at=NOW, ended_by="returned"), "honoured", FAIL),
    ],
)
def test_quarantine(one: Quarantine, honoured: str, decision: Decision):
    evidence = snapshot(cell("gcp-l4", job("moe", failed(quarantine="Q-0001"))), quarantines=(one,))
    rule = FlakyRule(quarantine=honoured)  # type: ignore[arg-type]
    verdict = judge(policy(flaky=rule), evidence)
    assert verdict.decision is decision
    if one.ended_at or one.expires <= NOW:
        assert len(verdict.warnings) == 1
        assert "Q-0001" in verdict.warnings[0]


@pytest.mark.parametrize(
    ("version", "said"),
    [
        (2, "t.py::a fails; its quarantine Q-0001 expired 0 days ago."),
        (3, "t.py::a failed in run-0, and not in this evidence; its quarantine Q-0001 expired"),
    ],
)
def test_a_quarantined_test_that_failed_in_another_run_alone_is_not_said_to_fail(
    version: int, said: str
):
    again = job("moe", failed_before=(failed(run="run-0", quarantine="Q-0001"),))
    evidence = snapshot(cell("gcp-l4", again), quarantines=(quarantine(expires=NOW),))
    (warning,) = judge(policy(), evidence, rules_version=version).warnings
    assert warning.startswith(said)


def test_who_broke_it_stands_in_the_verdict():
    blamed = (
        {"job": "moe", "nodeid": "t.py::a", "answer": "subject", "evidence": "Four of four."},
    )
    verdict = judge(policy(), snapshot(cell("gcp-l4", job("moe", failed()), blame=blamed)))
    found = result(verdict, "job/moe@gcp-l4")
    assert "; root cause: subject (1). See" in found.sentence
    assert found.inputs["blame"] == [dict(blamed[0])]


def test_a_command_that_was_diagnosed_is_blamed_by_its_job():
    """It has no tests: an empty node id is the job itself, and no other one."""
    blamed = ({"job": "demo", "nodeid": "", "answer": "subject", "evidence": "Four of four."},)
    red = job("demo", kind="demo", outcome=Outcome.FAILED)
    evidence = snapshot(cell("gcp-l4", red, job("moe", failed()), blame=blamed))
    verdict = judge(policy(), evidence)
    assert result(verdict, "job/demo@gcp-l4").inputs["blame"] == [dict(blamed[0])]
    assert result(verdict, "job/moe@gcp-l4").inputs["blame"] == []


def test_an_informing_failure_takes_nothing_from_a_blocking_one():
    rules = policy(
        jobs=(JobRule(id="a", level="advisory"), JobRule(id="*")),
        known_issues=(issue(max_failures=1),),
    )
    evidence = snapshot(cell("gcp-l4", job("a", failed()), job("moe", failed())))
    assert judge(rules, evidence).decision is WITH


def test_what_is_surplus_does_not_depend_on_the_order_of_evidence():
    jobs = (job("a", failed()), job("b", failed()), job("c", failed()))
    rules = policy(known_issues=(issue(max_failures=2),))
    one = judge(rules, snapshot(cell("gcp-l4", *jobs)), digest="")
    other = judge(rules, snapshot(cell("gcp-l4", *reversed(jobs))), digest="")
    assert one == other
    assert result(one, "job/c@gcp-l4").inputs["intolerable"] == 1


def test_a_gap_in_a_job_that_only_informs_leaves_new_failures_open():
    gap = job("moe", counts=Counts(passed=5, missing=1), outcome=Outcome.FAILED, reason="missing")
    rules = policy(
        jobs=(JobRule(id="moe", level="advisory"), JobRule(id="ok")),
        new_failures=NewFailureRule(max=0),
    )
    verdict = judge(rules, snapshot(cell("gcp-l4", job("ok"), gap), last_green="run-0"))
    assert verdict.decision is Decision.INCONCLUSIVE
    assert "not all of moe@gcp-l4 is known" in result(verdict, "new_failures").sentence
