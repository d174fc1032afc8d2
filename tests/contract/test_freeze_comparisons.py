"""What a gate is shown of a run beside others: earlier runs, and other platforms."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from orchestrator.domain.cell import Cause, CellState
from orchestrator.domain.gate.policy import EvidenceRule
from orchestrator.domain.gate.verdict import Decision, RuleOutcome, RuleResult
from orchestrator.domain.matrix import GitSource, Subject
from orchestrator.domain.node_ids import Alias, AliasState, NameChange
from orchestrator.domain.outcome import Outcome
from tests.contract.frozen_runs import (
    POLICY,
    STORED_POLICY,
    at_work,
    broken,
    done,
    environment,
    fails,
    frozen,
    judging,
    launched,
    only_cell,
    passed,
    passes,
    ran,
    rerun,
    skips,
    stored,
    xfails,
)
from tests.databases import NOW, advance, after, attempt


@pytest.fixture
def context(stores):
    return SimpleNamespace(stores=stores, clock=SimpleNamespace(now=lambda: after(3600)))


def test_a_skip_of_what_ran_in_the_last_green_run_is_told_by_name(context, stores) -> None:
    ran(stores, "run-1", passes("t.py::a[x-1]"), skips("t.py::b", "slow"), passes("t.py::c"))
    ran(stores, "run-2", skips("t.py::a[1-x]", "now"), skips("t.py::b", "slow"), passes("t.py::c"))
    assert only_cell(context, "run-2").jobs[0].newly_skipped == {"now": ("t.py::a[1-x]",)}
    assert only_cell(context, "run-1").jobs[0].newly_skipped == {}


def test_what_passed_in_the_last_green_run_may_not_be_expected_to_fail(context, stores) -> None:
    ran(stores, "run-1", passes("t.py::a"), xfails("t.py::b", "#7"), passes("t.py::c"))
    ran(stores, "run-2", xfails("t.py::a", "#8"), xfails("t.py::b", "#7"), passes("t.py::c"))
    lost = {"expected to fail: #8": ("t.py::a",)}
    unit = only_cell(context, "run-2").jobs[0]
    assert (unit.newly_skipped, unit.expected_failures) == (lost, {"#7": 1, "#8": 1})


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
    assert failed_first(context, "run-4") == both  # alone: nobody names the run that failed
    assert failed_first(context, "run-1") == []


def test_no_choice_of_a_run_hides_that_another_of_the_same_failed(context, stores) -> None:
    """Not the earlier one that passed, either; nor a git wheel that is built anew each time."""
    built = Subject(name="lib", version="1.10", git=GitSource(url="x", rev="a" * 40))
    ran(stores, "run-1", passes("a"), subject=built, digest="1" * 64)
    ran(stores, "run-2", fails("a"), outcome=Outcome.FAILED, subject=built, digest="2" * 64)
    assert failed_first(context, "run-1") == [("a", "run-2")]
    ran(stores, "run-3", passes("a"), subject=replace(built, git=GitSource(url="x", rev="b" * 40)))
    assert failed_first(context, "run-3") == []


def test_a_failure_counts_while_its_run_goes_on(context, stores) -> None:
    ran(stores, "run-1", passes("a"), passes("b"))
    (cell,) = launched(stores, "run-2")
    agent = at_work(stores, cell, "run-2")
    agent.send(agent.manifest("a", "b"), agent.test("b"))
    assert failed_first(context, "run-1") == []
    agent.send(agent.test("a", "failed", longrepr="E   ValueError: 3"))
    assert failed_first(context, "run-1") == [("a", "run-2")]
    context.clock = SimpleNamespace(now=lambda: after(365 * 86400))
    assert failed_first(context, "run-1") == []  # it was launched too long ago


def test_an_attempt_that_was_lost_while_jobs_could_run_is_told(context, stores) -> None:
    (cell,) = launched(stores, "run-1")
    for number, reason in enumerate(("preempted", "agent", "lost"), 1):
        lost = attempt(stores, cell, number)
        advance(stores, cell, CellState.RELEASING)
        stores.cells.requeue(lost, Cause(Outcome.ERRORED, reason, "gone"), at=NOW)
    told = only_cell(context, "run-1").lost_attempts
    assert told == ("attempt 2 of run run-1 (agent: gone)",)  # the last attempt has its own outcome


def test_jobs_and_tests_that_the_run_leaves_out_are_told(context, stores) -> None:
    ran(stores, "run-1", passes("a"))
    assert only_cell(context, "run-1").untested == ()
    ran(stores, "run-2", passes("a"), untaken_tests=("tests/test_new.py",))
    assert only_cell(context, "run-2").untested == ("no job takes tests/test_new.py",)


def wheel(path):
    return {"subject": Subject(name="lib", version="1.10", wheel=path)}


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (wheel("1.whl"), wheel("2.whl")),
        ({"digest": "1" * 64, "contents": "c" * 64}, {"digest": "2" * 64, "contents": "c" * 64}),
        ({}, {"subject": Subject(name="LIB", version="1.10.0")}),
    ],
    ids=["by another path", "zipped again", "by another name"],
)
def test_it_is_the_same_wheel(context, stores, first, then) -> None:
    ran(stores, "run-1", fails("a"), outcome=Outcome.FAILED, **first)
    ran(stores, "run-2", passes("a"), **then)
    assert failed_first(context, "run-2") == [("a", "run-1")]


def test_failures_older_than_the_policy_believes_are_over(context, stores) -> None:
    ran(stores, "run-1", fails("a"), outcome=Outcome.FAILED)
    ran(stores, "run-2", passes("a"))
    window = replace(POLICY.spec, evidence=EvidenceRule(max_age="48h"))
    end = 48 * 3600 + 60
    for seconds, told in ((end, [("a", "run-1")]), (end + 1, [])):
        context.clock = SimpleNamespace(now=lambda seconds=seconds: after(seconds))
        cell = only_cell(context, "run-2", policy=replace(POLICY, spec=window))
        assert [(t.nodeid, t.run) for job in cell.jobs for t in job.failed_before] == told


def test_a_policy_that_believes_less_evidence_forgets_no_failure(context, stores) -> None:
    ran(stores, "run-1", fails("a"), outcome=Outcome.FAILED)
    ran(stores, "run-2", passes("a"))
    context.clock = SimpleNamespace(now=lambda: after(36 * 3600))
    strict = replace(POLICY, spec=replace(POLICY.spec, evidence=EvidenceRule(max_age="5m")))
    (unit, *_) = only_cell(context, "run-2", policy=strict).jobs
    assert [(t.nodeid, t.run) for t in unit.failed_before] == [("a", "run-1")]


def test_what_failed_on_a_platform_that_cannot_be_had_again_is_told(context, stores) -> None:
    ran(stores, "run-1", fails("a"), outcome=Outcome.FAILED)
    ran(stores, "run-2", outcome=Outcome.NOT_AVAILABLE)
    assert only_cell(context, "run-2").jobs_failed["unit"] == "run-1"


@pytest.mark.parametrize(
    ("python", "names", "found"),
    [("3.11", ["p0"], [("a", "run-1")]), ("3.12", ["p0"], []), ("3.11", ["p0", "q0"], [])],
    ids=["renamed", "another Python", "both are asked for"],
)
def test_what_failed_on_the_same_machine_by_another_name(
    context, stores, python, names, found
) -> None:
    """An id that the matrix no longer has, on the same kind of machine, with the same packages."""
    ran(
        stores,
        "run-1",
        environment(python="3.11"),
        fails("a"),
        outcome=Outcome.FAILED,
        names=["q0"],
    )
    for cell in launched(stores, "run-2", names=names):
        agent = at_work(stores, cell, "run-2")
        agent.send(environment(python=python)(agent))
        agent.send(agent.line("phase", "unit", name="started"), passes("a")(agent))
        agent.send(agent.line("phase", "unit", name="finished", exit_code=0, duration_s=1.0))
        done(stores, cell)
    stores.runs.finish("run-2", Outcome.PASSED, at=after(60))
    policy = judging(*names)
    first = frozen(context, "run-2", policy=policy).cells[0]
    assert first.platform == "p0"
    assert [(one.nodeid, one.run) for job in first.jobs for one in job.failed_before] == found


def test_what_failed_on_the_same_machine_in_the_same_run_is_told(context, stores) -> None:
    """By a platform that the policy does not name."""
    for cell, test in zip(
        launched(stores, "run-1", names=["p0", "q0"]), (passes, fails), strict=True
    ):
        agent = at_work(stores, cell, "run-1")
        agent.send(environment(python="3.11")(agent))
        agent.send(agent.line("phase", "unit", name="started"), test("a")(agent))
        code = int(test is fails)
        agent.send(agent.line("phase", "unit", name="finished", exit_code=code, duration_s=1.0))
        done(stores, cell, Outcome.FAILED if code else Outcome.PASSED)
    stores.runs.finish("run-1", Outcome.FAILED, at=after(60))
    first = frozen(context, "run-1", policy=judging("p0")).cells[0]
    assert [(one.nodeid, one.run) for job in first.jobs for one in job.failed_before] == [
        ("a", "run-1")
    ]


def test_tests_of_a_platform_that_has_another_name_are_missed(context, stores) -> None:
    ran(stores, "run-1", passes("t.py::a"), passes("t.py::b"), names=["q0"])
    stores.gates.put_policy(stored(judging("q0")))
    stores.gates.add_verdict(passed("run-1"))
    ran(stores, "run-2", passes("t.py::a"))
    (unit, *_) = only_cell(context, "run-2").jobs
    assert unit.changes.removed == ("t.py::b",)


def test_what_failed_of_another_subject_is_no_flake(context, stores) -> None:
    ran(stores, "run-1", fails("a"), outcome=Outcome.FAILED)
    ran(stores, "run-3", passes("a"), digest="f" * 64)
    assert failed_first(context, "run-1", "run-3") == []
    assert failed_first(context, "run-3") == []


def test_what_the_suite_itself_ran_again_failed_first(context, stores) -> None:
    """As pytest-rerunfailures does: nobody would see it in the counts."""
    ran(stores, "run-1", lambda agent: agent.line("test", "unit", record="rerun", nodeid="t.py::a"),
        passes("t.py::a"), passes("t.py::b"))  # fmt: skip
    assert failed_first(context, "run-1") == [("t.py::a", "run-1")]


def test_what_failed_with_another_payload_is_told_whether_it_passes_now_or_not(
    context, stores
) -> None:
    """The same wheel: a file that could not be collected passes by its tests."""
    lines = (fails("t.py::a"), fails("t.py::b"), fails("t.py::c"), fails("broken.py"), broken)
    ran(stores, "run-1", *lines, outcome=Outcome.FAILED)
    now = (passes("t.py::a"), skips("t.py::b", "later"), passes("broken.py::d"))
    rerun(stores, "run-2", "run-1", *now, payload="c" * 64)
    for runs in (("run-2",), ("run-1", "run-2")):
        cell = only_cell(context, *runs)
        (unit,) = cell.jobs
        gone, passed = (
            [(one.nodeid, one.run, one.payload[:1]) for one in told]
            for told in (unit.failed_before, unit.passed_after)
        )
        assert gone == [("t.py::b", "run-1", "d"), ("t.py::c", "run-1", "d")]
        assert passed == [("broken.py", "run-1", "d"), ("t.py::a", "run-1", "d")]
        assert cell.jobs_failed == {"demo": "run-1"}


@pytest.mark.parametrize(("digest", "is_by_version"), [("e" * 64, False), (None, True)])
def test_a_run_without_a_wheel_is_of_the_same_subject_by_its_version_alone(
    context, stores, digest, is_by_version
) -> None:
    ran(stores, "run-1", fails("a"), outcome=Outcome.FAILED, digest=digest)
    ran(stores, "run-2", passes("a"), payload="c" * 64)
    (unit, *_) = only_cell(context, "run-2").jobs
    assert [(one.run, one.is_by_version) for one in unit.passed_after] == [("run-1", is_by_version)]


def test_a_payload_that_is_the_subject_is_another_subject_when_it_changes(context, stores) -> None:
    ran(stores, "run-1", fails("a"), outcome=Outcome.FAILED, digest=None)
    rerun(stores, "run-2", "run-1", passes("a"), payload="c" * 64)
    (job,) = only_cell(context, "run-2").jobs
    assert (job.failed_before, job.passed_after) == ((), ())


def test_a_cell_says_what_other_subjects_it_stands_in_the_place_of(context, stores) -> None:
    ran(stores, "run-1", fails("a"), outcome=Outcome.FAILED)
    ran(stores, "run-2", fails("a"), outcome=Outcome.FAILED)
    ran(stores, "run-3", passes("a"), digest="f" * 64)
    others = only_cell(context, "run-1", "run-2", "run-3").stands_for
    assert [one["wheel_sha256"] for one in others] == ["e" * 64]
    assert only_cell(context, "run-1", "run-2").stands_for == ()


# Tests by name


def renamed(old, new):
    return Alias(
        id=0, product="proof", job=new.job, old_test=old.id, old=old.nodeid, new_test=new.id,
        new=new.nodeid, change=NameChange.RENAMED, similarity=0.9, state=AliasState.SUGGESTED,
        suggested_at=NOW,
    )  # fmt: skip


def changes(context, *runs):
    """Of each job that has some: the runs compared with, removed, renamed and added tests."""
    (cell,) = frozen(context, *runs).cells
    told = {job.id: job.changes for job in cell.jobs if job.changes is not None}
    return {
        name: (one.runs, one.removed, dict(one.renamed), one.added_names)
        for name, one in told.items()
    }


def test_removed_and_added_tests_are_told_by_name(context, stores) -> None:
    ran(stores, "run-1", *map(passes, ("t.py::a[x-1]", "t.py::b")), skips("t_gpu.py", "no GPU"))
    assert changes(context, "run-1") == {"unit": ((), (), {}, ())}
    ran(stores, "run-2", *map(passes, ("t.py::a[1-x]", "t.py::x", "t.py::y")))
    assert changes(context, "run-2") == {
        "unit": (("run-1",), ("t.py::b",), {}, ("t.py::x", "t.py::y"))
    }


def test_a_removed_test_has_the_name_that_the_baseline_had(context, stores) -> None:
    ran(stores, "run-1", *map(passes, ("t.py::a[1-2]", "t.py::a[2-1]", "t.py::b[11-10]")))
    ran(stores, "run-2", *map(passes, ("t.py::a[1-2]", "t.py::c[y-x]", "t.py::c[x-y]")))
    assert changes(context, "run-2") == {
        "unit": (
            ("run-1",),
            ("t.py::a[2-1]", "t.py::b[11-10]"),
            {},
            ("t.py::c[x-y]", "t.py::c[y-x]"),
        )
    }


def test_a_test_that_a_person_knows_under_another_name_is_renamed(context, stores) -> None:
    ran(stores, "run-1", passes("t.py::old"))
    ran(stores, "run-2", passes("t.py::new"))
    old, new = (stores.tests.of_run(run)[0] for run in ("run-1", "run-2"))
    stores.aliases.suggest([renamed(old, new)])
    (known,) = stores.aliases.list(product="proof")
    for state, told in (
        (AliasState.SUGGESTED, (("run-1",), ("t.py::old",), {}, ("t.py::new",))),
        (AliasState.REJECTED, (("run-1",), ("t.py::old",), {}, ("t.py::new",))),
        (AliasState.CONFIRMED, (("run-1",), (), {"t.py::old": "t.py::new"}, ())),
    ):
        if state is not AliasState.SUGGESTED:
            stores.aliases.decide(known.id, state, at=NOW, by="ann")
        assert changes(context, "run-2") == {"unit": told}


def test_a_green_run_that_no_gate_passed_gives_nothing_up(context, stores) -> None:
    """Launched twice, the second run's own last green one has lost the test already."""
    ran(stores, "run-1", passes("t.py::a"), passes("t.py::b"))
    stores.gates.put_policy(STORED_POLICY)
    stores.gates.add_verdict(passed("run-1"))
    for number in (2, 3):
        ran(stores, f"run-{number}", passes("t.py::a"))
        assert changes(context, f"run-{number}")["unit"][1] == ("t.py::b",)
    stores.gates.add_verdict(passed("run-2"))
    assert changes(context, "run-3")["unit"] == (("run-2",), (), {}, ())


