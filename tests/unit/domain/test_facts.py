from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.domain.collected_tests import Deselection, Hook, SkippedPath, TestSet
from orchestrator.domain.event_facts import AgentEnd, CheckFact, Facts, JobFact, TestFact, fold
from orchestrator.domain.evidence import Event
from orchestrator.domain.failure_signature import signature_of
from orchestrator.domain.outcome import TestOutcome

SKIPPED = ["t.py", 3, "Skipped: no device"]


def event(seq: int, kind: str, data: dict[str, Any], job: str | None = "j") -> Event:
    return Event(seq, float(seq), kind, job, data)


def report(when: str, outcome: str, **more: object) -> dict[str, Any]:
    told = {"record": "report", "nodeid": "t", "when": when, "outcome": outcome, "duration": 1.0}
    return {**told, **more}


def phases(*reports: dict[str, Any]) -> TestFact:
    return fold(event(n, "test", r) for n, r in enumerate(reports, 1)).tests["j", "t"]


GOOD = [report(when, "passed") for when in ("setup", "call", "teardown")]

OUTCOMES = [
    (GOOD, TestOutcome.PASSED, ""),
    ([report("setup", "skipped", longrepr=SKIPPED), GOOD[2]], TestOutcome.SKIPPED, "no device"),
    ([GOOD[0], report("call", "failed", longrepr="E\nx"), GOOD[2]], TestOutcome.FAILED, ""),
    ([report("setup", "failed", longrepr="E"), GOOD[2]], TestOutcome.ERROR, "setup"),
    ([*GOOD[:2], report("teardown", "failed", longrepr="E")], TestOutcome.ERROR, "teardown"),
    ([GOOD[0], report("call", "failed"), report("teardown", "failed")], TestOutcome.FAILED, ""),
    ([GOOD[0], report("call", "skipped", wasxfail="bug 1"), GOOD[2]], TestOutcome.XFAILED, "bug 1"),
    ([GOOD[0], report("call", "skipped", subtest="s"), *GOOD[1:]], TestOutcome.PASSED, ""),
    ([GOOD[0], report("call", "failed", subtest="s"), *GOOD[1:]], TestOutcome.FAILED, ""),
    ([GOOD[0], report("call", "passed", wasxfail="bug 1"), GOOD[2]], TestOutcome.XPASSED, "bug 1"),
    (
        [
            GOOD[0],
            report("call", "failed", longrepr="[XPASS(strict)] b", strict_xpass=True),
            GOOD[2],
        ],
        TestOutcome.FAILED, "",
    ),
    ([GOOD[0], report("call", "failed", cause="crashed", signal=11)], TestOutcome.ERROR, "crashed"),
    ([GOOD[0], report("call", "failed", cause="hung")], TestOutcome.ERROR, "hung"),
]  # fmt: skip


@pytest.mark.parametrize(("reports", "outcome", "reason"), OUTCOMES)
def test_a_test_has_the_worst_of_its_phases(
    reports: list[dict[str, Any]], outcome: TestOutcome, reason: str
) -> None:
    fact = phases(*reports)
    assert (fact.outcome, fact.reason, fact.final) == (outcome, reason, True)
    assert fact.duration_s == pytest.approx(sum(r["duration"] for r in reports))


def test_a_test_without_its_teardown_is_not_final() -> None:
    assert not phases(*GOOD[:2]).final
    started = fold([event(1, "test", {"record": "start", "nodeid": "t"})])
    assert started.tests["j", "t"].outcome is TestOutcome.MISSING
    assert started.jobs["j"].current == "t"


def test_a_file_that_cannot_be_collected_is_an_error_with_its_last_line() -> None:
    told = {"record": "collect_error", "nodeid": "t", "longrepr": "Trace\nImportError: x\n"}
    fact = phases(told)
    assert (fact.outcome, fact.reason, fact.message) == (
        TestOutcome.ERROR,
        "collection",
        "ImportError: x",
    )


def test_a_skip_says_its_reason_once_without_the_place() -> None:
    fact = phases(report("setup", "skipped", longrepr=SKIPPED), GOOD[2])
    assert (fact.reason, fact.message) == ("no device", "")


def test_a_module_that_skipped_itself_is_one_skipped_test_with_its_reason() -> None:
    fact = phases({"record": "collect_skip", "nodeid": "t", "longrepr": "Skipped: no device"})
    assert (fact.outcome, fact.final, fact.reason) == (TestOutcome.SKIPPED, True, "no device")


