from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from orchestrator.domain.cell import Cause
from orchestrator.domain.collected_tests import TestSet
from orchestrator.domain.derive_outcomes import JobVerdict, judge_cell, judge_job
from orchestrator.domain.event_facts import CheckFact, JobFact
from orchestrator.domain.outcome import Counts, Outcome

LOST = Cause(Outcome.ERRORED, "lost", "the machine is gone")
CANCELLED = Cause(Outcome.CANCELLED, "cancelled", "asked to")
DEADLINE = Cause(Outcome.TIMED_OUT, "deadline")


def ended(**changes: Any) -> JobFact:
    values = {"started_ts": 1.0, "finished_ts": 2.0, "exit_code": 0, "cause": "", "restarts": 0}
    return JobFact("j", **{**values, **changes})


RUNNING = JobFact("j", started_ts=1.0)
OK = Counts(passed=2)
ALL_SKIPPED = Counts(skipped=3)
BAD = Counts(passed=1, failed=1)

SUITES = [
    # what happened, tests, what came from outside -> outcome, reason
    (ended(), OK, None, Outcome.PASSED, ""),
    (ended(), ALL_SKIPPED, None, Outcome.PASSED, ""),
    (ended(), Counts(xfailed=1, xpassed=1), None, Outcome.PASSED, ""),
    (ended(exit_code=1), BAD, None, Outcome.FAILED, "tests"),
    (ended(exit_code=0), BAD, None, Outcome.FAILED, "tests"),
    (ended(exit_code=1), Counts(passed=1, error=1), None, Outcome.FAILED, "tests"),
    (ended(exit_code=5), Counts(), None, Outcome.FAILED, "no_tests"),
    (ended(exit_code=0), Counts(), None, Outcome.FAILED, "no_tests"),
    (ended(exit_code=5), OK, None, Outcome.PASSED, ""),
    (ended(exit_code=5), ALL_SKIPPED, None, Outcome.FAILED, "no_tests"),
    (ended(), Counts(passed=1, missing=1), None, Outcome.FAILED, "missing"),
    (ended(), Counts(passed=1, not_run=1), None, Outcome.FAILED, "missing"),
    (ended(exit_code=2), OK, None, Outcome.FAILED, "interrupted"),
    (ended(exit_code=3), OK, None, Outcome.FAILED, "pytest_internal"),
    (ended(exit_code=4), Counts(), None, Outcome.FAILED, "pytest_usage"),
    (ended(exit_code=1), OK, None, Outcome.FAILED, "exit"),
    (ended(exit_code=None, signal=9), OK, None, Outcome.FAILED, "crashed"),
    (ended(cause="timeout"), OK, None, Outcome.TIMED_OUT, "timeout"),
    (ended(cause="hung"), OK, None, Outcome.FAILED, "hung"),
    (ended(cause="crashed"), OK, None, Outcome.FAILED, "crashed"),
    (ended(cause="start_failed"), Counts(), None, Outcome.FAILED, "start_failed"),
    (ended(cause="wrong_subject"), Counts(passed=3), None, Outcome.ERRORED, "wrong_subject"),
    (ended(cause="wrong_pytest"), Counts(passed=3), None, Outcome.ERRORED, "wrong_pytest"),
    (ended(cause="forged_records"), Counts(passed=3), None, Outcome.ERRORED, "forged_records"),
    (ended(cause="disk_full"), OK, None, Outcome.ERRORED, "disk_full"),
    (ended(cause="disk_full"), BAD, None, Outcome.FAILED, "tests"),
    (ended(cause="stopped"), OK, CANCELLED, Outcome.CANCELLED, "cancelled"),
    (ended(cause="stopped"), BAD, CANCELLED, Outcome.FAILED, "tests"),
    (ended(cause="stopped"), OK, DEADLINE, Outcome.TIMED_OUT, "deadline"),
    (RUNNING, OK, LOST, Outcome.ERRORED, "lost"),
    (RUNNING, BAD, LOST, Outcome.FAILED, "tests"),
    (RUNNING, OK, None, Outcome.ERRORED, "agent"),
    (None, Counts(), CANCELLED, Outcome.NOT_RUN, "cancelled"),
    (None, Counts(), None, Outcome.NOT_RUN, "agent"),
    (JobFact("j", cause="start_failed"), Counts(), None, Outcome.FAILED, "start_failed"),
    (JobFact("j", cause="wrong_hardware"), Counts(), None, Outcome.NOT_RUN, "wrong_hardware"),
    (JobFact("j", cause="config"), Counts(), None, Outcome.NOT_RUN, "config"),
    (JobFact("j", cause="wrong_subject"), Counts(), None, Outcome.NOT_RUN, "wrong_subject"),
    (ended(), OK, LOST, Outcome.PASSED, ""),
]


