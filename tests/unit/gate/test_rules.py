"""Each rule by an example: what it comes to, and what it says."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from orchestrator.domain.gate.policy import (
    Budget,
    CostRule,
    EvidenceRule,
    JobRule,
    ManifestRule,
    PerformanceRule,
    PlatformRule,
    SkipRule,
    SubjectRule,
    Unavailable,
)
from orchestrator.domain.gate.snapshot import Pairs
from orchestrator.domain.gate.verdict import Decision, RuleOutcome
from orchestrator.domain.outcome import Counts, Outcome
from tests.unit.gate.made import (
    NOW,
    cell,
    failed,
    job,
    judge,
    policy,
    result,
    snapshot,
    unavailable,
)

PASS, WITH = Decision.PASS, Decision.PASS_WITH_EXCEPTIONS
FAIL, OPEN = Decision.FAIL, Decision.INCONCLUSIVE


def test_all_passed():
    verdict = judge(policy(), snapshot(cell()))
    assert verdict.decision is PASS
    assert verdict.summary == "PASS: all 8 blocking rules are kept."
    assert verdict.warnings == ()
    assert result(verdict, "job/moe@gcp-l4").sentence == "moe on gcp-l4 passed 5 tests."


def test_nothing_at_all():
    verdict = judge(policy(), snapshot())
    assert verdict.decision is OPEN
    assert "no evidence of gcp-l4" in result(verdict, "platform/gcp-l4").sentence


def test_a_failing_test():
    verdict = judge(policy(), snapshot(cell("gcp-l4", job("moe", failed()))))
    assert verdict.decision is FAIL
    found = result(verdict, "job/moe@gcp-l4")
    assert found.sentence == (
        "moe on gcp-l4 ended failed (tests); 1 failed: 1 not tolerated (t.py::a)."
    )
    assert found.inputs["failing"] == found.inputs["intolerable"] == 1
    assert "1 blocking rule is violated: job/moe@gcp-l4." in verdict.summary


@pytest.mark.parametrize("outcome", [Outcome.ERRORED, Outcome.CANCELLED, Outcome.NOT_RUN, None])
def test_infrastructure_is_neither_a_pass_nor_a_failure(outcome: Outcome | None):
    lost = job("moe", outcome=outcome, counts=Counts())
    found = judge(policy(), snapshot(cell("gcp-l4", lost, outcome=outcome or Outcome.ERRORED)))
    assert found.decision is OPEN


def test_a_job_that_the_policy_names_and_nobody_ran():
    rules = policy(jobs=(JobRule(id="moe"), JobRule(id="fp8")))
    verdict = judge(rules, snapshot(cell()))
    assert verdict.decision is OPEN
    assert result(verdict, "job/fp8@gcp-l4").sentence == "There is no evidence of fp8 on gcp-l4."
    recorded = policy(jobs=(JobRule(id="moe"), JobRule(id="fp8", require="recorded_pass")))
    assert judge(recorded, snapshot(cell())).decision is PASS


def test_a_job_that_no_rule_names_must_pass():
    rules = policy(jobs=(JobRule(id="moe"),))
    assert judge(rules, snapshot(cell("gcp-l4", job(), job("x", failed())))).decision is FAIL


def test_the_first_rule_that_fits_counts():
    rules = policy(jobs=(JobRule(id="demo", level="informing"), JobRule(id="*")))
    verdict = judge(rules, snapshot(cell("gcp-l4", job(), job("demo", failed()))))
    assert verdict.decision is PASS
    assert not result(verdict, "job/demo@gcp-l4").blocking


def test_a_later_run_stands_for_an_earlier_one():
    old = cell("gcp-l4", job("moe", failed()), run="run-1")
    new = cell(run="run-2")
    assert judge(policy(), snapshot(old, new, runs=("run-1", "run-2"))).decision is PASS
    assert judge(policy(), snapshot(old, new, runs=("run-2", "run-1"))).decision is FAIL


def test_a_fallback():
    fell = job("moe", degraded="no kernel")
    strict = judge(policy(), snapshot(cell("gcp-l4", fell)))
    assert strict.decision is FAIL
    assert result(strict, "degraded/moe@gcp-l4").sentence == "moe on gcp-l4 fell back: no kernel."
    shown = policy(jobs=(JobRule(id="*", degraded="inform"),))
    assert judge(shown, snapshot(cell("gcp-l4", fell))).decision is PASS


def test_what_only_informs_is_shown():
    rules = policy("gcp-l4", PlatformRule(id="local", level="informing"))
    verdict = judge(rules, snapshot(cell(), cell("local", job("moe", failed()))))
    assert verdict.decision is PASS
    assert result(verdict, "job/moe@local").outcome is RuleOutcome.VIOLATED


def test_evidence_at_the_limit_of_its_age():
    ended = NOW - timedelta(hours=36)
    assert judge(policy(), snapshot(cell(ended_at=ended))).decision is PASS
    late = judge(policy(), snapshot(cell(ended_at=ended - timedelta(seconds=1))))
    assert late.decision is OPEN
    assert "gcp-l4 is 36 hours old" in result(late, "freshness/gcp-l4").sentence
    ahead = judge(policy(), snapshot(cell(ended_at=NOW + timedelta(days=2))))
    assert "gcp-l4 is dated 48 hours ahead" in result(ahead, "freshness/gcp-l4").sentence


def test_reused_evidence_has_the_age_of_its_origin():
    reused = job("moe", reused_from="run-0", at=NOW - timedelta(hours=20))
    assert judge(policy(), snapshot(cell("gcp-l4", reused))).decision is PASS
    old = replace(reused, at=NOW - timedelta(days=5))
    verdict = judge(policy(), snapshot(cell("gcp-l4", old)))
    assert verdict.decision is OPEN
    assert "moe, reused from run-0, is 5 days old" in result(verdict, "freshness/gcp-l4").sentence
    fresh = policy(evidence=EvidenceRule(reuse="refused"))
    assert judge(fresh, snapshot(cell("gcp-l4", reused))).decision is OPEN


def test_an_environment_that_is_seatrials_own_is_seen_by_a_gate_that_asks():
    own = snapshot(cell("gcp-l4", own_environment=True))
    assert judge(policy(), own).decision is PASS
    refused = policy(evidence=EvidenceRule(own_environment="refused"))
    verdict = judge(refused, own)
    assert verdict.decision is OPEN
    assert "Seatrial's own packages" in result(verdict, "attestation/gcp-l4").sentence
    assert judge(refused, snapshot(cell("gcp-l4"))).decision is PASS


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"simulated": True}, "gcp-l4 is simulated."),
        ({"mismatch": "found T4"}, "gcp-l4 is not what was asked for: found T4."),
        ({"attested": False}, "gcp-l4 is not attested: nothing proves what it ran on."),
        ({"attested": False, "ingested": True}, "gcp-l4 is not attested: others produced it."),
        ({"instance_type": "g2-standard-8"}, "gcp-l4 ran on g2-standard-8, not on g2-standard-4."),
    ],
)
def test_evidence_that_is_not_believed(more: dict[str, object], told: str):
    rules = policy(PlatformRule(id="gcp-l4", instance="g2-standard-4"))
    known = {"instance_type": "g2-standard-4", **more}
    verdict = judge(rules, snapshot(cell("gcp-l4", job(), **known)))
    assert verdict.decision is OPEN
    assert result(verdict, "attestation/gcp-l4").sentence == told


def test_ingested_evidence_where_the_policy_says_so():
    rules = policy(
        PlatformRule(id="gcp-l4", instance="g2-standard-4"),
        evidence=EvidenceRule(attestation="unattested_allowed"),
        subject=SubjectRule(require=("wheel_sha256",)),
    )
    told = {"name": "torchbridge", "version": "0.4.6"}
    theirs = cell(attested=False, ingested=True, subject=told)
    assert judge(rules, snapshot(theirs)).decision is PASS
    ours = replace(theirs, ingested=False)
    assert judge(rules, snapshot(ours)).decision is OPEN
    assert judge(rules, snapshot(replace(theirs, simulated=True))).decision is OPEN


def test_the_verdict_binds_to_one_subject():
    rules = policy("gcp-l4", "aws-a10g", subject=SubjectRule(require=("wheel_sha256",)))
    one, other = cell(), cell("aws-a10g")
    same = judge(rules, snapshot(one, other))
    assert same.decision is PASS
    assert result(same, "subject").sentence.startswith(
        "All evidence is of torchbridge 0.4.6: wheel_sha256 abab"
    )
    newer = replace(other, subject={**other.subject, "version": "0.4.7"})
    verdict = judge(rules, snapshot(one, newer))
    assert verdict.decision is FAIL
    assert "version is 0.4.6 and 0.4.7" in result(verdict, "subject").sentence
    bare = replace(other, subject={"name": "torchbridge", "version": "0.4.6"})
    assert judge(rules, snapshot(one, bare)).decision is OPEN


def test_another_product():
    verdict = judge(policy(), replace(snapshot(cell()), product="other"))
    assert verdict.decision is OPEN


def test_green_runs_in_a_row():
    rules = policy(PlatformRule(id="gcp-l4", consecutive_green=3))
    assert judge(rules, snapshot(cell(green_streak=2))).decision is PASS
    verdict = judge(rules, snapshot(cell(green_streak=1)))
    assert verdict.decision is OPEN
    assert "this is number 2" in result(verdict, "platform/gcp-l4").sentence


def test_a_failed_cell_that_no_job_explains():
    verdict = judge(policy(), snapshot(cell(outcome=Outcome.FAILED, reason="tests")))
    assert verdict.decision is FAIL
    assert "none of its jobs says so" in result(verdict, "platform/gcp-l4").sentence


@pytest.mark.parametrize(
    ("word", "decision"),
    [("fail", FAIL), ("exception", FAIL), ("inconclusive", OPEN), ("informing", PASS)],
)
def test_a_platform_that_was_not_available(word: str, decision: Decision):
    rule = PlatformRule(id="mi300x", when_unavailable=Unavailable(verdict=word))  # type: ignore[arg-type]
    verdict = judge(policy("gcp-l4", rule), snapshot(cell(), unavailable("mi300x")))
    assert verdict.decision is decision
    told = result(verdict, "platform/mi300x").sentence
    assert told == "mi300x was not available (not_offered: no zone has it)."


def test_missing_tests():
    short = job("moe", counts=Counts(passed=5, missing=2), outcome=Outcome.FAILED, reason="missing")
    evidence = snapshot(cell("gcp-l4", short))
    verdict = judge(policy(), evidence)
    assert verdict.decision is FAIL
    assert "2 tests never reported: 2 of moe" in result(verdict, "missing/gcp-l4").sentence
    lenient = EvidenceRule(manifest=ManifestRule(on_missing="inconclusive"))
    assert judge(policy(evidence=lenient), evidence).decision is OPEN


def test_fewer_tests_than_before():
    rules = policy(
        evidence=EvidenceRule(manifest=ManifestRule(min_tests_vs_baseline=Decimal("0.9")))
    )
    assert judge(rules, snapshot(cell())).decision is PASS
    assert judge(rules, snapshot(cell(baseline_collected=5))).decision is PASS
    verdict = judge(rules, snapshot(cell(baseline_collected=6)))
    assert verdict.decision is FAIL
    told = result(verdict, "missing/gcp-l4").sentence
    assert "5 tests were collected, of at least 6 (last green run: 6)" in told


@pytest.mark.parametrize(
    ("rule", "decision"),
    [
        (SkipRule(), PASS),
        (SkipRule(max=2), FAIL),
        (SkipRule(max=3), PASS),
        (SkipRule(allow_reasons=("needs *",), max=1), FAIL),
        (SkipRule(allow_reasons=("needs *",), max=2, on_other="fail"), FAIL),
        (SkipRule(allow_reasons=("needs *",), max=2, on_other="inconclusive"), OPEN),
        (SkipRule(allow_reasons=("needs *", "slow"), max=3, on_other="fail"), PASS),
    ],
)
def test_skips(rule: SkipRule, decision: Decision):
    told = {"needs a GPU": 2, "slow": 1}
    if rule.max is None or not rule.allow_reasons:
        told = {"": 3}
    skipping = job("moe", counts=Counts(passed=5, skipped=3), skips=told)
    assert judge(policy(skips=rule), snapshot(cell("gcp-l4", skipping))).decision is decision


def pairs(slower: float = 1.0, noise: float = 0.0, number: int = 12) -> Pairs:
    subject = tuple(slower * (1 + noise * (n % 3 - 1)) for n in range(number))
    return Pairs(
        job="bench",
        metric="time",
        unit="ms",
        direction="lower",
        subject=subject,
        baseline=(1.0,) * number,
        remarks=("throttled in 3 of 24 turns",),
    )


@pytest.mark.parametrize(
    ("measured", "word", "decision"),
    [
        ((pairs(),), "inconclusive", PASS),
        ((pairs(1.1),), "inconclusive", FAIL),
        ((pairs(1.0, noise=0.5),), "inconclusive", OPEN),
        ((pairs(1.0, noise=0.5),), "fail", FAIL),
        ((pairs(1.0, noise=0.5),), "informing", PASS),
        ((pairs(number=5),), "inconclusive", OPEN),
        ((), "inconclusive", OPEN),
        ((), "informing", PASS),
    ],
)
def test_performance(measured: tuple[Pairs, ...], word: str, decision: Decision):
    rule = PerformanceRule(
        budgets=(Budget(match="bench/*", max_regression="3%"),),
        on_inconclusive=word,  # type: ignore[arg-type]
    )
    bench = job("bench", kind="benchmark", counts=Counts())
    evidence = snapshot(cell("gcp-l4", job(), bench, pairs=measured))
    assert judge(policy(performance=rule), evidence).decision is decision


def test_a_slow_benchmark_is_named_with_its_figures():
    rule = PerformanceRule(budgets=(Budget(match="bench/time", max_regression="3%"),))
    bench = job("bench", kind="benchmark", counts=Counts())
    evidence = snapshot(cell("gcp-l4", job(), bench, pairs=(pairs(1.1),)))
    found = result(judge(policy(performance=rule), evidence), "performance/bench/time@gcp-l4")
    assert found.sentence.startswith("bench/time on gcp-l4: slower than its budget allows")
    assert "10 % slower, from 10 % to 10 %, in 12 pairs" in found.sentence
    assert "minimum detectable effect" in found.sentence
    assert "throttled in 3 of 24 turns" in found.sentence
    assert found.inputs["slowdown"] == "0.1"
    assert found.inputs["detectable"]


def test_the_processes_that_pairs_were_taken_in_are_counted():
    rule = PerformanceRule(budgets=(Budget(match="bench/time", max_regression="3%"),))
    bench = job("bench", kind="benchmark", counts=Counts())
    launch = tuple(float(turn % 12 // 2) for turn in range(24))
    evidence = snapshot(
        cell("gcp-l4", job(), bench, pairs=(replace(pairs(1.1), covariates={"launch": launch}),))
    )
    found = result(judge(policy(performance=rule), evidence), "performance/bench/time@gcp-l4")
    assert "in 12 pairs from 6 processes of each arm; minimum" in found.sentence
    assert found.inputs["launches"] == 6


def test_a_benchmark_without_a_budget_is_shown():
    rule = PerformanceRule(budgets=(Budget(match="bench/time", max_regression="3%"),))
    other = replace(pairs(2.0), metric="warm-up")
    bench = job("bench", kind="benchmark", counts=Counts())
    evidence = snapshot(cell("gcp-l4", job(), bench, pairs=(pairs(), other)))
    verdict = judge(policy(performance=rule), evidence)
    assert verdict.decision is PASS
    assert not result(verdict, "performance/bench/warm-up@gcp-l4").blocking


@pytest.mark.parametrize(
    ("word", "decision"), [("fail", FAIL), ("inconclusive", OPEN), ("informing", PASS)]
)
def test_cost(word: str, decision: Decision):
    rule = CostRule(max_usd=Decimal(1), on_exceed=word)  # type: ignore[arg-type]
    verdict = judge(policy(cost=rule), snapshot(cell()))
    assert verdict.decision is decision
    assert "cost 1.25 USD, more than the 1.00 USD" in result(verdict, "cost").sentence


def test_platforms_that_the_policy_does_not_name():
    verdict = judge(policy(), snapshot(cell(), cell("rack-1", job("moe", failed()))))
    assert verdict.decision is PASS
    assert verdict.warnings == (
        "The policy does not name rack-1: what ran there is not looked at.",
    )


def test_each_environment_of_a_platform_counts():
    one = cell(id="gcp-l4.image")
    other = cell("gcp-l4", job("moe", failed()), id="gcp-l4.nightly", environment="nightly")
    verdict = judge(policy(), snapshot(one, other))
    assert verdict.decision is FAIL
    assert result(verdict, "job/moe@gcp-l4.image").outcome is RuleOutcome.OK
    assert result(verdict, "job/moe@gcp-l4.nightly").outcome is RuleOutcome.VIOLATED


def test_the_verdict_says_what_it_was_made_of():
    verdict = judge(policy(), snapshot(cell()), datetime(2026, 1, 20, 12, tzinfo=UTC))
    assert verdict.at == NOW
    assert len(verdict.policy_digest) == len(verdict.evidence_digest) == 64
    assert verdict.subject["version"] == "0.4.6"
    assert verdict.tool == "seatrial 0"


def test_a_budget_that_no_benchmark_falls_under():
    rule = PerformanceRule(budgets=(Budget(match="other/time", max_regression="3%"),))
    verdict = judge(policy(performance=rule), snapshot(cell()))
    assert verdict.decision is OPEN
    told = result(verdict, "performance/other/time").sentence
    assert told == "other/time was not measured beside a baseline on the same machine."