def test_the_test_set_is_that_of_the_last_process() -> None:
    said = {"record": "test_set", "nodeid": "", "digest": "ab", "collected": 1, "hidden": ["b.py"]}
    rows = [{"by": "conftest.py", "count": 300, "tests": ["t"], "asked": False}, "nonsense"]
    said |= {
        "deselected": rows,
        "hooks": [["h", "c.py"]],
        "modules": [["t.py", "Skipped: no"], ["?"]],
        "ignored": None,
    }
    events = [event(1, "test", {**said, "digest": "first"}), event(2, "test", said)]
    facts = fold(events)
    assert facts.tests == {}
    assert facts.jobs["j"].test_set == TestSet(
        digest="ab",
        collected=1,
        deselected=(Deselection(by="conftest.py", count=300, tests=("t",)),),
        modules=(SkippedPath(path="t.py", why="no"),),
        hidden=("b.py",),
        hooks=(Hook(name="h", file="c.py"),),
    )


def test_the_message_is_the_crash_line_and_the_text_is_whole() -> None:
    crash = {"path": "t.py", "lineno": 3, "message": "assert 1 == 2\nmore"}
    fact = phases(report("call", "failed", longrepr="long\ntext", crash=crash))
    assert (fact.message, fact.text) == ("assert 1 == 2", "long\ntext")


def test_a_lost_test_has_what_it_had_printed_below_what_ended_it() -> None:
    said = report("call", "failed", cause="hung", longrepr="nothing heard for 3 s\nstacks")
    fact = phases({**said, "sections": [["Captured stdout", "before the hang\n"]]})
    assert fact.message == "nothing heard for 3 s"
    head, stacks, title, printed = fact.text.splitlines()
    assert (head, stacks, printed) == ("nothing heard for 3 s", "stacks", "before the hang")
    assert title.strip("-") == " Captured stdout "


REPORTS = st.builds(
    lambda job, nodeid, when, outcome, extra: event(
        1, "test", {**report(when, outcome), "nodeid": nodeid, **extra}, job
    ),
    st.sampled_from(["j", "k"]),
    st.sampled_from(["t", "u"]),
    st.sampled_from(["setup", "call", "teardown"]),
    st.sampled_from(["passed", "failed", "skipped"]),
    st.sampled_from([{}, {"wasxfail": "r"}, {"cause": "hung"}, {"longrepr": "a\nb"}]),
)
OTHERS = st.sampled_from(
    [
        event(1, "manifest", {"tests": ["t", "u", "v"], "process": 1}),
        event(1, "test", {"record": "start", "nodeid": "u"}),
        event(1, "phase", {"name": "started"}),
        event(1, "phase", {"name": "finished", "exit_code": 1, "duration_s": 2.0}),
        event(1, "check", {"check": "c", "outcome": "failed", "value": 1}),
        event(1, "check", {"degraded": "slow"}),
    ]
)


def merged(batches: list[list[Event]]) -> Facts:
    """What a store does with the facts of one batch after the other."""
    total = Facts()
    for facts in map(fold, batches):
        for key, test in facts.tests.items():
            total.tests[key] = total.tests[key].plus(test) if key in total.tests else test
        for name, job in facts.jobs.items():
            total.jobs[name] = total.jobs[name].plus(job) if name in total.jobs else job
        total.checks |= facts.checks
        total.metrics += facts.metrics
    return total


@given(st.lists(REPORTS | OTHERS, max_size=12), st.lists(st.integers(0, 12), max_size=4))
def test_facts_do_not_depend_on_how_the_events_were_batched(
    events: list[Event], cuts: list[int]
) -> None:
    places = sorted({0, len(events), *(cut for cut in cuts if cut < len(events))})
    batches = [events[a:b] for a, b in pairwise(places)]
    assert merged(batches) == merged([events])


FACTS = st.builds(
    TestFact,
    st.just("j"),
    st.just("t"),
    st.sampled_from(list(TestOutcome)),
    st.booleans(),
    st.integers(0, 9).map(float),
    st.text(max_size=2),
    st.text(max_size=2),
    st.text(max_size=2),
)


@given(FACTS, FACTS, FACTS)
def test_adding_facts_is_associative(a: TestFact, b: TestFact, c: TestFact) -> None:
    assert a.plus(b).plus(c) == a.plus(b.plus(c))


def test_a_later_job_fact_adds_what_it_knows() -> None:
    first = JobFact("j", started_ts=1.0, current="t")
    later = JobFact("j", finished_ts=2.0, current="", exit_code=0)
    assert first.plus(later) == JobFact(
        "j", started_ts=1.0, finished_ts=2.0, current="", exit_code=0
    )


def test_what_a_job_says_of_itself() -> None:
    told = {"metric": "m", "samples": [1, 2.5, None, "x", True], "unit": "s", "direction": "lower"}
    facts = fold(
        [
            event(1, "check", {"check": "c", "outcome": "passed", "value": 0.5, "unit": "ms"}),
            event(2, "check", {"degraded": "no fp8"}),
            event(3, "metric", {**told, "params": {"n": 1}}),
            event(4, "log", {"level": "warning", "message": "cut"}, None),
            event(5, "environment", {"torch": "2.13"}, None),
            event(6, "heartbeat", {}, None),
            event(7, "end", {"outcome": "completed"}, None),
        ]
    )
    assert facts.checks["j", "c"] == CheckFact("j", "c", "passed", "0.5", "ms")
    assert facts.jobs["j"].degraded == "no fp8"
    assert facts.metrics[0].samples == (1.0, 2.5)
    assert facts.notices[0].message == "cut"
    assert (facts.environment, facts.end) == ({"torch": "2.13"}, AgentEnd("completed"))
    assert (facts.last_seq, facts.last_ts) == (7, 7.0)


