"""Runs of some jobs alone are no runs of their platform: on SQLite and on Postgres."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.domain.cell import RunSpec
from orchestrator.domain.matrix import expand
from orchestrator.domain.outcome import Outcome
from orchestrator.domain.retests import RetestOptions
from tests.contract.frozen_runs import at_work, done
from tests.contract.test_freeze_evidence import STORED_POLICY, passed
from tests.databases import MANIFEST, a_run, after, matrix

SOME = {"p0": ["unit"]}
FOLLOW_UPS = {
    "rerun": {"only": SOME},
    "confirmation": {"only": SOME, "retests": RetestOptions(reruns=5)},
    "bisection": {"only": SOME, "retests": RetestOptions(await_minutes=30)},
}


def ran(stores, run_id, outcome=Outcome.PASSED, *, rerun_of=None, **how) -> None:
    asked = matrix(1)
    rows = tuple(replace(one, provider="static") for one in asked.platforms)
    asked = replace(asked, platforms=rows)
    spec = RunSpec(asked, MANIFEST, **how)
    cell = f"{run_id}.p0"
    (plan,) = expand(asked, MANIFEST)
    run = replace(a_run(run_id), rerun_of=rerun_of)
    stores.runs.create(run, spec, [(cell, plan)], key=None)
    agent = at_work(stores, cell, run_id)
    agent.send(agent.manifest("a", "b"), agent.test("a"), agent.test("b"))
    done(stores, cell, outcome)
    stores.runs.finish(run_id, outcome, at=after(60))


@pytest.mark.parametrize("how", FOLLOW_UPS.values(), ids=FOLLOW_UPS)
def test_it_is_neither_the_newest_run_nor_green(stores, how) -> None:
    ran(stores, "run-1")
    ran(stores, "run-2", Outcome.FAILED)
    ran(stores, "run-3", rerun_of="run-2", **how)
    assert stores.gates.newest_finished("proof") == "run-2"
    green = stores.gates.last_green("proof", "p0")
    assert green is not None
    assert (green.run_id, green.streak) == ("run-1", 1)
    assert stores.gates.green_streak("proof", "p0", before_run="run-4") == 0


def test_it_breaks_no_streak(stores) -> None:
    ran(stores, "run-1")
    ran(stores, "run-2", Outcome.FAILED, rerun_of="run-1", only=SOME)
    ran(stores, "run-3")
    assert stores.gates.green_streak("proof", "p0", before_run="run-4") == 2


def test_a_rerun_of_everything_is_a_run(stores) -> None:
    ran(stores, "run-1", Outcome.FAILED)
    ran(stores, "run-2", rerun_of="run-1")
    assert stores.gates.newest_finished("proof") == "run-2"
    assert stores.gates.green_streak("proof", "p0", before_run="run-3") == 1


def test_a_verdict_of_it_alone_is_no_green_one(stores) -> None:
    gates = stores.gates
    gates.put_policy(STORED_POLICY)
    ran(stores, "run-1")
    ran(stores, "run-2", Outcome.FAILED)
    ran(stores, "run-3", rerun_of="run-2", only=SOME)
    first = gates.add_verdict(passed("run-1"))
    gates.add_verdict(passed("run-3"))
    assert gates.last_passed("release") == first
    both = gates.add_verdict(passed("run-2", "run-3"))
    assert gates.last_passed("release") == both
    assert gates.last_passed("release", without=["run-3"]) == first
