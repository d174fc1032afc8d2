"""Notifications name the failing tests: those of the verdict, or else those of the run."""

from __future__ import annotations

from datetime import UTC, datetime

from orchestrator.application.channels import failing_line
from orchestrator.domain.gate.verdict import Decision, RuleOutcome, RuleResult, Verdict
from orchestrator.domain.outcome import Outcome
from tests.integration.api_context import Desk


def rule(kind: str, outcome: RuleOutcome, *names: str) -> RuleResult:
    return RuleResult(
        id=f"{kind}/unit@here",
        kind=kind,
        blocking=True,
        outcome=outcome,
        sentence="",
        failing=dict.fromkeys(names, 1),
    )


def verdict(*rules: RuleResult) -> Verdict:
    return Verdict(
        gate="release",
        product="proof",
        decision=Decision.FAIL,
        at=datetime(2026, 1, 1, tzinfo=UTC),
        subject={},
        policy_digest="",
        evidence_digest="",
        rules=rules,
    )


def test_a_verdict_names_what_stands_in_the_way(api: Desk) -> None:
    names = [f"t.py::n{n:02}" for n in range(12)]
    judged = verdict(
        rule("job", RuleOutcome.VIOLATED, *names),
        rule("job", RuleOutcome.TOLERATED, "t.py::known"),
        rule("cost", RuleOutcome.VIOLATED, "too much"),
    )
    [line] = failing_line(api.context, judged, "")
    assert line.startswith("Failing: t.py::n00 (unit@here), t.py::n01 (unit@here)")
    assert line.endswith("t.py::n09 (unit@here) and 2 more.")
    assert failing_line(api.context, verdict(), "") == ()


def test_without_a_verdict_the_runs_tests_are_named(api: Desk) -> None:
    run = str(api.launch()["id"])
    agent = api.begin(run, "here")
    agent.send(agent.test("t.py::bad", "failed", message="no", longrepr="E no"))
    api.finish(run, "here", outcome=Outcome.FAILED)
    assert failing_line(api.context, None, run) == ("Failing: t.py::bad (unit@here).",)
    assert failing_line(api.context, None, "") == ()
