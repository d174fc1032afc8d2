"""Each rule by an example: what it comes to, and what it says."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from orchestrator.domain.collected_tests import TestSet
from orchestrator.domain.gate.policy import (
    BenchmarkBudget,
    CostRule,
    EvidenceRule,
    GatePolicy,
    JobRule,
    ManifestRule,
    PerformanceRule,
    PlatformRule,
    SkipRule,
    SubjectRule,
    Unavailable,
)
from orchestrator.domain.gate.snapshot import Pairs, Snapshot, UndeclaredRequirement, ViolatedBefore
from orchestrator.domain.gate.verdict import Decision, RuleOutcome
from orchestrator.domain.outcome import Counts, Outcome
from tests.unit.gate.builders import (
    NOW,
    cell,
    failed,
    job,
    judge,
    machine,
    policy,
    result,
    snapshot,
    unavailable,
)

PASS, WITH = Decision.PASS, Decision.PASS_WITH_EXCEPTIONS
FAIL, OPEN = Decision.FAIL, Decision.INCONCLUSIVE
RED = cell("gcp-l4", job("moe", failed()))
MOE, FP8, X = JobRule(id="moe"), JobRule(id="fp8"), job("x", failed())
FELL = cell("gcp-l4", job("moe", degraded="no kernel"))
SHORT = job("moe", counts=Counts(passed=5, missing=2), outcome=Outcome.FAILED, reason="missing")
CUT = job("moe", counts=Counts(passed=5, missing=1, not_run=1), outcome=Outcome.CANCELLED)
LOST = replace(CUT, outcome=Outcome.ERRORED, reason="lost")
REUSED = job("moe", reused_from="run-0", at=NOW - timedelta(hours=20))
OLD = replace(REUSED, at=NOW - timedelta(days=5))
LIMIT = NOW - timedelta(hours=36)
THREE_GREEN = policy(PlatformRule(id="gcp-l4", consecutive_green=3))
NINE_TENTHS = policy(
    evidence=EvidenceRule(manifest=ManifestRule(min_tests_vs_baseline=Decimal("0.9")))
)
ANOTHER = PerformanceRule(budgets=(BenchmarkBudget(match="other/time", max_regression="3%"),))
RERUN = (replace(RED, run="run-1"), cell(run="run-2"))
IMAGE = cell(id="gcp-l4.image")
NIGHTLY = replace(RED, id="gcp-l4.nightly", environment="nightly")
LOCAL = policy("gcp-l4", PlatformRule(id="local", level="advisory"))
A10G = policy(PlatformRule(id="gcp-l4", instance="g2-standard-4"))


def known(**more: object) -> Snapshot:
    told = {"instance_type": "g2-standard-4", **more}
    one = machine(instance_type=told["instance_type"])
    return snapshot(cell("gcp-l4", job(), machines=(one,), **told))


def lost(outcome: Outcome | None) -> Snapshot:
    nothing = job("moe", outcome=outcome, counts=Counts())
    return snapshot(cell("gcp-l4", nothing, outcome=outcome or Outcome.ERRORED))


def absent(word: str) -> tuple[GatePolicy, Snapshot]:
    rule = PlatformRule(id="mi300x", when_unavailable=Unavailable(verdict=word))  # type: ignore[arg-type]
    return policy("gcp-l4", rule), snapshot(cell(), unavailable("mi300x"))


def dear(word: str) -> tuple[GatePolicy, Snapshot]:
    rule = CostRule(max_usd=Decimal(1), on_exceed=word)  # type: ignore[arg-type]
    return policy(cost=rule), snapshot(cell())


def cheap() -> tuple[GatePolicy, Snapshot]:
    rule = CostRule(max_usd=Decimal("0.001"), on_exceed="fail")
    return policy(cost=rule), replace(snapshot(cell()), cost_usd=Decimal("0.0012"))


def unpriced(spent: str) -> Snapshot:
    return snapshot(cell(), cost_usd=Decimal(spent), unpriced=("aws-a10g", "local"))


UNPRICED = ("cost", "Nobody states what aws-a10g, local cost: whether it is more than the 1.00 USD")
CHEAP = ("cost", "cost 0.0012 USD, more than the 0.001 USD")
GONE = ("platform/mi300x", "mi300x was not available (not_offered: no zone has it).")
COST = ("cost", "cost 1.25 USD, more than the 1.00 USD")
ATTESTED = "attestation/gcp-l4"
MISSING, FRESH, JOB = "missing/gcp-l4", "freshness/gcp-l4", "job/moe@gcp-l4"
RULES = [
    # policy, evidence, decision, rule, what it says
    (policy(), snapshot(cell()), PASS, JOB, "moe on gcp-l4 passed 5 tests."),
    (policy(), snapshot(), OPEN, "platform/gcp-l4", "no evidence of gcp-l4"),
    (policy("local"), snapshot(cell(), elsewhere={"local": "run-0"}), OPEN, "platform/local",
     ("There is no evidence of local: run run-1 has none, and run run-0 has it"
      " (`--run run-0 --run run-1` takes both).")),
    (policy(), snapshot(RED), FAIL, JOB,
     ("moe on gcp-l4 ended failed (tests); 1 failed: 1 not tolerated (t.py::a). See"
     " `seatrial show run-1`.")),
    *((policy(), lost(word), OPEN, "", "") for word in (Outcome.ERRORED, Outcome.NOT_RUN, None)),
    (policy(), lost(Outcome.CANCELLED), OPEN, "", ""),
    (policy(jobs=(MOE, FP8)), snapshot(cell()), OPEN, "job/fp8@gcp-l4",
     "There is no evidence of fp8 on gcp-l4."),
    (policy(jobs=(JobRule(id="moes"),)), snapshot(cell()), OPEN, "job/moes@gcp-l4",
     "There is no evidence of moes on gcp-l4. Is its job moe meant?"),
    (policy(jobs=(MOE, replace(FP8, require="pass_if_run"))), snapshot(cell()), PASS, "", ""),
    (policy(jobs=(MOE,)), snapshot(cell("gcp-l4", job(), X)), FAIL, "", ""),
    (policy(jobs=(JobRule(id="x", level="advisory"), JobRule(id="*"))),
     snapshot(cell("gcp-l4", job(), X)), PASS, "job/x@gcp-l4", "x on gcp-l4 ended failed"),
    (policy(), snapshot(*RERUN, runs=("run-1", "run-2")), PASS, "", ""),
    (policy(), snapshot(*RERUN, runs=("run-2", "run-1")), FAIL, "", ""),
    (policy(), snapshot(FELL), FAIL, "degraded/moe@gcp-l4", "moe on gcp-l4 fell back: no kernel."),
    (policy(jobs=(JobRule(id="*", degraded="inform"),)), snapshot(FELL), PASS, "", ""),
    (LOCAL, snapshot(cell(), replace(RED, platform="local", id="local")), PASS, "job/moe@local",
     "moe on local ended failed"),
    (policy(), snapshot(cell(ended_at=LIMIT)), PASS, "", ""),
    (policy(), snapshot(cell(ended_at=LIMIT - timedelta(seconds=1))), OPEN, FRESH,
     "gcp-l4 is 36 hours old"),
    (policy(), snapshot(cell(ended_at=NOW + timedelta(days=2))), OPEN, FRESH,
     "gcp-l4 is dated 48 hours ahead"),
    (policy(), snapshot(cell("gcp-l4", REUSED)), PASS, "", ""),
    (policy(), snapshot(cell("gcp-l4", OLD)), OPEN, FRESH, "moe, reused from run-0, is 5 days old"),
    (policy(evidence=EvidenceRule(reuse="refused")), snapshot(cell("gcp-l4", REUSED)), OPEN,
     "", ""),
    (A10G, known(), PASS, "", ""),
    (A10G, known(simulated=True), OPEN, ATTESTED, "gcp-l4 is simulated."),
    (A10G, known(mismatch="found T4"), OPEN, ATTESTED,
     "gcp-l4 is not what was asked for: found T4."),
    (A10G, known(attested=False), OPEN, ATTESTED,
     "gcp-l4 is not attested: nothing proves what it ran on."),
    (A10G, known(attested=False, ingested=True), OPEN, ATTESTED,
     "gcp-l4 is not attested: others produced it."),
    (A10G, known(instance_type="g2-standard-8"), FAIL, ATTESTED,
     "gcp-l4 ran on g2-standard-8, not on g2-standard-4."),
    (policy(), replace(snapshot(cell()), product="other"), OPEN, "", ""),
    (THREE_GREEN, snapshot(cell(green_streak=2)), PASS, "", ""),
    (THREE_GREEN, snapshot(cell(green_streak=1)), OPEN, "platform/gcp-l4", "this is number 2"),
    (THREE_GREEN, snapshot(cell("gcp-l4", REUSED, green_streak=2)), OPEN, "platform/gcp-l4",
     "and this is no other one: it reuses earlier evidence of moe"),
    (THREE_GREEN, snapshot(cell("gcp-l4", REUSED, green_streak=3)), PASS, "", ""),
    (policy(), snapshot(cell(outcome=Outcome.FAILED, reason="tests")), FAIL, "platform/gcp-l4",
     "none of its jobs says so"),
    (*absent("fail"), FAIL, *GONE), (*absent("exception"), FAIL, *GONE),
    (*absent("inconclusive"), OPEN, *GONE), (*absent("advisory"), PASS, *GONE),
    (policy(), snapshot(cell("gcp-l4", SHORT)), FAIL, MISSING,
     "2 tests never reported: 2 of moe"),
    (policy(evidence=EvidenceRule(manifest=ManifestRule(on_missing="inconclusive"))),
     snapshot(cell("gcp-l4", SHORT)), OPEN, "", ""),
    (policy(), snapshot(cell("gcp-l4", CUT, outcome=Outcome.CANCELLED)), OPEN, MISSING,
     "2 tests never reported: 2 of moe (cancelled)"),
    (policy(), snapshot(cell("gcp-l4", LOST, outcome=Outcome.ERRORED)), OPEN, MISSING,
     "2 tests never reported: 2 of moe (errored)"),
    (policy(), snapshot(cell("gcp-l4", SHORT, replace(CUT, id="b"), outcome=Outcome.CANCELLED)),
     FAIL, MISSING, "4 tests never reported: 2 of b (cancelled), 2 of moe"),
    (NINE_TENTHS, snapshot(cell()), PASS, "", ""),
    (NINE_TENTHS, snapshot(cell(baseline_collected=5)), PASS, "", ""),
    (NINE_TENTHS, snapshot(cell(baseline_collected=6)), FAIL, MISSING,
     "5 tests were collected, of at least 6 (last green run: 6)"),
    (NINE_TENTHS, snapshot(cell("gcp-l4", replace(CUT, counts=Counts()), baseline_collected=6,
                                outcome=Outcome.CANCELLED)),
     OPEN, MISSING, "0 tests were collected"),
    (*dear("fail"), FAIL, *COST), (*dear("inconclusive"), OPEN, *COST),
    (*dear("advisory"), PASS, *COST), (*cheap(), FAIL, *CHEAP),
    *((policy(cost=CostRule(max_usd=Decimal(1), on_exceed=word)), unpriced("0.30"), decision,
       *UNPRICED) for word, decision in (("fail", OPEN), ("inconclusive", OPEN),
                                         ("advisory", PASS))),
    (policy(cost=CostRule(max_usd=Decimal(1), on_exceed="fail")), unpriced("1.25"), FAIL, *COST),
    (policy(), snapshot(IMAGE, NIGHTLY), FAIL, "job/moe@gcp-l4.image", "passed 5 tests"),
    (policy(), snapshot(IMAGE, NIGHTLY), FAIL, "job/moe@gcp-l4.nightly", "ended failed"),
    (policy(performance=ANOTHER), snapshot(cell()), OPEN, "performance/other/time",
     "other/time was not measured beside a baseline on the same machine."),
]  # fmt: skip


@pytest.mark.parametrize(("rules", "evidence", "decision", "rule", "said"), RULES)
def test_what_a_rule_comes_to_and_says(rules, evidence, decision, rule, said):
    verdict = judge(rules, evidence)
    assert verdict.decision is decision
    assert not rule or said in result(verdict, rule).sentence
    assert not said.endswith(".") or result(verdict, rule).sentence == said


def test_an_environment_that_is_seatrials_own_is_seen_by_a_gate_that_asks():
    own = snapshot(cell("gcp-l4", own_environment=True))
    assert judge(policy(), own).decision is PASS
    refused = policy(evidence=EvidenceRule(own_environment="refused"))
    verdict = judge(refused, own)
    assert verdict.decision is OPEN
    assert "Seatrial's own packages" in result(verdict, "attestation/gcp-l4").sentence
    assert judge(refused, snapshot(cell("gcp-l4"))).decision is PASS


@pytest.mark.parametrize(
    ("accepted", "decision", "outcome", "said"),
    [
        ((), OPEN, RuleOutcome.UNKNOWN, "triton (a/c.py imports it, triton-rocm has it)"),
        (("torch",), OPEN, RuleOutcome.UNKNOWN, "undeclared_requirements: [triton]"),
        (("torch", "triton"), PASS, RuleOutcome.OK, "this is on purpose"),
    ],
)
def test_a_requirement_that_the_metadata_lacks(accepted, decision, outcome, said):
    found = (
        UndeclaredRequirement(module="torch", file="a/b.py", distribution="torch"),
        UndeclaredRequirement(module="triton", file="a/c.py", distribution="triton-rocm"),
    )
    rules = policy(evidence=EvidenceRule(undeclared_requirements=accepted))
    verdict = judge(rules, snapshot(cell("gcp-l4", undeclared_requirements=found)))
    told = result(verdict, "undeclared_requirements/gcp-l4")
    assert (verdict.decision, told.outcome) == (decision, outcome)
    assert said in told.sentence
    assert sorted(told.failing) == sorted({"torch", "triton"} - set(accepted))


def test_a_verdict_sums_up_its_rules() -> None:
    kept, broken = judge(policy(), snapshot(cell())), judge(policy(), snapshot(RED))
    assert (kept.summary, kept.warnings) == ("PASS: all 8 blocking rules are kept.", ())
    assert f"1 blocking rule is violated: {JOB}." in broken.summary
    found = result(broken, JOB)
    assert found.inputs["failing"] == found.inputs["intolerable"] == 1
    told = judge(LOCAL, snapshot(cell(), replace(RED, platform="local", id="local")))
    assert result(told, "job/moe@local").outcome is RuleOutcome.VIOLATED
    assert not result(told, "job/moe@local").blocking


def test_ingested_evidence_where_the_policy_says_so():
    rules = policy(
        PlatformRule(id="gcp-l4", instance="g2-standard-4"),
        evidence=EvidenceRule(attestation="optional"),
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


def test_another_installed_version_of_a_payload_that_is_the_subject_is_not_believed():
    subject = {"name": "torchbridge", "version": "0.4.6", "payload_sha256": "cd" * 32}
    verdict = judge(policy(), snapshot(cell(subject=subject, other_subject="0.4.5")))
    assert verdict.decision is OPEN
    assert result(verdict, "evidence").outcome is RuleOutcome.UNKNOWN
    assert result(verdict, "attestation/gcp-l4").sentence == (
        "gcp-l4 had torchbridge 0.4.5 installed, while the payload itself is the subject,"
        " torchbridge 0.4.6: its jobs may have imported either; take torchbridge out of the"
        " interpreter, or name a wheel in the matrix (`subject.wheel`)."
    )


def pairs(slower: float = 1.0, noise: float = 0.0, number: int = 12) -> Pairs:
    """No two samples of an arm are equal, as where something is measured."""
    baseline = tuple(1.0 + n / 1e6 for n in range(number))
    subject = tuple(slower * (1 + noise * (n % 3 - 1)) * one for n, one in enumerate(baseline))
    return Pairs(
        job="bench",
        metric="time",
        unit="ms",
        direction="lower",
        subject=subject,
        baseline=baseline,
        remarks=("throttled in 3 of 24 turns",),
    )


@pytest.mark.parametrize(
    ("measured", "word", "decision"),
    [
        ((pairs(),), "inconclusive", PASS),
        ((pairs(1.1),), "inconclusive", FAIL),
        ((pairs(1.0, noise=0.5),), "inconclusive", OPEN),
        ((pairs(1.0, noise=0.5),), "fail", FAIL),
        ((pairs(1.0, noise=0.5),), "advisory", PASS),
        ((pairs(number=5),), "inconclusive", OPEN),
        ((), "inconclusive", OPEN),
        ((), "advisory", PASS),
    ],
)
def test_performance(measured: tuple[Pairs, ...], word: str, decision: Decision):
    rule = PerformanceRule(
        budgets=(BenchmarkBudget(match="bench/*", max_regression="3%"),),
        on_inconclusive=word,  # type: ignore[arg-type]
    )
    bench = job("bench", kind="benchmark", counts=Counts())
    evidence = snapshot(cell("gcp-l4", job(), bench, pairs=measured))
    assert judge(policy(performance=rule), evidence).decision is decision


@pytest.mark.parametrize(
    ("unit", "direction", "is_refused"),
    [
        *((unit, "higher", True) for unit in ("ms", "s", "us", "ns", "\u00b5s", "ms/step")),
        *((unit, "lower", True) for unit in ("GB/s", "tokens/s", "it/s", "ops", "TFLOPS", "1/s")),
        *((unit, "lower", False) for unit in ("ms", "s/token", "errors/s", "cache misses/s")),
        *((unit, "lower", False) for unit in ("units per token", "FLOPs", "ms/s", "MB", "", "%")),
        *((unit, "higher", False) for unit in ("GB/s", "tokens / s", "x", "MB", "score")),
    ],
)
def test_a_direction_that_contradicts_its_unit_decides_nothing(unit, direction, is_refused):
    rule = PerformanceRule(budgets=(BenchmarkBudget(match="bench/time", max_regression="3%"),))
    measured = replace(pairs(), unit=unit, direction=direction)
    bench = job("bench", kind="benchmark", counts=Counts())
    verdict = judge(
        policy(performance=rule), snapshot(cell("gcp-l4", job(), bench, pairs=(measured,)))
    )
    found = result(verdict, "performance/bench/time@gcp-l4")
    assert verdict.decision is (OPEN if is_refused else PASS)
    assert ("correct its direction, or its unit" in found.sentence) is is_refused


@pytest.mark.parametrize(("slower", "noise"), [(1.0, 0.0), (1.1, 0.0), (1.0, 0.5)])
def test_a_subject_that_is_its_own_baseline_is_no_evidence_for_a_budget(
    slower: float, noise: float
):
    rule = PerformanceRule(budgets=(BenchmarkBudget(match="bench/time", max_regression="3%"),))
    other = replace(pairs(2.0), metric="warm-up")
    bench = job("bench", kind="benchmark", counts=Counts())
    measured = (pairs(slower, noise), other)
    evidence = snapshot(cell("gcp-l4", job(), bench, pairs=measured, own_baseline=True))
    verdict = judge(policy(performance=rule), evidence)
    assert verdict.decision is OPEN
    assert result(verdict, "performance/bench/time@gcp-l4").sentence == (
        "bench/time on gcp-l4: compared with itself: baseline and subject are the same"
        " (budget 3%); throttled in 3 of 24 turns."
    )
    assert result(verdict, "performance/bench/warm-up@gcp-l4").outcome is RuleOutcome.OK


@pytest.mark.parametrize(("unit", "is_open"), [("ms", True), ("GB/s", True), ("MiB", False)])
def test_benchmarks_whose_samples_are_all_the_same_were_not_measured(unit: str, is_open: bool):
    rule = PerformanceRule(budgets=(BenchmarkBudget(match="bench/time", max_regression="3%"),))
    bench, better = (
        job("bench", kind="benchmark", counts=Counts()),
        "higher" if "/" in unit else "lower",
    )
    same = replace(pairs(), unit=unit, direction=better, subject=(2.5,) * 12, baseline=(2.5,) * 12)
    verdict = judge(policy(performance=rule), snapshot(cell("gcp-l4", job(), bench, pairs=(same,))))
    assert verdict.decision is (OPEN if is_open else PASS)
    said = f"every sample of both arms is 2.5 {unit}: none was measured"
    assert (said in result(verdict, "performance/bench/time@gcp-l4").sentence) is is_open
    slower = replace(same, baseline=(2.0,) * 12 if better == "lower" else (3.0,) * 12)
    evidence = snapshot(cell("gcp-l4", job(), bench, pairs=(slower,)))
    assert judge(policy(performance=rule), evidence).decision is FAIL


def test_a_slow_benchmark_is_named_with_its_figures():
    rule = PerformanceRule(budgets=(BenchmarkBudget(match="bench/time", max_regression="3%"),))
    bench = job("bench", kind="benchmark", counts=Counts())
    evidence = snapshot(cell("gcp-l4", job(), bench, pairs=(pairs(1.1),)))
    found = result(judge(policy(performance=rule), evidence), "performance/bench/time@gcp-l4")
    assert found.sentence.startswith("bench/time on gcp-l4: slower than its budget allows")
    assert "10 % slower, from 10 % to 10 %, in 12 pairs" in found.sentence
    assert "minimum detectable effect" in found.sentence
    assert "throttled in 3 of 24 turns" in found.sentence
    assert found.inputs["slowdown"] == "0.1"
    assert found.inputs["detectable"]


def test_what_another_run_of_the_subject_violated_is_not_measured_away():
    rule = PerformanceRule(budgets=(BenchmarkBudget(match="bench/time", max_regression="3%"),))
    bench = job("bench", kind="benchmark", counts=Counts())
    before = ViolatedBefore(
        rule="performance/bench/time@gcp-l4",
        verdict="V-0005",
        runs=("run-0",),
        sentence="bench/time on gcp-l4: slower than its budget allows.",
    )
    for measured, expected in ((pairs(), True), (pairs(1.1), False)):
        evidence = snapshot(
            cell("gcp-l4", job(), bench, pairs=(measured,)), violated_before=(before,)
        )
        verdict = judge(policy(performance=rule), evidence)
        assert verdict.decision is FAIL
        again = [one for one in verdict.rules if one.id == f"flaky/{before.rule}"]
        assert bool(again) is expected
        for one in again:
            assert "was violated in run run-0 of the same subject (V-0005: " in one.sentence
            assert f"`seatrial gate waive release {one.id}`" in one.sentence
            assert one.waivable


def test_the_processes_that_pairs_were_taken_in_are_counted():
    rule = PerformanceRule(budgets=(BenchmarkBudget(match="bench/time", max_regression="3%"),))
    bench = job("bench", kind="benchmark", counts=Counts())
    launch = tuple(float(turn % 12 // 2) for turn in range(24))
    evidence = snapshot(
        cell("gcp-l4", job(), bench, pairs=(replace(pairs(1.1), covariates={"launch": launch}),))
    )
    found = result(judge(policy(performance=rule), evidence), "performance/bench/time@gcp-l4")
    assert "in 12 pairs from 6 processes of each arm; minimum" in found.sentence
    assert found.inputs["launches"] == 6


def test_a_benchmark_without_a_budget_is_shown():
    rule = PerformanceRule(budgets=(BenchmarkBudget(match="bench/time", max_regression="3%"),))
    other = replace(pairs(2.0), metric="warm-up")
    bench = job("bench", kind="benchmark", counts=Counts())
    evidence = snapshot(cell("gcp-l4", job(), bench, pairs=(pairs(), other)))
    verdict = judge(policy(performance=rule), evidence)
    assert verdict.decision is PASS
    assert not result(verdict, "performance/bench/warm-up@gcp-l4").blocking


def test_platforms_that_the_policy_does_not_name():
    verdict = judge(policy(), snapshot(cell(), cell("rack-1", job("moe", failed()))))
    assert verdict.decision is PASS
    assert verdict.warnings == (
        "The policy does not name rack-1: what ran there is not looked at.",
    )


def test_the_verdict_says_what_it_was_made_of():
    verdict = judge(policy(), snapshot(cell()), datetime(2026, 1, 20, 12, tzinfo=UTC))
    assert verdict.at == NOW
    assert len(verdict.policy_digest) == len(verdict.evidence_digest) == 64
    assert verdict.subject["version"] == "0.4.6"
    assert verdict.tool == "seatrial 0"


def test_expected_failures_are_told_with_their_reasons_and_are_no_alarm():
    known = job(counts=Counts(passed=5, xfailed=3), expected_failures={"#7": 2, "": 1})
    verdict = judge(policy(), snapshot(cell("gcp-l4", known)))
    assert verdict.decision is Decision.PASS
    found = result(verdict, "skips/gcp-l4")
    told = "gcp-l4 skipped 0 tests; 3 failed as expected (no reason, #7)."
    assert (found.sentence, found.inputs["expected_failures"]) == (told, {"": 1, "#7": 2})


def test_an_expected_failure_of_what_passed_on_the_baseline():
    lost = job(
        counts=Counts(passed=5, xfailed=1), newly_skipped={"expected to fail: #8": ("t.py::a",)}
    )
    verdict = judge(policy(), snapshot(cell("gcp-l4", lost)))
    assert verdict.decision is Decision.FAIL
    said = result(verdict, "skips/gcp-l4").sentence
    assert said.endswith("; 1 passed on the baseline and may fail now: moe@gcp-l4: t.py::a (#8).")
    accepted = policy(skips=SkipRule(allow_reasons=("expected to fail: *",)))
    assert judge(accepted, snapshot(cell("gcp-l4", lost))).decision is Decision.PASS


@pytest.mark.parametrize(
    ("modules", "accepted", "decision"),
    [
        ((0, 0), False, OPEN),
        ((0, 0), True, PASS),
        ((0, 3), False, PASS),
        ((None, 0), False, PASS),
        ((None, None), False, PASS),
    ],
    ids=["never", "given up", "in one suite", "beside one that may have", "no subject"],
)
def test_a_suite_of_each_platform_imported_the_subject(modules, accepted, decision):
    jobs = [
        job(name, test_set=TestSet(subject_modules=number))
        for name, number in zip(("moe", "demo"), modules, strict=True)
    ]
    rule = EvidenceRule(subject_not_loaded="accepted" if accepted else "inconclusive")
    verdict = judge(policy("gcp-l4", evidence=rule), snapshot(cell("gcp-l4", *jobs)))
    assert verdict.decision is decision


@pytest.mark.parametrize(
    ("suite", "commands", "accepted", "decision"),
    [
        ("no suite", (0,), False, OPEN),
        ("no suite", (0,), True, PASS),
        ("no suite", (0, 2), False, PASS),
        ("no suite", (None, 0), False, OPEN),
        ("no suite", (None,), False, PASS),
        (0, (0, 0), False, OPEN),
        (0, (0, 1), False, PASS),
        (1, (0, 0), False, PASS),
        (None, (0, 0), False, PASS),
    ],
    ids=str,
)
def test_a_command_of_each_platform_loaded_the_subject_if_no_suite_did(
    suite, commands, accepted, decision
):
    """A suite proves it for what is no Python; what ingested commands loaded is not known."""
    jobs = [
        job(f"demo-{place}", kind="demo", test_set=TestSet(subject_modules=number))
        for place, number in enumerate(commands)
    ]
    if suite != "no suite":
        jobs.append(job("moe", test_set=TestSet(subject_modules=suite)))
    rule = EvidenceRule(subject_not_loaded="accepted" if accepted else "inconclusive")
    rules = policy("gcp-l4", evidence=rule, jobs=(JobRule(id="*"),))
    verdict = judge(rules, snapshot(cell("gcp-l4", *jobs)))
    assert verdict.decision is decision
