"""What a gate is shown of a run beside others: earlier runs, and other platforms."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from orchestrator.domain.matrix import Subject
from orchestrator.domain.outcome import Outcome
from tests.contract.frozen_runs import (
    STORED_POLICY,
    at_work,
    broken,
    done,
    fails,
    frozen,
    launched,
    only_cell,
    passed,
    passes,
    ran,
    rerun,
    skips,
)
from tests.databases import after


@pytest.fixture
def context(stores):
    return SimpleNamespace(stores=stores, clock=SimpleNamespace(now=lambda: after(3600)))


def test_a_skip_of_what_ran_in_the_last_green_run_is_told_by_name(context, stores) -> None:
    ran(stores, "run-1", passes("t.py::a[x-1]"), skips("t.py::b", "slow"), passes("t.py::c"))
    ran(stores, "run-2", skips("t.py::a[1-x]", "now"), skips("t.py::b", "slow"), passes("t.py::c"))
    assert only_cell(context, "run-2").jobs[0].newly_skipped == {"now": ("t.py::a[1-x]",)}
    assert only_cell(context, "run-1").jobs[0].newly_skipped == {}


def test_what_the_gate_passed_stays_the_baseline_of_skips(context, stores) -> None:
    """A run whose skips no gate has passed is green all the same."""
    ran(stores, "run-1", passes("t.py::a"), passes("t.py::b"))
    stores.gates.put_policy(STORED_POLICY)
    stores.gates.add_verdict(passed("run-1"))
    for number in (2, 3):
        ran(stores, f"run-{number}", skips("t.py::a", "now"), passes("t.py::b"))
    assert only_cell(context, "run-3").jobs[0].newly_skipped == {"now": ("t.py::a",)}


def test_tests_that_another_platform_has_are_told_by_name(context, stores) -> None:
    first, second = launched(stores, "run-1", platforms=2)
    for cell_id, names in ((first, ("t.py::a[x-1]", "t.py::b")), (second, ("t.py::a[1-x]",))):
        agent = at_work(stores, cell_id, "run-1")
        agent.send(agent.manifest(*names), *(agent.test(name) for name in names))
        done(stores, cell_id)
    (mine, _), (other, demo) = (cell.jobs for cell in frozen(context, "run-1").cells)
    assert (mine.tests_lacking, other.tests_lacking) == ((), ("t.py::b",))
    assert len({mine.tests_digest, other.tests_digest}) == 2
    assert (demo.tests_digest, demo.tests_lacking) == ("", ())


def failed_first(context, *runs):
    (cell,) = frozen(context, *runs).cells
    return [(one.nodeid, one.run) for job in cell.jobs for one in job.failed_before]


def test_what_failed_first_is_told_whatever_way_it_was_run_again(context, stores) -> None:
    ran(stores, "run-1", fails("a"), fails("b"), broken, outcome=Outcome.FAILED)
    rerun(stores, "run-2", "run-1", passes("a"), fails("b"))
    rerun(stores, "run-3", "run-2", passes("a"), passes("b"))
    ran(stores, "run-4", passes("a"), passes("b"))
    chain = [("a", "run-1"), ("b", "run-2")]
    assert failed_first(context, "run-3") == chain  # alone, by the chain of reruns
    assert failed_first(context, "run-1", "run-3") == chain  # completing what it repeats
    both = [("a", "run-1"), ("b", "run-1")]
    assert failed_first(context, "run-1", "run-4") == both  # by a second run
    assert failed_first(context, "run-4") == []
    assert failed_first(context, "run-1") == []


def test_what_failed_of_another_payload_or_subject_is_no_flake(context, stores) -> None:
    ran(stores, "run-1", fails("a"), outcome=Outcome.FAILED)
    rerun(stores, "run-2", "run-1", passes("a"), payload="c" * 64)
    ran(stores, "run-3", passes("a"), subject=Subject(name="lib", version="1.11"))
    assert failed_first(context, "run-1", "run-2") == []
    assert failed_first(context, "run-1", "run-3") == []
