"""Figures that payload.toml names become metrics of their job; what is not there fails it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from orchestrator.adapters.result_parsers import job_metrics
from orchestrator.adapters.result_parsers.job_metrics import JobMetrics
from orchestrator.adapters.result_parsers.registry import FileDialects
from orchestrator.application.cell.measuring import read_metrics
from orchestrator.domain.run_record import ArtifactRecord
from tests.databases import MANIFEST, ON_SQLITE, Agent, attempt, create

FILES = {
    "unit.build-figures.json": b'[{"name": "decode", "unit": "tokens/s", "value": 5}]',
    "unit.txt": b"Hidden size 512: 7.79ms/batch\n",
}


@ON_SQLITE
@pytest.mark.parametrize("lost", [None, "unit.build-figures.json"])
def test_figures_are_kept_once_and_what_is_missing_is_a_failed_check(stores, lost):
    job = replace(MANIFEST.job[0], metrics=("output", "build/figures.json"))
    cell_id = create(stores)[0]
    agent = Agent(stores, attempt(stores, cell_id))
    agent.send(agent.line("phase", "unit", name="finished", exit_code=0, duration_s=1.0))
    kept = [name for name in FILES if name != lost]
    stores.results.put_artifacts(cell_id, [ArtifactRecord(name, 9, name) for name in kept])
    now = stores.cells.attempt_state(agent.attempt_id)
    now = replace(now, spec=replace(now.spec, manifest=replace(MANIFEST, job=(job,))))
    world = SimpleNamespace(
        stores=stores,
        blobs=SimpleNamespace(open=lambda name: iter([FILES[name]]), has=lambda _: True),
        read_metrics=JobMetrics(FileDialects()),
    )
    for _ in range(2):  # a controller that died in between does it again
        read_metrics(world, now, stores.results.jobs(cell_id))
    measured = [(one.name, one.samples) for one in stores.results.metrics(cell_id)]
    assert measured == [("latency", (7.79,)), ("decode", (5.0,))][: 1 if lost else 2]
    (check,) = stores.results.checks(cell_id)
    reason = "build/figures.json: the job left no such file" if lost else ""
    assert (check.name, check.outcome) == ("metrics", "failed" if lost else "passed")
    assert check.reason == reason


def test_output_that_is_too_long_is_said_to_be_cut(monkeypatch):
    monkeypatch.setattr(job_metrics, "_LIMIT_BYTES", 40)
    chunks = [b"Hidden size 512: 7.79ms/batch\n", b"Hidden size 900: 9.79ms/batch\n"]
    metrics, problems = JobMetrics(FileDialects())("output", iter(chunks))
    assert [one.samples for one in metrics] == [(7.79,)]
    assert problems == ("only its first 0 MiB were read",)