@pytest.mark.parametrize(("fact", "counts", "cause", "outcome", "reason"), SUITES)
def test_judging_a_suite(
    fact: JobFact | None, counts: Counts, cause: Cause | None, outcome: Outcome, reason: str
) -> None:
    verdict = judge_job("j", kind="suite", fact=fact, counts=counts, checks=[], cause=cause)
    assert (verdict.outcome, verdict.reason) == (outcome, reason)


def test_a_failed_check_fails_a_suite_too() -> None:
    checks = [CheckFact("j", "unusable-events", "failed")]
    verdict = judge_job("j", kind="suite", fact=ended(), counts=OK, checks=checks, cause=None)
    assert (verdict.outcome, verdict.reason) == (Outcome.FAILED, "checks")


CRASHED = ended(exit_code=None, signal=11)
HIDDEN = TestSet(hidden=("t_broken.py",))
ENDINGS = [
    # what happened, tests, what came from outside -> how it ended beside its tests
    (ended(exit_code=1), BAD, None, ""),
    (ended(exit_code=0), BAD, None, ""),
    (ended(exit_code=None), BAD, None, ""),
    (ended(exit_code=2, test_set=HIDDEN), Counts(error=1), None, ""),
    (ended(exit_code=2), BAD, None, "failed interrupted"),
    (ended(exit_code=3), BAD, None, "failed pytest_internal"),
    (ended(exit_code=77), BAD, None, "failed exit"),
    (CRASHED, BAD, None, "failed crashed"),
    (ended(cause="hung"), BAD, None, "failed hung"),
    (ended(cause="timeout"), BAD, None, "timed_out timeout"),
    (ended(cause="forged_records"), BAD, None, "errored forged_records"),
    (ended(cause="disk_full"), BAD, None, "errored disk_full"),
    (ended(cause="stopped"), BAD, DEADLINE, "timed_out deadline"),
    (RUNNING, BAD, LOST, "errored lost"),
    (RUNNING, BAD, None, "errored agent"),
    (ended(), OK, None, ""),
]


@pytest.mark.parametrize(("fact", "counts", "cause", "ending"), ENDINGS)
def test_what_failing_tests_do_not_explain_is_told_beside_them(
    fact: JobFact, counts: Counts, cause: Cause | None, ending: str
) -> None:
    told = judge_job("j", kind="suite", fact=fact, counts=counts, checks=[], cause=cause).ending
    assert (f"{told.outcome} {told.reason}" if told else "") == ending


def test_failed_checks_explain_an_exit_code_and_no_signal() -> None:
    def ending(fact: JobFact) -> Cause | None:
        checks = [FAILED_CHECK]
        return judge_job(
            "j", kind="demo", fact=fact, counts=Counts(), checks=checks, cause=None
        ).ending

    assert ending(ended(exit_code=3)) is None
    assert ending(CRASHED) == Cause(Outcome.FAILED, "crashed", "died of signal 11")


FAILED_CHECK = CheckFact("j", "close", "failed")
PASSED_CHECK = CheckFact("j", "fast", "passed")


