"""Figures that payload.toml names become metrics of their job; what is not there fails it."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from orchestrator.adapters.result_parsers import job_metrics
from orchestrator.adapters.result_parsers.job_metrics import JobMetrics
from orchestrator.adapters.result_parsers.registry import FileDialects
from orchestrator.application.cell.collecting import collect_artifacts, outcome_files, read_metrics
from orchestrator.domain.cell import Cause, CellState
from orchestrator.domain.derive_outcomes import judge_job
from orchestrator.domain.event_facts import CheckFact, JobFact
from orchestrator.domain.outcome import Counts, Outcome
from orchestrator.domain.run_record import ArtifactRecord
from tests.databases import MANIFEST, NOW, ON_SQLITE, Agent, advance, attempt, create

FILES = {
    "unit.build-figures.json": b'[{"name": "decode", "unit": "tokens/s", "value": 5}]',
    "unit.txt": b"Hidden size 512: 7.79ms/batch\n",
}
UNCOLLECTED = "the job did not write it, or its log says why it was not collected"


def world_of(stores) -> SimpleNamespace:
    return SimpleNamespace(
        stores=stores,
        blobs=SimpleNamespace(open=lambda name: iter([FILES[name]]), has=lambda _: True),
        read_metrics=JobMetrics(FileDialects()),
    )


def asked(stores, attempt_id: str, *metrics: str):
    """The attempt's state, with files at home and a job that names its figures."""
    stores.cells.record_collection(attempt_id, at=NOW)
    now = stores.cells.attempt_state(attempt_id)
    job = replace(MANIFEST.job[0], metrics=metrics)
    return replace(now, spec=replace(now.spec, manifest=replace(MANIFEST, job=(job,))))


@ON_SQLITE
@pytest.mark.parametrize("lost", [None, "unit.build-figures.json"])
def test_figures_are_kept_once_and_what_is_missing_is_a_failed_check(stores, lost):
    cell_id = create(stores)[0]
    agent = Agent(stores, attempt(stores, cell_id))
    agent.send(agent.line("phase", "unit", name="finished", exit_code=0, duration_s=1.0))
    kept = [name for name in FILES if name != lost]
    stores.results.put_artifacts(cell_id, [ArtifactRecord(name, 9, name) for name in kept])
    now = asked(stores, agent.attempt_id, "output", "build/figures.json")
    for _ in range(2):  # a controller that died in between does it again
        read_metrics(world_of(stores), now)
    measured = [(one.name, one.samples) for one in stores.results.metrics(cell_id)]
    assert measured == [("latency", (7.79,)), ("decode", (5.0,))][: 1 if lost else 2]
    (check,) = stores.results.checks(cell_id)
    reason = f"build/figures.json: {UNCOLLECTED}" if lost else ""
    assert (check.name, check.outcome) == ("metrics", "failed" if lost else "passed")
    assert check.reason == reason


def test_output_that_is_too_long_is_said_to_be_cut(monkeypatch):
    monkeypatch.setattr(job_metrics, "_LIMIT_BYTES", 40)
    chunks = [b"Hidden size 512: 7.79ms/batch\n", b"Hidden size 900: 9.79ms/batch\n"]
    metrics, problems = JobMetrics(FileDialects())("output", iter(chunks))
    assert [one.samples for one in metrics] == [(7.79,)]
    assert problems == ("only its first 0 MiB were read",)


@pytest.mark.parametrize(
    ("name", "unit", "problem"),
    [
        ("a", "s", "the metric 'a' is in 'ms' and in 's': name them differently"),
        ("a ", "ms", "of its metrics 'a ' has a space before or after its name"),
        ("b", "s", None),
        ("a", "ms", None),
    ],
)
def test_a_file_has_one_metric_of_a_name(name: str, unit: str, problem: str | None):
    figures = [
        {"name": "a", "unit": "ms", "value": 5},
        {"name": name, "unit": unit, "value": 6},
    ]
    metrics, problems = JobMetrics(FileDialects())("f.json", [json.dumps(figures).encode()])
    assert problems == ((problem,) if problem else ())
    assert len(metrics) == (1 if problem else 2)


@ON_SQLITE
def test_a_check_of_the_same_name_by_the_job_itself_hides_nothing(stores):
    cell_id = create(stores)[0]
    agent = Agent(stores, attempt(stores, cell_id))
    agent.send(
        agent.line("check", "unit", check="metrics", outcome="passed"),
        agent.line("phase", "unit", name="finished", exit_code=0, duration_s=1.0),
    )
    read_metrics(world_of(stores), asked(stores, agent.attempt_id, "figures.json"))
    (check,) = stores.results.checks(cell_id)
    assert (check.outcome, check.reason) == ("failed", f"figures.json: {UNCOLLECTED}")


@ON_SQLITE
def test_what_an_earlier_attempt_finished_is_not_read_again(stores):
    cell_id = create(stores)[0]
    agent = Agent(stores, attempt(stores, cell_id))
    agent.send(agent.line("phase", "unit", name="finished", exit_code=0, duration_s=1.0))
    stores.results.put_artifacts(cell_id, [ArtifactRecord("unit.txt", 9, "unit.txt")])
    read_metrics(world_of(stores), asked(stores, agent.attempt_id, "output"))
    advance(stores, cell_id, CellState.RELEASING)
    stores.cells.requeue(agent.attempt_id, Cause(Outcome.ERRORED, "lost"), at=NOW)
    later = attempt(stores, cell_id, 2)
    read_metrics(world_of(stores), asked(stores, later, "output", "more.json"))
    assert [one.outcome for one in stores.results.checks(cell_id)] == ["passed"]
    assert len(stores.results.metrics(cell_id)) == 1


@pytest.mark.parametrize("kind", ["suite", "benchmark"])
def test_a_job_that_fails_by_a_check_says_why(kind: str):
    fact = JobFact("unit", started_ts=1.0, finished_ts=2.0, exit_code=0)
    checks = [CheckFact("unit", "metrics", "failed", reason="o.json: it is lost")]
    counts = Counts(passed=1)
    verdict = judge_job("unit", kind=kind, fact=fact, counts=counts, checks=checks, cause=None)
    assert (verdict.reason, verdict.detail) == ("checks", "failed: metrics (o.json: it is lost)")


@ON_SQLITE
def test_a_file_of_an_earlier_attempt_is_no_figure_of_a_later_one(stores):
    """The second attempt ran the job again, and it wrote nothing this time."""
    cell_id = create(stores)[0]
    first = attempt(stores, cell_id)
    stores.results.put_artifacts(
        cell_id, [ArtifactRecord("unit.o.json", 9, "old"), ArtifactRecord("more.txt", 9, "kept")]
    )
    advance(stores, cell_id, CellState.RELEASING)
    stores.cells.requeue(first, Cause(Outcome.ERRORED, "lost"), at=NOW)
    agent = Agent(stores, attempt(stores, cell_id, 2))
    agent.send(agent.line("phase", "unit", name="finished", exit_code=0, duration_s=1.0))
    now = asked(stores, agent.attempt_id, "o.json")
    deps = world_of(stores)
    bundle = SimpleNamespace(bundle=lambda attempt_id: b"")
    collect_artifacts(
        bundle, lambda chunks: (), stores, deps.blobs, now.attempt,
        replaced=outcome_files(deps, now),
    )  # fmt: skip
    read_metrics(deps, now)
    assert [one.name for one in stores.results.artifacts(cell_id)] == ["more.txt"]
    assert stores.results.metrics(cell_id) == []
    assert [one.outcome for one in stores.results.checks(cell_id)] == ["failed"]
