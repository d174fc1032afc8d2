"""Progress as lines."""

from __future__ import annotations

from datetime import timedelta

import pytest

from orchestrator.cli.commands.run import exit_code
from orchestrator.cli.failure_logs import BadTest
from orchestrator.cli.watching.live_display import PULSE_S, PlainTeller
from orchestrator.client.transport import read
from orchestrator.domain.run_record import RunResponse, TestResponse
from tests.unit.cli import runs


def tell(teller: PlainTeller, shown: runs.Json, seconds: float) -> list[str]:
    return teller.tell(read(RunResponse, shown), runs.LAUNCHED + timedelta(seconds=seconds))


def one(state: str, *jobs: runs.Json, **given: object) -> runs.Json:
    return runs.run(runs.cell("local-cpu", state, jobs=list(jobs), **given))


def test_a_line_for_every_change_and_none_without() -> None:
    teller = PlainTeller()
    going = runs.going("moe", started_at=runs.at(3))
    over = runs.job(
        "moe",
        outcome="failed",
        detail="1 failed",
        counts=runs.counts(passed=47, failed=1),
        duration_s=72,
    )
    assert tell(teller, one("queued", runs.job("moe")), 0) == ["      0s  local-cpu: queued"]
    assert tell(teller, one("running", runs.job("moe")), 2) == ["      2s  local-cpu: running"]
    assert tell(teller, one("running", going), 3) == ["      3s  local-cpu moe: started"]
    assert tell(teller, one("running", going), 9) == []
    assert tell(teller, one("running", over), 75) == [
        "  1m 15s  local-cpu moe: failed in 1m 12s (47 passed, 1 failed): 1 failed"
    ]
    done = one("done", over, outcome="failed", reason="tests", detail="moe: 1 failed")
    finished = done | {"state": "finished", "outcome": "failed"}
    assert tell(teller, finished, 80) == [
        "  1m 20s  local-cpu: failed: moe: 1 failed (47 passed, 1 failed)",
        "  1m 20s  run: failed (47 passed, 1 failed)",
    ]
    assert tell(teller, finished, 90) == []


def test_a_failing_test_is_told_between_the_start_and_the_end_of_its_job() -> None:
    """A job that starts, fails and ends between two looks; and a run that was over before."""
    counts = runs.counts(passed=1, failed=1)
    over = runs.job("moe", outcome="failed", counts=counts, started_at=runs.at(3), duration_s=2)
    test = {"job": "moe", "nodeid": "t.py::a", "outcome": "failed", "message": "assert 1"}
    bad = (BadTest("local-cpu", read(TestResponse, test)),)
    going = one("running", runs.going("moe", started_at=runs.at(3)))
    ended = one("done", over, outcome="failed") | {"state": "finished", "outcome": "failed"}
    start, line = "local-cpu moe: started", "local-cpu moe: failed t.py::a: assert 1"
    for shown, before in ((going, None), (ended, None), (ended, one("queued", runs.job("moe")))):
        teller = PlainTeller()
        if before:
            tell(teller, before, 1)
        now = runs.LAUNCHED + timedelta(seconds=9)
        told = [told[10:] for told in teller.tell(read(RunResponse, shown), now, bad)]
        about = [line for line in told if line.startswith("local-cpu moe: ")]
        expected = [start, line] if shown is going else [line, "local-cpu moe: failed in 2.0s"]
        assert [each.partition(" (")[0] for each in about] == expected
    assert teller.tell(read(RunResponse, shown), now) == []


def test_lines_say_that_no_test_passed() -> None:
    teller = PlainTeller()
    skipped = runs.counts(skipped=2)
    over = runs.job("moe", outcome="passed", counts=skipped, duration_s=3)
    done = one("done", over, outcome="passed", counts=skipped)
    told = tell(teller, done | {"state": "finished", "outcome": "passed", "counts": skipped}, 4)
    assert [line.partition("s  ")[2] for line in told] == [
        "local-cpu: passed (no test passed: 2 skipped)",
        "local-cpu moe: passed in 3.0s (no test passed: 2 skipped)",
        "run: passed (no test passed: 2 skipped)",
    ]


@pytest.mark.parametrize(
    ("jobs", "code"),
    [
        ((runs.counts(skipped=2),), 5),
        ((runs.counts(skipped=2), runs.counts(skipped=1, passed=1)), 0),
        ((runs.counts(skipped=2, xfailed=1),), 0),
        ((runs.counts(skipped=2), runs.counts()), 0),
        ((runs.counts(),), 0),
    ],
    ids=["all skipped", "another job passed", "expected failures", "a demo passed", "no tests"],
)
def test_a_run_in_which_every_test_was_skipped_is_no_pass(
    jobs: tuple[dict[str, int], ...], code: int
) -> None:
    told = [
        runs.job(f"j{number}", outcome="passed", counts=counts, duration_s=3)
        for number, counts in enumerate(jobs)
    ]
    shown = one("done", *told, outcome="passed") | {"state": "finished", "outcome": "passed"}
    assert exit_code(read(RunResponse, shown)) == code


