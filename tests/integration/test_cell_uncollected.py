"""Figures of a job whose files never came home: it is no failure of the job."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from functools import partial

import pytest

from orchestrator.application.cell.flow import run_cell
from orchestrator.application.ports.archives import BundleError
from orchestrator.domain.matrix import Limits
from orchestrator.domain.outcome import Counts, Outcome
from tests.integration.fake_world import FakeWorld
from tests.integration.test_cell_flow import finish, preempt_once

BENCH = b'[{"name": "decode", "unit": "tokens/s", "value": 5}]'


def write_figures(here: FakeWorld) -> None:
    """The agent of each attempt that runs `one` leaves its file."""
    for computer in here.computers():
        for attempt in computer.attempts.values():
            if any(job["id"] == "one" for job in attempt.plan["jobs"]):
                attempt.artifacts["one.bench.json"] = BENCH


def planned(here: FakeWorld, plans: list) -> None:
    """Note what each attempt was sent."""
    for computer in here.computers():
        for name, attempt in computer.attempts.items():
            told = {job["id"]: tuple(job["skip"]) for job in attempt.plan["jobs"]}
            if (name, told) not in plans:
                plans.append((name, told))


@pytest.fixture
def here(tmp_path):
    world = FakeWorld(tmp_path, metrics={"one": ("bench.json",)})
    world.on_tick.append(write_figures)
    yield world
    world.close()


def lose_once(here: FakeWorld) -> None:
    """The machine is taken when `one` is over and `two` is not."""
    jobs = here.record().cells[0].jobs
    if jobs and jobs[0].counts.passed and here.cloud.made == 1:
        facts = here.database.stores.results.jobs("run-0")
        if facts["one"].finished_ts is not None:
            preempt_once(here)


def test_a_job_whose_files_were_lost_with_the_machine_runs_again(here):
    plans: list = []
    here.on_tick += [lose_once, lambda world: planned(world, plans)]
    finish(here)
    cell = here.record().cells[0]
    assert (cell.outcome, len(cell.attempts)) == (Outcome.PASSED, 2)
    assert cell.attempts[0].cause.reason == "preempted"
    assert [told for _, told in plans] == [{"one": (), "two": ()}, {"one": (), "two": ()}]
    assert [(c.name, c.outcome, c.reason) for c in cell.jobs[0].checks] == [
        ("metrics", "passed", "")
    ]
    assert [(m.name, m.samples) for m in cell.jobs[0].metrics] == [("decode", (5.0,))]
    assert cell.counts == Counts(passed=2)


def test_a_demo_whose_output_was_lost_with_the_machine_runs_again(here):
    """Its output, which may contradict exit code 0, was not read."""
    here.metrics, here.demos = {}, ("one",)
    plans: list = []
    here.on_tick += [lose_once, lambda world: planned(world, plans)]
    finish(here)
    assert here.record().cells[0].attempts[0].cause.reason == "preempted"
    assert [told for _, told in plans] == [{"one": (), "two": ()}, {"one": (), "two": ()}]


def test_without_another_attempt_it_ends_as_its_machine_did(here):
    here.limits = Limits(max_usd=Decimal(10), infra_retries=0)
    here.on_tick.append(lose_once)
    finish(here)
    cell = here.record().cells[0]
    one = cell.jobs[0]
    assert (one.outcome, one.reason, one.checks) == (Outcome.ERRORED, "preempted", ())
    assert one.counts == Counts(passed=1)
    assert cell.outcome is Outcome.ERRORED


def test_a_bundle_that_cannot_be_read_is_infrastructure(here):
    looks: list[None] = []

    def unpack(chunks):
        looks.append(None)
        if len(looks) == 1:
            raise BundleError("it is no tar")
        return unpack_bundle(chunks)

    unpack_bundle = here.world.unpack
    here.world = replace(here.world, unpack=unpack)
    here.engine._flow = partial(run_cell, here.world)
    finish(here)
    cell = here.record().cells[0]
    assert cell.attempts[0].cause.reason == "agent"
    assert cell.attempts[0].cause.detail == "the files of one were never collected"
    assert (cell.outcome, len(cell.attempts)) == (Outcome.PASSED, 2)


def test_a_job_that_failed_has_failed_wherever_its_files_are(here):
    def failing(plan):
        for job in plan["jobs"]:
            for name, more in (("started", {"kind": "suite", "pid": 1}), ("finished", {
                "exit_code": 3, "signal": None, "cause": None, "detail": "", "duration_s": 1.0,
                "restarts": 0,
            })):  # fmt: skip
                yield {"kind": "phase", "job": job["id"], "data": {"name": name, **more}}

    def give(world: FakeWorld) -> None:
        for computer in world.computers():
            computer.script = failing

    def lose(world: FakeWorld) -> None:
        facts = world.database.stores.results.jobs("run-0")
        if world.cloud.live() and "one" in facts and facts["one"].finished_ts is not None:
            world.cloud.preempt(world.cloud.live()[0].id)

    here.cloud.boot_looks = 3
    here.limits = Limits(max_usd=Decimal(10), infra_retries=0)
    here.on_tick += [give, lose]
    finish(here)
    one = here.record().cells[0].jobs[0]
    assert (one.outcome, one.reason) == (Outcome.FAILED, "pytest_internal")
