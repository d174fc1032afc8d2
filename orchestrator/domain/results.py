"""Judging: from facts to the outcome of a job, of an attempt and of a cell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from orchestrator.domain.cell import Cause
from orchestrator.domain.facts import CheckFact, JobFact
from orchestrator.domain.outcome import Counts, Outcome, TestOutcome, worst

PYTEST_NO_TESTS = 5
_PYTEST_ENDS = {2: "interrupted", 3: "pytest_internal", 4: "pytest_usage"}


@dataclass(frozen=True, slots=True)
class JobVerdict:
    """How a job went, and why in one word."""

    job: str
    outcome: Outcome
    reason: str = ""
    detail: str = ""


def judge_job(
    job: str,
    *,
    kind: str,
    fact: JobFact | None,
    counts: Counts,
    checks: Sequence[CheckFact],
    cause: Cause | None,
) -> JobVerdict:
    """Judge one job of an attempt that is over.

    Args:
        job: Its id.
        kind: ``suite`` or another kind of the manifest.
        fact: What the agent said of it; None where it never started.
        counts: Its tests, with those that were never reported as missing.
        checks: What it said of itself.
        cause: What stopped the attempt from outside, if anything did.
    """
    if fact is None or fact.started_ts is None:
        if fact is not None and fact.cause == "start_failed":
            return JobVerdict(job, Outcome.NOT_RUN, "wrong_hardware", fact.detail or "")
        return JobVerdict(job, Outcome.NOT_RUN, cause.reason if cause else "agent")
    if fact.finished_ts is None or fact.cause == "stopped":
        return _interrupted(job, counts, cause)
    for judge in (_judge_cause, _judge_suite if kind == "suite" else _judge_command):
        verdict = judge(job, fact, counts, checks)
        if verdict is not None:
            return verdict
    return JobVerdict(job, Outcome.PASSED)


def _interrupted(job: str, counts: Counts, cause: Cause | None) -> JobVerdict:
    if counts.failed or counts.error:
        return JobVerdict(job, Outcome.FAILED, "tests", _tests_detail(counts))
    if cause is None:
        return JobVerdict(job, Outcome.ERRORED, "agent", "the job's end was never reported")
    return JobVerdict(job, cause.outcome, cause.reason, cause.detail)


def _judge_cause(
    job: str, fact: JobFact, counts: Counts, _checks: Sequence[CheckFact]
) -> JobVerdict | None:
    detail = fact.detail or ""
    match fact.cause:
        case "timeout":
            return JobVerdict(job, Outcome.TIMED_OUT, "timeout", detail)
        case "disk_full":
            return _interrupted(job, counts, Cause(Outcome.ERRORED, "disk_full", detail))
        case "hung" | "crashed":
            return JobVerdict(job, Outcome.FAILED, fact.cause, detail)
        case "start_failed":
            return JobVerdict(job, Outcome.FAILED, "start_failed", detail)
        case "wrong_subject" | "wrong_pytest" | "forged_records":
            return JobVerdict(job, Outcome.ERRORED, fact.cause, detail)
    return None


def _judge_suite(
    job: str, fact: JobFact, counts: Counts, _checks: Sequence[CheckFact]
) -> JobVerdict | None:
    if counts.failed or counts.error:
        return JobVerdict(job, Outcome.FAILED, "tests", _tests_detail(counts))
    if fact.signal is not None:
        return JobVerdict(job, Outcome.FAILED, "crashed", f"pytest died of signal {fact.signal}")
    if fact.exit_code in _PYTEST_ENDS:
        reason = _PYTEST_ENDS[fact.exit_code]
        return JobVerdict(job, Outcome.FAILED, reason, f"pytest exited with {fact.exit_code}")
    if not counts.collected or _only_modules_skipped(fact, counts):
        return JobVerdict(job, Outcome.FAILED, "no_tests", "nothing was collected")
    if counts.missing or counts.not_run:
        detail = f"{counts.missing} missing, {counts.not_run} not run"
        return JobVerdict(job, Outcome.FAILED, "missing", detail)
    # Nothing left to run is no fault here: an earlier attempt reported all that was collected.
    if fact.exit_code not in (0, PYTEST_NO_TESTS):
        return JobVerdict(job, Outcome.FAILED, "exit", f"pytest exited with {fact.exit_code}")
    return None


def _only_modules_skipped(fact: JobFact, counts: Counts) -> bool:
    """Whether pytest found no test, because each module skipped itself."""
    return fact.exit_code == PYTEST_NO_TESTS and counts.collected == counts.skipped


def _judge_command(
    job: str, fact: JobFact, _counts: Counts, checks: Sequence[CheckFact]
) -> JobVerdict | None:
    if fact.signal is not None:
        return JobVerdict(job, Outcome.FAILED, "crashed", f"died of signal {fact.signal}")
    failed = [check.name for check in checks if check.outcome == "failed"]
    if failed:
        return JobVerdict(job, Outcome.FAILED, "checks", f"failed: {', '.join(failed[:5])}")
    if fact.exit_code != 0:
        return JobVerdict(job, Outcome.FAILED, "exit", f"exited with {fact.exit_code}")
    return None


def _tests_detail(counts: Counts) -> str:
    parts = {
        "failed": counts.failed,
        "error": counts.error,
        "missing": counts.missing,
        "not run": counts.not_run,
    }
    return ", ".join(f"{n} {word}" for word, n in parts.items() if n)


def judge_cell(jobs: Iterable[JobVerdict], cause: Cause | None) -> Cause:
    """The outcome of an attempt: the worst of its jobs, or what stopped it from outside."""
    verdicts = list(jobs)
    if cause is not None:
        verdicts.append(JobVerdict("", cause.outcome, cause.reason, cause.detail))
    else:
        never = [verdict for verdict in verdicts if verdict.outcome is Outcome.NOT_RUN]
        verdicts += [replace(verdict, outcome=Outcome.ERRORED) for verdict in never]
    outcome = worst(v.outcome for v in verdicts)
    if outcome is None:
        return Cause(Outcome.ERRORED, "agent", "the attempt ended without a word about any job")
    first = next(v for v in verdicts if v.outcome is outcome)
    if outcome is Outcome.PASSED:
        return Cause(outcome, "")
    where = f"{first.job}: " if first.job else ""
    return Cause(outcome, first.reason, f"{where}{first.detail or first.reason}")


def settle(outcome: TestOutcome, *, final: bool, given_up: bool) -> TestOutcome:
    """What a test without a final result counts as once its job is over."""
    if final:
        return outcome
    return TestOutcome.NOT_RUN if given_up else TestOutcome.MISSING


def merge_tally(tallies: Iterable[Mapping[TestOutcome, int]]) -> Counts:
    """Add several tallies up."""
    total = Counts()
    for tally in tallies:
        total = total + Counts.of(tally)
    return total
