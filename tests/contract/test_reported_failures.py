"""A job that prints that it failed, and ends as if it had not, has not passed."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from orchestrator.adapters.result_parsers.reported_failure import read_self_report
from orchestrator.application.cell.finishing import check_self_reports
from orchestrator.domain.outcome import Outcome
from orchestrator.domain.run_record import ArtifactRecord
from tests.contract.frozen_runs import REAL, at_work, done, launched, only_cell
from tests.databases import MANIFEST, after

SAID = b"[FAIL] converges\nResults: 0/8 demos passed\n"


@pytest.fixture
def context(stores):
    return SimpleNamespace(stores=stores, clock=SimpleNamespace(now=lambda: after(3600)))


def job_after(context, *, job="demo", printed=SAID, exit_code=0, ends=True, machine=REAL):
    """How a gate sees the demo of a run in which a job printed that."""
    stores = context.stores
    (cell_id,) = launched(stores, "run-1")
    agent = at_work(stores, cell_id, "run-1", machine)
    for name, code in (("unit", 0), ("demo", exit_code)):
        agent.send(agent.line("phase", name, name="started"))
        agent.send(*([agent.test("t.py::a")] if name == "unit" else []))
        agent.send(agent.line("phase", name, name="finished", exit_code=code, duration_s=1.0))
    stores.results.put_artifacts(cell_id, [ArtifactRecord(f"{job}.txt", len(printed), "5" * 64)])
    now = SimpleNamespace(
        cell=stores.cells.get(cell_id),
        attempt=stores.cells.attempt(agent.attempt_id),
        spec=SimpleNamespace(manifest=MANIFEST),
    )
    blobs = SimpleNamespace(open=lambda _: iter([printed]), has=lambda _: True)
    world = SimpleNamespace(stores=stores, blobs=blobs, self_report=read_self_report)
    for _ in range(2):  # a controller that died in between does it again
        check_self_reports(world, now, stores.results.jobs(cell_id))
    if ends:
        done(stores, cell_id)
    return next(one for one in only_cell(context, "run-1").jobs if one.id == "demo")


def test_a_failure_that_is_printed_beside_a_good_end_is_a_failed_check(context):
    demo = job_after(context)
    assert (demo.outcome, demo.reason) == (Outcome.FAILED, "checks")
    assert demo.failed_checks == ("self-report",)
    (check,) = context.stores.results.checks("run-1.p0")
    assert check.reason == "it printed '[FAIL] converges' and ended with exit code 0"


def test_a_fallback_that_is_printed_degrades_the_job_unless_it_says_so_itself(context):
    """As of an ingested demo, by the same phrases."""
    printed = b"Warning: falling back to CPU implementation\n"
    demo = job_after(context, printed=printed)
    assert (demo.outcome, demo.degraded) == (
        Outcome.PASSED,
        "falling back to CPU implementation",
    )
    context.stores.results.put_degraded("run-1.p0", {"demo": "another"})
    assert context.stores.results.jobs("run-1.p0")["demo"].degraded == demo.degraded


@pytest.mark.parametrize(
    ("printed", "degraded"),
    [
        (b"CUDA not available, using CPU\n", ""),
        (b"falling back to CPU\nfalling back to pure Python\n", "falling back to pure Python"),
    ],
)
def test_the_cpu_is_no_fallback_on_a_machine_without_an_accelerator(context, printed, degraded):
    demo = job_after(context, printed=printed, machine=replace(REAL, devices=()))
    assert (demo.outcome, demo.degraded) == (Outcome.PASSED, degraded)


def test_no_command_has_passed_before_its_output_was_read(context):
    """Until its cell is done it is neither passed nor failed; another exit code decides at once."""
    assert job_after(context, ends=False).outcome is None


def test_a_command_that_fails_by_its_exit_code_has_failed_at_once(context):
    assert job_after(context, ends=False, exit_code=1).outcome is Outcome.FAILED


@pytest.mark.parametrize(
    ("how", "outcome"),
    [
        ({"printed": b"Results: 8/8 demos passed\n"}, Outcome.PASSED),
        ({"job": "unit"}, Outcome.PASSED),
        ({"exit_code": 1}, Outcome.FAILED),
    ],
    ids=["well", "suite", "said-so"],
)
def test_what_agrees_with_its_end_gets_no_check(context, how, outcome):
    demo = job_after(context, **how)
    assert (demo.outcome, demo.failed_checks) == (outcome, ())


def test_a_command_whose_test_runner_passed_nothing_is_a_skipped_check(context):
    demo = job_after(context, printed=b"Ran 0 tests in 0.000s\n\nNO TESTS RAN\n")
    assert (demo.outcome, demo.failed_checks) == (Outcome.PASSED, ())
    (check,) = context.stores.results.checks("run-1.p0")
    said = ("self-report", "skipped", "it printed 'Ran 0 tests in 0.000s': nothing passed")
    assert (check.name, check.outcome, check.reason) == said