def test_lines_say_that_a_run_with_failures_was_cancelled() -> None:
    counts = runs.counts(passed=2, failed=3)
    ending = {"outcome": "cancelled", "reason": "cancelled", "detail": "its run was cancelled"}
    why = {"reason": "tests", "detail": "3 failed"}
    over = runs.job("moe", outcome="failed", counts=counts, duration_s=3, ending=ending, **why)
    done = one("done", over, outcome="failed", counts=counts)
    (cell,) = done["cells"]
    cell.update(why, detail="moe: 3 failed", attempts=[runs.attempt(1) | {"cause": ending}])
    ended = {"state": "finished", "outcome": "failed", "cancel_requested_at": runs.at(2)}
    told = tell(PlainTeller(), done | ended | {"counts": counts}, 4)
    assert [line.partition("s  ")[2] for line in told if "requested" not in line] == [
        "local-cpu: failed: cancelled; moe: 3 failed (2 passed, 3 failed)",
        "local-cpu moe: failed in 3.0s (2 passed, 3 failed): cancelled; 3 failed",
        "run: failed (cancelled; 3 failed)",
    ]


def test_lines_count_the_tests_that_passed_on_retry() -> None:
    teller = PlainTeller()
    counts = runs.counts(passed=21, skipped=1)
    over = runs.job("moe", outcome="passed", counts=counts, duration_s=3, passed_on_retry=1)
    done = one("done", over, outcome="passed", counts=counts)
    told = tell(teller, done | {"state": "finished", "outcome": "passed", "counts": counts}, 4)
    assert [line.partition("s  ")[2] for line in told] == [
        "local-cpu: passed (21 passed, 1 of them flaky, 1 skipped)",
        "local-cpu moe: passed in 3.0s (21 passed, 1 of them flaky, 1 skipped)",
        "run: passed (21 passed, 1 of them flaky, 1 skipped)",
    ]


def test_a_silent_minute_is_broken_by_where_it_is() -> None:
    teller = PlainTeller()
    suite = one("running", runs.going("moe", started_at=runs.at(0)))
    tell(teller, suite, 31)
    assert tell(teller, suite, 31 + PULSE_S - 1) == []
    assert tell(teller, suite, 31 + PULSE_S) == [
        "  1m 31s  local-cpu moe: 31 of 48 tests, ~49s left"
    ]
    assert tell(teller, suite, 31 + PULSE_S + 5) == []


def test_a_pulse_of_a_cell_between_jobs_names_its_state() -> None:
    teller = PlainTeller()
    tell(teller, one("releasing"), 0)
    assert tell(teller, one("releasing"), 60) == ["  1m 00s  local-cpu: still releasing"]


def test_another_attempt_and_a_cancel_are_told_once() -> None:
    teller = PlainTeller()
    tell(teller, one("running"), 0)
    again = one("queued", attempts=[runs.attempt(1), runs.attempt(2)])
    again["cancel_requested_at"] = runs.at(5)
    assert tell(teller, again, 5) == [
        "      5s  run: cancel requested",
        "      5s  local-cpu: attempt 2",
        "      5s  local-cpu: queued",
    ]
    assert tell(teller, again, 6) == []


def test_lines_of_a_run_that_was_over_have_the_times_of_their_events() -> None:
    over = runs.job("moe", outcome="passed", started_at=runs.at(5), duration_s=72)
    late = runs.job("late", outcome="passed", started_at=runs.at(3), duration_s=80)
    done = one("done", over, late, outcome="passed", entered_at=runs.at(85))
    finished = done | {"state": "finished", "outcome": "passed", "finished_at": runs.at(86)}
    lines = tell(PlainTeller(), finished, 5000)
    assert [line.split("  ")[-2].strip() for line in lines] == [
        "1m 17s",
        "1m 23s",
        "1m 25s",
        "1m 26s",
    ]
    assert [line.split("  ")[-1].split(":")[0] for line in lines] == [
        *("local-cpu moe", "local-cpu late", "local-cpu", "run"),
    ]


def test_hostile_names_stay_on_their_line() -> None:
    teller = PlainTeller()
    evil = "x\n\x1b[31m\x07y"
    lines = tell(teller, one("done", outcome="errored", reason="lost", detail=evil), 1)
    assert lines == ["      1s  local-cpu: errored: lost: x↵\N{REPLACEMENT CHARACTER}y"]


def test_a_pulse_of_a_silent_job_says_when_it_is_ended_and_guesses_no_end() -> None:
    teller = PlainTeller()
    going = runs.going("moe", started_at=runs.at(0), current="test_a.py::test_b")
    silent = going | {"idle_since": runs.at(31), "idle_timeout_s": 180.0}
    tell(teller, one("running", silent), 35)
    [line] = tell(teller, one("running", silent), 156)
    assert line == (
        "  2m 36s  local-cpu moe: 31 of 48 tests, silent for 2m 05s, to be ended at 3m, "
        "in test_a.py::test_b"
    )
    [line] = tell(teller, one("running", silent), 221)
    assert "silent for 3m 10s, over its limit of 3m, " in line, "no end that nobody has seen"