def test_a_job_that_the_baseline_had_is_gone_with_its_tests(context, stores) -> None:
    ran(stores, "run-1", passes("t.py::a"))
    rerun(stores, "run-2", "run-1", only=("demo",))
    assert only_cell(context, "run-2").jobs_gone == {"unit": ("t.py::a",)}
    assert only_cell(context, "run-1", "run-2").jobs_gone == {}
    ran(stores, "run-3")
    assert changes(context, "run-3") == {"unit": (("run-1",), ("t.py::a",), {}, ())}


def says(kind, **data):
    return lambda agent: agent.line(kind, "demo", **data)


def check(name, outcome="passed", **more):
    return says("check", check=name, outcome=outcome, **more)


def metric(name):
    return says("metric", metric=name, samples=[1.0], unit="ms", direction="lower")


def demo(*lines):
    end = says("phase", name="finished", exit_code=0, duration_s=1.0)
    return (says("phase", name="started"), *lines, end)


def test_checks_and_metrics_that_a_command_no_longer_reports_are_removed(context, stores) -> None:
    slow = check("slow", "skipped")
    ran(stores, "run-1", *demo(check("fp16"), check("fp32"), slow, metric("latency")))
    ran(stores, "run-2", *demo(check("fp32"), slow, check("bf16")))
    found = only_cell(context, "run-2").jobs[1].changes
    assert found is not None
    assert found.removed == ("check fp16", "metric latency")
    assert found.added_names == ("check bf16",)
    assert only_cell(context, "run-1").jobs[1].changes is None


