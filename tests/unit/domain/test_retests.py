"""Which retest comes next."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from orchestrator.domain.retests import (
    AMONG,
    BACK,
    SURE,
    Options,
    RetestKind,
    RetestOptions,
    RetestPlan,
    RetestSession,
    RetestSessionState,
    by_job,
    job_in_session,
    next_retest,
    reruns_of,
    retests_of,
    split_key,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
DIAGNOSE = RetestOptions(diagnose=True)
BOTH = Options(baseline="widget 1.0", last_green="the packages of run r (dep 1.0)")
A, B = "suite::a.py::test_a", "suite::a.py::test_b"

Tell = Callable[[RetestPlan, str, int], str]


def lived(
    order: RetestOptions, keys: tuple[str, ...], options: Options, tell: Tell
) -> list[RetestSession]:
    """Ask and answer until nothing is asked for."""
    retest_sessions: list[RetestSession] = []
    while (ask := next_retest(order, keys, retest_sessions, options)) is not None:
        assert len(retest_sessions) < 10, "it comes to an end"
        asked = keys if ask.whole else [k for k in keys if k in _keys(ask)]
        outcomes = tuple({k: tell(ask, k, n) for k in asked} for n in range(ask.times))
        retest_sessions.append(retest_session(ask, len(retest_sessions) + 1, outcomes))
    return retest_sessions


def _keys(ask: RetestPlan) -> list[str]:
    return [f"{job}::{nodeid}" for job, nodeids in ask.tests.items() for nodeid in nodeids or [""]]


def retest_session(
    ask: RetestPlan, number: int, outcomes: tuple[Mapping[str, str], ...] = ()
) -> RetestSession:
    return RetestSession(
        id=f"a-t{number}",
        attempt_id="a",
        number=number,
        ask=ask,
        asked_at=NOW,
        state=RetestSessionState.ENDED,
        outcomes=outcomes,
    )


def kinds(retest_sessions: list[RetestSession]) -> list[tuple[str, int]]:
    return [(s.ask.kind.value, s.ask.times) for s in retest_sessions]


def test_nothing_is_asked_where_nothing_is_wanted_or_failed():
    assert next_retest(RetestOptions(), (A,), (), BOTH) is None
    assert next_retest(DIAGNOSE, (), (), BOTH) is None


def test_reruns_alone():
    found = lived(RetestOptions(reruns=2), (A, B), BOTH, lambda *_: "failed")
    assert kinds(found) == [("rerun", 2)]
    assert found[0].ask.tests == {"suite": ("a.py::test_a", "a.py::test_b")}
    assert reruns_of(retests_of(found), "suite", "a.py::test_a") == ("failed", "failed")


def test_no_more_tests_than_the_order_says():
    ask = next_retest(RetestOptions(reruns=1, max_tests=1), (A, B), (), Options())
    assert ask is not None
    assert ask.tests == {"suite": ("a.py::test_a",)}


def test_tests_that_were_named_are_run_as_often_as_it_takes_to_be_sure():
    found = lived(RetestOptions(tests=(A,)), (A,), Options(), lambda *_: "passed")
    assert kinds(found) == [("rerun", SURE)]


def test_a_subject_that_broke_it_is_proved_there_and_back():
    def tell(ask: RetestPlan, key: str, time: int) -> str:
        return "passed" if ask.kind is RetestKind.BASELINE else "failed"

    found = lived(DIAGNOSE, (A,), BOTH, tell)
    assert kinds(found) == [("rerun", SURE), ("baseline", SURE), ("rerun", BACK)]


def test_what_the_baseline_does_not_cure_is_tried_with_the_last_green_packages():
    def tell(ask: RetestPlan, key: str, time: int) -> str:
        return "passed" if ask.kind is RetestKind.LAST_GREEN else "failed"

    found = lived(DIAGNOSE, (A,), BOTH, tell)
    wanted = [("rerun", SURE), ("baseline", SURE), ("last_green", SURE), ("rerun", BACK)]
    assert kinds(found) == wanted
    assert found[2].ask.changed == BOTH.last_green


def test_each_test_goes_its_own_way():
    def tell(ask: RetestPlan, key: str, time: int) -> str:
        cured = {A: RetestKind.BASELINE, B: RetestKind.LAST_GREEN}[key]
        return "passed" if ask.kind is cured else "failed"

    found = lived(DIAGNOSE, (A, B), BOTH, tell)
    asked = [(s.ask.kind.value, s.ask.tests["suite"]) for s in found]
    assert asked == [
        ("rerun", ("a.py::test_a", "a.py::test_b")),
        ("baseline", ("a.py::test_a", "a.py::test_b")),
        ("rerun", ("a.py::test_a",)),
        ("last_green", ("a.py::test_b",)),
        ("rerun", ("a.py::test_b",)),
    ]


def test_a_test_that_passes_by_itself_is_tried_in_its_whole_job():
    found = lived(DIAGNOSE, (A,), BOTH, lambda *_: "passed")
    assert kinds(found) == [("rerun", SURE), ("rerun", AMONG)]
    assert found[1].ask.whole
    assert found[1].ask.tests == {"suite": ()}


def test_a_flaky_one_ends_the_search():
    found = lived(DIAGNOSE, (A,), BOTH, lambda ask, key, n: ("failed", "passed")[n % 2])
    assert kinds(found) == [("rerun", SURE)]


def test_one_that_is_torn_with_the_baseline_is_looked_at_longer():
    def tell(ask: RetestPlan, key: str, time: int) -> str:
        return ("failed", "passed")[time % 2] if ask.kind is RetestKind.BASELINE else "failed"

    found = lived(DIAGNOSE, (A,), BOTH, tell)
    assert kinds(found) == [("rerun", SURE), ("baseline", SURE), ("rerun", SURE)]


def test_a_change_that_could_not_be_made_is_passed_over():
    first = retest_session(
        RetestPlan(kind=RetestKind.RERUN, tests=by_job([A]), times=4), 1, ({A: "failed"},) * 4
    )
    refused = retest_session(RetestPlan(kind=RetestKind.BASELINE, tests=by_job([A]), times=4), 2)
    ask = next_retest(DIAGNOSE, (A,), (first, refused), BOTH)
    assert ask is not None
    assert ask.kind is RetestKind.LAST_GREEN


def test_names_of_jobs_in_a_session():
    assert job_in_session("a~b", 3) == "a~b~3"
    assert split_key("job::") == ("job", "")
    assert by_job(["job::", "s::x.py::t[a::b]"]) == {"job": (), "s": ("x.py::t[a::b]",)}
