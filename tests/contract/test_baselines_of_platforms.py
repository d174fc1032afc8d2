"""Which earlier cells a gate's cells are compared with, if platforms have other names now."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from orchestrator.domain.gate.policy import EvidenceRule, JobRule, ManifestRule
from orchestrator.domain.outcome import Outcome
from tests.contract.frozen_runs import (
    at_work,
    done,
    frozen,
    judging,
    launched,
    only_cell,
    passed,
    passes,
    ran,
    skips,
    stored,
)
from tests.databases import after

COMMON, GPU = "t.py::common", "t.py::gpu"
BOTH = (COMMON, GPU)


@pytest.fixture
def context(stores):
    return SimpleNamespace(stores=stores, clock=SimpleNamespace(now=lambda: after(3600)))


def ran_on(stores, run_id, cells, machines=None):
    """A finished run whose job `unit` has these tests, by platform."""
    for cell_id, (name, tests) in zip(
        launched(stores, run_id, names=list(cells)), cells.items(), strict=True
    ):
        facts = {"instance_type": (machines or {}).get(name, name)}
        agent = at_work(stores, cell_id, run_id, **facts)
        agent.send(agent.line("phase", "unit", name="started"), *map(agent.test, tests))
        agent.send(agent.line("phase", "unit", name="finished", exit_code=0, duration_s=1.0))
        done(stores, cell_id)
    stores.runs.finish(run_id, Outcome.PASSED, at=after(60))


def accepted(stores, *runs, platforms, digest="a" * 64):
    stores.gates.put_policy(stored(judging(*platforms), digest))
    stores.gates.add_verdict(passed(*runs, policy=digest))


def removed(context, *runs, platforms, advisory=()):
    cells = frozen(context, *runs, policy=judging(*platforms, advisory=advisory)).cells
    return {
        cell.platform: job.changes.removed
        for cell in cells
        for job in cell.jobs
        if job.changes is not None and job.changes.removed
    }


@pytest.mark.parametrize(
    ("now", "found"),
    [
        ({"one": [COMMON], "new": [COMMON]}, {"new": (GPU,)}),
        ({"one": [COMMON], "new": BOTH}, {}),
        ({"new": [COMMON], "newer": [COMMON]}, {"new": (GPU,), "newer": (GPU,)}),
        ({"new": [COMMON], "newer": BOTH}, {}),
        ({"new": [GPU], "newer": BOTH}, {"new": (COMMON,)}),
        ({"one": [COMMON], "new": [COMMON], "newer": [GPU]}, {"new": (GPU,), "newer": (COMMON,)}),
        ({"one": [COMMON], "two": BOTH, "new": [GPU]}, {}),
        ({"one": [COMMON], "two": [COMMON]}, {"two": (GPU,)}),
        ({"one": [COMMON]}, {"one": (GPU,)}),
        ({"one": BOTH}, {}),
    ],
    ids=["one renamed", "one renamed with all", "all renamed", "all renamed with all",
         "all renamed, without what all had", "split", "added", "kept", "dropped",
         "dropped, with all"],
)  # fmt: skip
def test_a_platform_under_another_name_has_the_tests_of_those_that_are_gone(
    context, stores, now, found
) -> None:
    ran_on(stores, "run-1", {"one": [COMMON], "two": BOTH})
    accepted(stores, "run-1", platforms=["one", "two"])
    ran_on(stores, "run-2", now)
    assert removed(context, "run-2", platforms=list(now)) == found


def test_the_platforms_are_those_of_the_policy(context, stores) -> None:
    """A row of the matrix keeps the old name; one that no policy ever named says nothing."""
    ran_on(stores, "run-1", {"one": [COMMON], "two": BOTH, "desk": ["t.py::desk"]})
    accepted(stores, "run-1", platforms=["one", "two"])
    ran_on(stores, "run-2", {"one": [COMMON], "two": BOTH, "new": [COMMON]})
    assert removed(context, "run-2", platforms=["one", "new"]) == {"new": (GPU,)}
    assert removed(context, "run-2", platforms=["one", "two", "new"]) == {}


@pytest.mark.parametrize(("machine", "found"), [("g2", {"new": (GPU,)}), ("g6", {})])
def test_a_platform_that_was_gone_for_a_verdict_is_known_by_its_machine(
    context, stores, machine, found
) -> None:
    ran_on(stores, "run-1", {"one": [COMMON], "two": BOTH}, {"two": "g2"})
    accepted(stores, "run-1", platforms=["one", "two"])
    ran_on(stores, "run-2", {"one": [COMMON]})
    assert removed(context, "run-2", platforms=["one"]) == {"one": (GPU,)}
    accepted(stores, "run-2", platforms=["one"], digest="b" * 64)
    ran_on(stores, "run-4", {"one": [COMMON]})
    assert removed(context, "run-4", platforms=["one"]) == {}, "it was given up once"
    ran_on(stores, "run-3", {"one": [COMMON], "new": [COMMON]}, {"new": machine})
    assert removed(context, "run-3", platforms=["one", "new"]) == found


@pytest.mark.parametrize(
    ("machines", "found"),
    [
        ({"one": "g2", "two": "c1"}, {"one": (GPU,)}),
        ({"one": "c1", "two": "g2"}, {}),
        ({"one": "c7", "two": "g7"}, {}),
    ],
    ids=["swapped", "the same", "newer ones"],
)
def test_a_machine_under_the_name_of_another_has_the_tests_of_its_own(
    context, stores, machines, found
) -> None:
    ran_on(stores, "run-1", {"one": [COMMON], "two": BOTH}, {"one": "c1", "two": "g2"})
    accepted(stores, "run-1", platforms=["one", "two"])
    ran_on(stores, "run-2", {"one": [COMMON], "two": BOTH}, machines)
    assert removed(context, "run-2", platforms=["one", "two"]) == found


@pytest.mark.parametrize(
    ("now", "found"),
    [
        ({"old": BOTH, "new": [COMMON]}, {"new": (GPU,)}),
        ({"old": [COMMON], "new": [COMMON]}, {"old": (GPU,), "new": (GPU,)}),
        ({"old": [COMMON], "new": BOTH}, {"old": (GPU,)}),
    ],
)
def test_a_platform_that_is_advisory_now_is_gone(context, stores, now, found) -> None:
    ran_on(stores, "run-1", {"old": BOTH})
    accepted(stores, "run-1", platforms=["old"])
    ran_on(stores, "run-2", now)
    assert removed(context, "run-2", platforms=["new"], advisory=["old"]) == found


def test_a_platform_that_becomes_advisory_is_given_up_once(context, stores) -> None:
    ran_on(stores, "run-1", {"one": [COMMON], "two": BOTH})
    accepted(stores, "run-1", platforms=["one", "two"])
    ran_on(stores, "run-2", {"one": [COMMON], "two": BOTH})
    assert removed(context, "run-2", platforms=["one"], advisory=["two"]) == {"one": (GPU,)}
    stores.gates.put_policy(stored(judging("one", advisory=["two"]), "b" * 64))
    stores.gates.add_verdict(passed("run-2", policy="b" * 64))
    ran_on(stores, "run-3", {"one": [COMMON], "two": BOTH})
    assert removed(context, "run-3", platforms=["one"], advisory=["two"]) == {}


def test_a_platform_that_was_never_required_is_not_missed(context, stores) -> None:
    ran_on(stores, "run-1", {"one": [COMMON], "two": BOTH})
    stores.gates.put_policy(stored(judging("one", advisory=["two"])))
    stores.gates.add_verdict(passed("run-1"))
    ran_on(stores, "run-2", {"one": [COMMON]})
    assert removed(context, "run-2", platforms=["one"]) == {}


def test_a_job_of_a_platform_that_is_dropped_is_missed(context, stores) -> None:
    """And a test that ran there alone may not be skipped elsewhere without being told."""
    ran(stores, "run-1", passes(COMMON), skips(GPU, "no GPU"), names=["one"])
    for cell_id in launched(stores, "run-2", names=["two"]):
        agent = at_work(stores, cell_id, "run-2")
        for job, tests in (("unit", BOTH), ("smoke", [COMMON])):
            agent.send(agent.line("phase", job, name="started"))
            agent.send(*(agent.test(name, job=job) for name in tests))
            agent.send(agent.line("phase", job, name="finished", exit_code=0, duration_s=1.0))
        done(stores, cell_id)
    stores.runs.finish("run-2", Outcome.PASSED, at=after(60))
    accepted(stores, "run-1", "run-2", platforms=["one", "two"])
    ran(stores, "run-3", passes(COMMON), skips(GPU, "no GPU"), names=["one"])
    cell = only_cell(context, "run-3", policy=judging("one"))
    assert cell.jobs_gone == {"smoke": (COMMON,)}
    (unit, *_) = cell.jobs
    assert unit.newly_skipped == {"no GPU": (GPU,)}


def test_what_ran_on_a_platform_that_is_gone_may_not_be_skipped(context, stores) -> None:
    ran(stores, "run-1", passes(COMMON), passes(GPU), names=["two"])
    accepted(stores, "run-1", platforms=["two"])
    ran(stores, "run-2", passes(COMMON), skips(GPU, "no GPU"), names=["new"])
    (unit, *_) = only_cell(context, "run-2", policy=judging("new")).jobs
    assert unit.newly_skipped == {"no GPU": (GPU,)}


def test_no_choice_of_runs_leaves_out_what_the_gate_passed_last(context, stores) -> None:
    """Neither a run of before, alone or beside the new one, nor the passed one itself beside it."""
    ran_on(stores, "run-1", {"one": [COMMON]})
    ran_on(stores, "run-2", {"one": BOTH})
    accepted(stores, "run-2", platforms=["one"])
    ran_on(stores, "run-3", {"one": [COMMON]})
    for runs in (["run-1"], ["run-3"], ["run-1", "run-3"], ["run-2", "run-3"]):
        assert removed(context, *runs, platforms=["one"]) == {"one": (GPU,)}, runs
    assert removed(context, "run-2", platforms=["one"]) == {}
    (cell,) = frozen(context, "run-2", policy=judging("one")).cells
    assert cell.jobs[0].changes.runs == ("run-1",), "a run is no baseline of itself"


def test_each_cell_has_its_own_last_payload(context, stores) -> None:
    """Of two runs with different payloads, for two platforms, the gate passed both."""
    ran_on(stores, "run-1", {"one": BOTH})
    (other,) = launched(stores, "run-2", names=["two"], payload="c" * 64)
    at_work(stores, other, "run-2")
    done(stores, other)
    stores.runs.finish("run-2", Outcome.PASSED, at=after(60))
    accepted(stores, "run-1", "run-2", platforms=["one", "two"])
    for number in (3, 4):
        ran_on(stores, f"run-{number}", {"one": [COMMON]})
    assert removed(context, "run-4", platforms=["one", "two"]) == {"one": (GPU,)}


@pytest.mark.parametrize(
    ("now", "found"),
    [
        (["image"], {"unit.more": (COMMON, GPU)}),
        (["image", "more"], {}),
        (["image", "other"], {}),
        (["image", "more", "other"], {}),
    ],
    ids=["left out", "kept", "renamed", "added"],
)
def test_an_environment_that_is_left_out_is_missed(context, stores, now, found) -> None:
    for run, names in (("run-1", ["image", "more"]), ("run-2", now)):
        for cell_id in launched(stores, run, environments=names):
            agent = at_work(stores, cell_id, run)
            agent.send(agent.line("phase", "unit", name="started"), *map(agent.test, BOTH))
            agent.send(agent.line("phase", "unit", name="finished", exit_code=0, duration_s=1.0))
            done(stores, cell_id)
        stores.runs.finish(run, Outcome.PASSED, at=after(60))
        if run == "run-1":
            accepted(stores, run, platforms=["p0"])
    cells = frozen(context, "run-2").cells
    assert [cell.jobs_gone for cell in cells] == [found, *[{}] * (len(now) - 1)]
    # Each environment's own, not all of its platform's together.
    assert {cell.baseline_collected for cell in cells} <= {2, None}
    assert cells[0].baseline_collected == 2


def policy_of_jobs(level, **manifest):
    """A policy of the platform `one` in which the job `unit` has this level."""
    policy = judging("one")
    jobs = (JobRule(id="unit", level=level), JobRule(id="*"))
    evidence = EvidenceRule(manifest=ManifestRule(**manifest))
    return replace(policy, spec=replace(policy.spec, jobs=jobs, evidence=evidence))


@pytest.mark.parametrize(
    ("advisory", "found"),
    [
        (policy_of_jobs("advisory"), {"one": (GPU,)}),
        (policy_of_jobs("advisory", removed_tests=(GPU,)), {}),
        (policy_of_jobs("blocking"), {}),
    ],
    ids=["advisory", "given up", "blocking, so that it was waived"],
)
def test_a_job_that_is_advisory_keeps_its_baseline(context, stores, advisory, found) -> None:
    runs = {"run-1": BOTH, "run-2": [COMMON], "run-3": [COMMON], "run-4": [COMMON]}
    policies = (policy_of_jobs("blocking"), advisory, advisory)
    for run, digest, policy in zip(runs, "abc", policies, strict=False):
        ran_on(stores, run, {"one": runs[run]})
        stores.gates.put_policy(stored(policy, digest * 64))
        stores.gates.add_verdict(passed(run, policy=digest * 64))
    ran_on(stores, "run-4", {"one": runs["run-4"]})
    assert removed(context, "run-4", platforms=["one"]) == found
