"""Firings that a gate judges: its key, its owner, a second machine, and what passed last."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.application.gate_policies import check_policy, find_policy
from orchestrator.domain.gate.verdict import Decision, StoredVerdict, Verdict
from orchestrator.domain.outcome import Outcome
from tests.integration.api_context import desk
from tests.integration.schedule_world import BRANCH, COMMITS, DiedError, Watch, watch_of

TOLD = "notified"
POLICY = """\
apiVersion: seatrial/v1
kind: ReleaseGate
metadata: {{name: release, product: proof, owner: release team}}
spec:
  platforms:
    - {{id: here}}
  diagnosis: {{confirmation_usd: {usd}}}
"""


@pytest.fixture
def watch(tmp_path: Path, sqlite_url: str) -> Iterator[Watch]:
    with desk(tmp_path, sqlite_url) as opened:
        yield watch_of(opened)


def gated(watch: Watch, *, usd: str = '"2.00"', **more: object) -> None:
    text = POLICY.format(usd=usd)
    watch.context.stores.gates.put_policy(
        check_policy(watch.context, text, "x", gate="release", by="me")
    )
    watch.add(gate="release", owner="", **more)


def test_a_gate_judges_under_the_firings_key_and_owns_it(watch: Watch) -> None:
    gated(watch)
    schedule = watch.context.stores.schedules.get("nightly")
    assert schedule is not None
    assert schedule.owner == "release team"
    watch.bench.decisions["10-21"] = Decision.PASS_WITH_EXCEPTIONS
    watch.at(21, 0)
    watch.end_runs()
    assert watch.history() == [("10-21 00:00", TOLD, "PASS_WITH_EXCEPTIONS")]
    assert watch.bench.evaluated == ["schedule:nightly:2026-10-21T00:00:00Z"]
    [said] = watch.bench.told
    assert (said.lineage, said.facts["verdict"]) == ("release@nightly", "V-0")
    assert said.title.startswith("release gate, nightly: PASS with exceptions for proof 1.10")


@pytest.mark.parametrize("step", ["evaluate", "announce"])
def test_a_worker_that_dies_after_a_verdict_or_a_word_is_followed(watch: Watch, step: str) -> None:
    gated(watch)
    watch.at(21, 0)
    watch.bench.dies_after = step
    with pytest.raises(DiedError):
        watch.end_runs()
    watch.look()
    assert watch.history() == [("10-21 00:00", TOLD, "PASS")]
    assert len(set(watch.bench.evaluated)) == 1
    assert len(watch.bench.told) == 1


@pytest.mark.parametrize(
    ("unknown", "usd", "asked"),
    [(True, '"2.00"', True), (False, '"2.00"', False), (True, "null", False)],
)
def test_a_second_machine_is_asked_where_that_can_tell_and_is_paid_for(
    watch: Watch, unknown: bool, usd: str, asked: bool
) -> None:
    gated(watch, usd=usd)
    watch.bench.decisions["10-21"] = Decision.FAIL
    watch.bench.unknown = unknown
    watch.at(21, 0)
    watch.bench.second = str(watch.api.launch(key="second")["id"])
    run, second = watch.runs()
    cells = [cell.name for cell in watch.context.stores.cells.of_run(run)]
    for cell in cells:
        watch.api.begin(run, cell)
    watch.api.finish(run, *cells, outcome=Outcome.FAILED)
    watch.look()
    [firing] = watch.firings()
    assert firing.state.value == ("confirming" if asked else TOLD)
    assert firing.confirmation_run == (second if asked else "")
    assert watch.bench.states == ([] if asked else ["fail"])
    watch.end_runs()
    key = "schedule:nightly:2026-10-21T00:00:00Z"
    assert watch.bench.evaluated == ([key, f"{key}:second"] if asked else [key])
    assert watch.history() == [("10-21 00:00", TOLD, "FAIL")]
    assert watch.bench.states == ["fail"]


@pytest.mark.parametrize("fault", ["ask", ":second"])
def test_a_verdict_stands_whatever_becomes_of_the_second_machine(watch: Watch, fault: str) -> None:
    gated(watch)
    watch.bench.decisions["10-21"] = Decision.FAIL
    watch.bench.unknown, watch.bench.fault = True, fault
    watch.at(21, 0)
    watch.bench.second = str(watch.api.launch(key="second")["id"])
    watch.end_runs()
    for _ in range(10):
        watch.api.clock.move(hours=1)
        watch.look()
    assert watch.history() == [("10-21 00:00", TOLD, "FAIL")]
    assert watch.bench.states == ["fail"]
    assert watch.firings()[0].verdict == "V-0"


def passes(watch: Watch, run_id: str) -> None:
    """The gate passes a run."""
    verdict = Verdict(
        gate="release",
        product="proof",
        decision=Decision.PASS,
        at=watch.api.clock.now(),
        subject={},
        policy_digest=find_policy(watch.context, "release").digest,
        evidence_digest="",
        rules=(),
    )
    stored = StoredVerdict(
        id="",
        gate="release",
        verdict=verdict,
        runs=(run_id,),
        lineage="release@nightly",
        created_at=watch.api.clock.now(),
        **dict.fromkeys(("snapshot_digest", "document_digest", "envelope_digest", "key_id"), ""),
    )
    watch.context.stores.gates.add_verdict(stored)


def test_benchmarks_are_paired_with_what_passed_last(watch: Watch) -> None:
    gated(watch, subject=BRANCH, last_passed_baseline=True)
    watch.at(21, 0)
    first = watch.context.stores.runs.spec(watch.runs()[0])
    assert (first.matrix.baseline, first.baseline_digest) == (None, None)
    assert "nothing to pair" in watch.firings()[0].resolved.remarks[0]
    watch.end_runs()
    passes(watch, watch.runs()[0])
    watch.subjects.commit = COMMITS[3]
    watch.at(22, 0)
    spec = watch.context.stores.runs.spec(watch.runs()[1])
    assert spec.matrix.subject.git.rev == COMMITS[3]
    assert spec.matrix.baseline.git == first.matrix.subject.git
    assert spec.baseline_digest == first.subject_digest
