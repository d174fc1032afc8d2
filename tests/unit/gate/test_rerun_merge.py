"""A rerun of some jobs completes a cell, and never makes it look better than it is."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.domain.gate.policy import GatePolicy
from orchestrator.domain.gate.reruns import merge_reruns
from orchestrator.domain.gate.snapshot import CellEvidence, JobEvidence, Pairs
from orchestrator.domain.gate.verdict import Decision
from orchestrator.domain.outcome import Counts, Outcome
from tests.unit.gate.any_snapshot import cases, cells, jobs
from tests.unit.gate.builders import (
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

TRIED = settings(max_examples=100)
FINAL = (Outcome.PASSED, Outcome.FAILED, Outcome.TIMED_OUT)
ALL = policy(new_failures=None)
RED = cell("gcp-l4", job("moe", failed()), job("fp8"), run="run-1", cost_usd=Decimal("1.50"))
GREEN = cell("gcp-l4", job("moe"), run="run-2", cost_usd=Decimal("0.25"))


def decided(one: CellEvidence, rules: GatePolicy = ALL) -> Decision:
    return judge(rules, snapshot(one, runs=("run-1", "run-2"))).decision


def test_each_job_keeps_its_run_and_its_time() -> None:
    earlier = replace(
        RED,
        ended_at=NOW - timedelta(hours=5),
        jobs=(RED.jobs[0], replace(RED.jobs[1], at=None)),
    )
    whole = merge_reruns(earlier, GREEN)
    fp8, moe = whole.jobs
    assert (fp8.id, fp8.run, fp8.at) == ("fp8", "run-1", NOW - timedelta(hours=5))
    assert (moe.id, moe.run, moe.at) == ("moe", "", GREEN.jobs[0].at)
    assert (whole.run, whole.outcome, whole.reason) == ("run-2", Outcome.PASSED, "")
    assert (whole.ended_at, whole.cost_usd) == (NOW - timedelta(hours=5), Decimal("1.75"))
    assert whole.counts == Counts(passed=10)
    verdict = judge(ALL, snapshot(whole, runs=("run-1", "run-2")))
    assert verdict.decision is Decision.PASS
    told = result(verdict, "job/fp8@gcp-l4")
    assert told.sentence == "fp8 on gcp-l4 passed 5 tests, in run run-1."
    assert told.inputs["run"] == "run-1"


def test_benchmarks_and_blame_go_with_their_jobs() -> None:
    def pairs(name: str) -> Pairs:
        one = {"metric": "t", "unit": "s", "direction": "lower"}
        return Pairs(job=name, subject=(1.0,), baseline=(1.0,), **one)

    def blame(name: str) -> dict[str, str]:
        return {"job": name, "nodeid": "t.py::a", "answer": "subject", "evidence": "x"}

    earlier = replace(RED, pairs=(pairs("moe"), pairs("fp8")), blame=(blame("moe"), blame("fp8")))
    later = replace(GREEN, pairs=(pairs("moe"),))
    whole = merge_reruns(earlier, later)
    assert [one.job for one in whole.pairs] == ["fp8", "moe"]
    assert [one["job"] for one in whole.blame] == ["fp8"]


def test_a_whole_rerun_stands_for_the_cell() -> None:
    later = replace(GREEN, jobs=(*GREEN.jobs, job("fp8")))
    assert merge_reruns(RED, later) is later


def test_of_a_third_run_each_job_has_its_own() -> None:
    third = cell("gcp-l4", job("demo"), run="run-3")
    whole = merge_reruns(merge_reruns(RED, GREEN), third)
    assert [(one.id, one.run) for one in whole.jobs] == [
        ("demo", ""),
        ("fp8", "run-1"),
        ("moe", "run-2"),
    ]


def test_a_rerun_without_a_machine_hides_nothing() -> None:
    for later in (
        replace(unavailable("gcp-l4"), run="run-2"),
        cell("gcp-l4", job(outcome=Outcome.NOT_RUN), run="run-2", outcome=Outcome.ERRORED),
    ):
        whole = merge_reruns(RED, later)
        assert [one.run for one in whole.jobs] == ["run-1", "run-1"]
        assert decided(whole) is Decision.FAIL


def test_a_rerun_that_goes_on_is_not_over() -> None:
    running = cell("gcp-l4", job(outcome=None), run="run-2", state="running", outcome=None)
    whole = merge_reruns(replace(RED, jobs=(job("moe"), job("fp8"))), running)
    assert (whole.state, whole.outcome) == ("running", None)
    assert decided(whole) is Decision.INCONCLUSIVE


def test_what_no_job_explains_stays() -> None:
    lost = replace(RED, outcome=Outcome.ERRORED, reason="machine_lost", detail="gone")
    whole = merge_reruns(lost, GREEN)
    assert (whole.outcome, whole.reason, whole.detail) == (Outcome.ERRORED, "machine_lost", "gone")
    assert decided(whole) is Decision.INCONCLUSIVE


def test_other_packages_machines_and_doubts_of_either_are_told() -> None:
    earlier = replace(RED, packages={"torch": "2.7", "numpy": "2"}, instance_type="g2")
    later = replace(GREEN, packages={"torch": "2.8", "numpy": "2"}, instance_type="g6")
    whole = merge_reruns(earlier, later)
    assert (whole.packages, whole.instance_type) == ({"numpy": "2"}, "g2, g6")
    for doubt in ({"simulated": True}, {"attested": False}, {"ingested": True}, {"mismatch": "x"}):
        (name,) = doubt
        either = (
            merge_reruns(replace(RED, **doubt), GREEN),
            merge_reruns(RED, replace(GREEN, **doubt)),
        )
        assert {getattr(one, name) for one in either} == {doubt[name]}


@st.composite
def reruns(draw: st.DrawFn) -> tuple[CellEvidence, CellEvidence]:
    """A cell that is over, and a rerun of some of its jobs, or of all, or of none."""
    earlier = replace(draw(cells("gcp-l4")), state="done", run="run-1", environment="image")
    names = [one.id for one in earlier.jobs]
    again = draw(st.lists(st.sampled_from(names), unique=True))
    ran: list[JobEvidence] = []
    for name in again:
        one = draw(jobs(name, good=draw(st.booleans())))
        word = draw(st.sampled_from([one.outcome, one.outcome, Outcome.NOT_RUN, Outcome.ERRORED]))
        ran.append(replace(one, outcome=word))
    later = replace(draw(cells("gcp-l4")), run="run-2", environment="image", jobs=tuple(ran))
    return earlier, later


@TRIED
@given(reruns())
def test_no_failure_is_hidden_that_was_not_run_again(pair: tuple[CellEvidence, CellEvidence]):
    earlier, later = pair
    whole = {one.id: one for one in merge_reruns(earlier, later).jobs}
    ended = {one.id for one in later.jobs if one.outcome in FINAL}
    for one in earlier.jobs:
        bad = one.outcome in FINAL[1:] or one.counts.bad or one.failed or one.failed_checks
        if bad and one.id not in ended:
            at = one.at or earlier.ended_at
            assert whole[one.id] == replace(one, run="run-1", at=at)
    assert set(whole) == {one.id for one in (*earlier.jobs, *later.jobs)}


@TRIED
@given(reruns())
def test_nothing_is_believed_that_one_of_the_machines_is_not(
    pair: tuple[CellEvidence, CellEvidence],
):
    earlier, later = pair
    whole = merge_reruns(earlier, later)
    if whole is later:
        return
    parts = [one for one in pair if one.outcome is not Outcome.NOT_AVAILABLE]
    assert whole.attested == (bool(parts) and all(one.attested for one in parts))
    assert whole.simulated == any(one.simulated for one in parts)
    assert bool(whole.mismatch) == any(one.mismatch for one in parts)
    assert whole.cost_usd == earlier.cost_usd + later.cost_usd
    unpriced = replace(earlier, cost_usd=None)
    assert merge_reruns(unpriced, later).cost_usd is merge_reruns(later, unpriced).cost_usd is None
    assert whole.ended_at == min((one.ended_at for one in parts if one.ended_at), default=None)


@settings(max_examples=40)
@given(cases(), reruns())
def test_a_rerun_that_had_no_job_makes_no_verdict_better(
    case: tuple[GatePolicy, object], pair: tuple[CellEvidence, CellEvidence]
):
    rules, earlier = case[0], pair[0]
    later = replace(pair[1], jobs=())
    before = judge(rules, snapshot(earlier, runs=("run-1", "run-2")))
    after = judge(rules, snapshot(merge_reruns(earlier, later), runs=("run-1", "run-2")))
    if earlier.outcome is not Outcome.NOT_AVAILABLE:
        assert after.decision.rank >= before.decision.rank or (
            after.decision is Decision.INCONCLUSIVE
        )