def test_the_detail_of_an_ending_says_what_pytest_said() -> None:
    def detail(said: str) -> str:
        fact = ended(exit_code=4, detail=said)
        told = judge_job("j", kind="suite", fact=fact, counts=Counts(), checks=[], cause=None)
        return told.detail

    words = "file or directory not found: tests"
    assert detail(f"exit code 4: {words}") == f"pytest exited with 4: {words}"
    assert detail("exit code 4") == "pytest exited with 4"
    # The detail of a foreign artifact is its own text, without an exit code of pytest.
    assert detail("[INFO] BUILD FAILURE") == "[INFO] BUILD FAILURE"
    assert detail("b says: its sum is 1 failed") == "b says: its sum is 1 failed"


def test_the_detail_of_a_cell_counts_the_other_jobs_that_ended_like_its_first() -> None:
    gate = JobVerdict("gate", Outcome.FAILED, "tests", "1 failed")
    fine, ugly = JobVerdict("fine", Outcome.PASSED), replace(gate, job="ugly", detail="4 failed")
    assert judge_cell([gate, fine], None).detail == "gate: 1 failed"
    assert judge_cell([gate, fine, ugly], None).detail == "gate: 1 failed; and 1 other job"


SKIPPED_CHECK = CheckFact("j", "fp8", "skipped")
COMMANDS = [
    (ended(), [], Outcome.PASSED, ""),
    (ended(), [PASSED_CHECK, SKIPPED_CHECK], Outcome.PASSED, ""),
    (ended(degraded="slow"), [], Outcome.PASSED, ""),
    (ended(), [PASSED_CHECK, FAILED_CHECK], Outcome.FAILED, "checks"),
    (ended(exit_code=3), [], Outcome.FAILED, "exit"),
    (ended(exit_code=3), [FAILED_CHECK], Outcome.FAILED, "checks"),
    (ended(exit_code=None), [], Outcome.FAILED, "exit"),
    (ended(exit_code=None, signal=11), [], Outcome.FAILED, "crashed"),
    (ended(cause="timeout"), [FAILED_CHECK], Outcome.TIMED_OUT, "timeout"),
]


@pytest.mark.parametrize("kind", ["demo", "benchmark", "use-case"])
@pytest.mark.parametrize(("fact", "checks", "outcome", "reason"), COMMANDS)
def test_judging_a_command(
    kind: str, fact: JobFact, checks: list[CheckFact], outcome: Outcome, reason: str
) -> None:
    verdict = judge_job("j", kind=kind, fact=fact, counts=Counts(), checks=checks, cause=None)
    assert (verdict.outcome, verdict.reason) == (outcome, reason)


def said(outcome: Outcome, reason: str = "r") -> JobVerdict:
    return JobVerdict("j", outcome, reason)


@pytest.mark.parametrize(
    ("verdicts", "cause", "outcome", "reason"),
    [
        ([said(Outcome.PASSED), said(Outcome.PASSED)], None, Outcome.PASSED, ""),
        ([said(Outcome.PASSED), said(Outcome.FAILED, "tests")], None, Outcome.FAILED, "tests"),
        ([said(Outcome.TIMED_OUT), said(Outcome.ERRORED)], None, Outcome.TIMED_OUT, "r"),
        ([said(Outcome.NOT_RUN, "x")], None, Outcome.ERRORED, "x"),
        ([said(Outcome.NOT_RUN), said(Outcome.PASSED)], CANCELLED, Outcome.CANCELLED, "cancelled"),
        ([said(Outcome.NOT_RUN), said(Outcome.FAILED)], LOST, Outcome.FAILED, "r"),
        ([said(Outcome.PASSED)], LOST, Outcome.ERRORED, "lost"),
        ([], LOST, Outcome.ERRORED, "lost"),
        ([], None, Outcome.ERRORED, "agent"),
    ],
)
def test_a_cell_takes_the_worst(
    verdicts: list[JobVerdict], cause: Cause | None, outcome: Outcome, reason: str
) -> None:
    judged = judge_cell(verdicts, cause)
    assert (judged.outcome, judged.reason) == (outcome, reason)