def test_a_command_that_the_baseline_had_is_gone_though_it_reported_nothing(
    context, stores
) -> None:
    ran(stores, "run-1", passes("t.py::a"), *demo())
    rerun(stores, "run-2", "run-1", passes("t.py::a"), only=("unit",), payload="e" * 64)
    assert only_cell(context, "run-2").jobs_gone == {"demo": ("exit code",)}


def test_a_check_that_passed_on_the_baseline_and_is_skipped_is_newly_skipped(
    context, stores
) -> None:
    ran(stores, "run-1", *demo(check("fp16"), check("slow", "skipped", reason="no time")))
    ran(stores, "run-2", *demo(check("fp16", "skipped", reason="no GPU"), check("slow", "skipped")))
    assert only_cell(context, "run-2").jobs[1].newly_skipped == {"no GPU": ("check fp16",)}


def too_slow(*runs):
    found = RuleResult(
        id="performance/bench/time@p0", kind="performance", blocking=True,
        outcome=RuleOutcome.VIOLATED, sentence="30 % slower.", inputs={},
    )  # fmt: skip
    stored = passed(*runs)
    verdict = replace(stored.verdict, decision=Decision.FAIL, rules=(found,))
    return replace(stored, verdict=verdict)


def test_what_the_gate_found_too_slow_in_another_run_of_the_payload_is_told(
    context, stores
) -> None:
    ran(stores, "run-1", passes("a"))
    ran(stores, "run-2", passes("a"))
    ran(stores, "run-3", passes("a"), payload="e" * 64, digest="f" * 64)
    stores.gates.put_policy(STORED_POLICY)
    found = stores.gates.add_verdict(too_slow("run-1"))
    told = frozen(context, "run-2").violated_before
    assert [(one.rule, one.verdict, one.runs, one.sentence) for one in told] == [
        ("performance/bench/time@p0", found.id, ("run-1",), "30 % slower.")
    ]
    for runs in (("run-1",), ("run-1", "run-2"), ("run-3",)):
        assert frozen(context, *runs).violated_before == ()