@pytest.mark.parametrize(
    ("said", "stands"),
    [
        (("failed", "passed"), "failed"),
        (("passed", "skipped"), "skipped"),
        (("skipped", "failed", "skipped"), "failed"),
        (("PASSED!", "passed"), "PASSED!"),
    ],
)
def test_of_two_outcomes_of_one_check_the_worse_stands(said: tuple[str, ...], stands: str) -> None:
    facts = fold(event(n, "check", {"check": "c", "outcome": o}) for n, o in enumerate(said, 1))
    assert facts.checks["j", "c"].outcome == stands


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda deeper: st.lists(deeper, max_size=3) | st.dictionaries(st.text(), deeper, max_size=3),
    max_leaves=6,
)
KEYS = ["record", "nodeid", "when", "outcome", "longrepr", "tests", "name", "check", "metric"]
KEYS += ["samples", "params", "duration", "cause", "crash", "exit_code", "wasxfail", "degraded"]


@given(
    st.sampled_from(["test", "phase", "manifest", "check", "metric", "log", "environment", "end"]),
    st.dictionaries(st.sampled_from(KEYS), ANYTHING),
    st.sampled_from(["start", "report", "collect_error", None]),
)
def test_no_data_of_a_machine_breaks_the_reader(
    kind: str, data: dict[str, Any], record: str | None
) -> None:
    facts = fold([event(1, kind, {**data, "record": record} if record else data)])
    assert all(isinstance(fact.text, str) for fact in facts.tests.values())
    assert all(math.isfinite(n) for metric in facts.metrics for n in metric.samples)


@given(ANYTHING)
def test_no_phase_of_a_machine_breaks_the_reader(value: object) -> None:
    keys = ("exit_code", "signal", "duration_s", "restarts", "cause", "detail")
    told = {"name": "finished", **dict.fromkeys(keys, value)}
    job = fold([event(1, "phase", told)]).jobs["j"]
    assert job.exit_code is None or abs(job.exit_code) < 2**31


def test_phases_of_the_attempt_are_no_job() -> None:
    assert not fold([event(1, "phase", {"name": "running"}, None)]).jobs


def test_earlier_tries_are_remembered_and_only_the_last_one_counts() -> None:
    fact = phases({"record": "rerun", "nodeid": "t"}, {"record": "rerun", "nodeid": "t"}, *GOOD)
    assert fact.earlier == (TestOutcome.FAILED, TestOutcome.FAILED)
    assert (fact.outcome, fact.final) == (TestOutcome.PASSED, True)


@pytest.mark.parametrize(
    ("said", "earlier"),
    [
        (["failed", "error"], (TestOutcome.FAILED, TestOutcome.ERROR)),
        (["FAILED", "nonsense", 3, None], (TestOutcome.FAILED,)),
        ("failed", ()),
        (None, ()),
        (["failed"] * 1_000, (TestOutcome.FAILED,) * 100),
    ],
)
def test_an_artifact_may_tell_of_earlier_tries(
    said: object, earlier: tuple[TestOutcome, ...]
) -> None:
    told = {"record": "outcome", "nodeid": "t", "outcome": "passed", "earlier": said}
    assert phases(told).earlier == earlier


def test_a_heartbeat_tells_since_when_a_job_is_silent() -> None:
    quiet = event(100, "heartbeat", {"job": "j", "silent_s": 40.0, "idle_timeout_s": 180}, job=None)
    heard = event(105, "heartbeat", {"job": "j", "silent_s": 0.0}, job=None)
    usual = event(110, "heartbeat", {"job": "j", "test": "t"}, job=None)
    assert fold([quiet]).jobs["j"] == JobFact("j", idle_since_ts=60.0, idle_timeout_s=180.0)
    assert fold([quiet, heard]).jobs["j"].idle_since_ts == 0.0
    assert fold([usual]).jobs == {}


def test_what_a_failing_test_printed_stands_below_its_traceback_and_is_none_of_it() -> None:
    said = [["Captured stdout call", "E   OtherError: printed\n"], ["Captured log call", " "]]
    plain = phases(report("call", "failed", longrepr="E   ValueError: no"))
    fact = phases(report("call", "failed", longrepr="E   ValueError: no", sections=said))
    head = " Captured stdout call ".center(80, "-")
    assert fact.text == f"E   ValueError: no\n{head}\nE   OtherError: printed"
    assert signature_of(fact) == signature_of(plain)
    assert phases(report("call", "passed", sections=said)).text == ""
