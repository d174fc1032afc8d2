"""Derives the outcomes of jobs, attempts and cells from facts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from orchestrator.domain.cell import Cause
from orchestrator.domain.event_facts import CheckFact, JobFact
from orchestrator.domain.outcome import Counts, Outcome, Reason, worst
from orchestrator.domain.units import plural
from orchestrator.domain.vocabulary import term

PYTEST_NO_TESTS = 5

_REASON = 200

"""Maximum characters of a check's reason in a job's detail."""

_PYTEST_FAILED = 1

_PYTEST_INTERRUPTED = 2

_PYTEST_ENDS = {_PYTEST_INTERRUPTED: "interrupted", 3: "pytest_internal", 4: "pytest_usage"}


@dataclass(frozen=True, slots=True)
class JobVerdict:
    """The outcome of a job with its reason."""

    job: str
    outcome: Outcome
    reason: str = ""
    detail: str = ""
    ending: Cause | None = None
    """The end of the job, if failing tests and checks do not explain it; None otherwise."""


def judge_job(
    job: str,
    *,
    kind: str,
    fact: JobFact | None,
    counts: Counts,
    checks: Sequence[CheckFact],
    cause: Cause | None,
) -> JobVerdict:
    """Return the outcome of a job of a finished attempt.

    Args:
        job: The job's id.
        kind: ``suite`` or another kind of job.
        fact: The agent's record of the job; None if it never started.
        counts: Numbers of the job's tests; unreported tests count as missing.
        checks: The checks that the job reported.
        cause: What ended the attempt from outside; None if nothing did.
    """
    if fact is None or fact.started_ts is None:
        if fact is not None and fact.cause == "start_failed":
            return JobVerdict(job, Outcome.FAILED, fact.cause, fact.detail or "")
        if fact is not None and fact.cause:
            return JobVerdict(job, Outcome.NOT_RUN, fact.cause, fact.detail or "")
        return JobVerdict(job, Outcome.NOT_RUN, cause.reason if cause else Reason.AGENT)
    outside = _interruption(fact, cause)
    if outside is not None:
        return _interrupted(job, counts, outside)
    stopped = _stopped(fact)
    if stopped is not None:
        return _as_ended(job, stopped)
    failed = [named_check(check) for check in checks if check.outcome == "failed"]
    if kind == "suite":
        return _judge_suite(job, fact, counts, failed)
    return _judge_command(job, fact, failed)


def _interruption(fact: JobFact, cause: Cause | None) -> Cause | None:
    """Return the outside cause that ended the job; None if the job ended by itself."""
    if fact.cause == "disk_full":
        return Cause(Outcome.ERRORED, Reason.DISK_FULL, fact.detail or "")
    if fact.finished_ts is not None and fact.cause != "stopped":
        return None
    return cause or Cause(Outcome.ERRORED, Reason.AGENT, "the job's end was never reported")


def _interrupted(job: str, counts: Counts, outside: Cause) -> JobVerdict:
    if counts.failed or counts.error:
        return JobVerdict(job, Outcome.FAILED, "tests", _tests_detail(counts), outside)
    return _as_ended(job, outside)


def _stopped(fact: JobFact) -> Cause | None:
    """Return the end that the agent recorded as `cause`; None if it recorded none of these.

    The job was stopped, crashed or did not start, or its records were rejected.
    """
    detail = fact.detail or ""
    match fact.cause:
        case "timeout":
            return Cause(Outcome.TIMED_OUT, "timeout", detail)
        case "hung" | "crashed" | "start_failed":
            return Cause(Outcome.FAILED, fact.cause, detail)
        case "wrong_subject" | "wrong_pytest" | "forged_records":
            return Cause(Outcome.ERRORED, fact.cause, detail)
    return None


def _judge_suite(job: str, fact: JobFact, counts: Counts, failed: Sequence[str]) -> JobVerdict:
    ending = _suite_ending(fact, counts)
    if counts.failed or counts.error:
        return JobVerdict(job, Outcome.FAILED, "tests", _tests_detail(counts), ending)
    if ending is not None and ending.reason != "exit":
        return _as_ended(job, ending)
    if not counts.collected or _only_modules_skipped(fact, counts):
        return JobVerdict(job, Outcome.FAILED, "no_tests", "nothing was collected", ending)
    if counts.missing or counts.not_run:
        detail = f"{counts.missing} missing, {counts.not_run} not run"
        return JobVerdict(job, Outcome.FAILED, "missing", detail, ending)
    if failed:
        return _checks_failed(job, failed)
    return JobVerdict(job, Outcome.PASSED) if ending is None else _as_ended(job, ending)


def _suite_ending(fact: JobFact, counts: Counts) -> Cause | None:
    code, failed = fact.exit_code, bool(counts.failed or counts.error)
    if fact.signal is not None:
        return Cause(Outcome.FAILED, "crashed", f"pytest died of signal {fact.signal}")
    # Exit code 5 is no fault, because an earlier attempt reported every collected test.
    if code in (0, PYTEST_NO_TESTS) or (failed and code in _explained_by_tests(fact)):
        return None
    reason = _PYTEST_ENDS.get(code, "exit") if code is not None else "exit"
    return Cause(Outcome.FAILED, reason, _exited(fact, "pytest exited"))


def _exited(fact: JobFact, what: str) -> str:
    """Return how a job exited: in the words of foreign results, or by its exit code."""
    # The agent writes: ``exit code 4: file or directory not found: tests``
    head, _, why = (fact.detail or "").partition(": ")
    if head and not head.startswith("exit code "):
        return fact.detail or ""
    return f"{what} with {fact.exit_code}" + (f": {why}" if why else "")


def _explained_by_tests(fact: JobFact) -> tuple[int | None, ...]:
    """Return the exit codes that failing tests explain.

    2 is one of them only if files could not be collected.
    """
    hidden = fact.test_set is not None and bool(fact.test_set.hidden)
    return (None, _PYTEST_FAILED, _PYTEST_INTERRUPTED) if hidden else (None, _PYTEST_FAILED)


def _as_ended(job: str, ending: Cause) -> JobVerdict:
    return JobVerdict(job, ending.outcome, ending.reason, ending.detail, ending)


def _only_modules_skipped(fact: JobFact, counts: Counts) -> bool:
    """Whether pytest collected no test because every module skipped itself."""
    return fact.exit_code == PYTEST_NO_TESTS and counts.collected == counts.skipped


def _judge_command(job: str, fact: JobFact, failed: Sequence[str]) -> JobVerdict:
    ending = _command_ending(fact, failed)
    if ending is not None and ending.reason == "crashed":
        return _as_ended(job, ending)
    if failed:
        return _checks_failed(job, failed)
    return JobVerdict(job, Outcome.PASSED) if ending is None else _as_ended(job, ending)


def _checks_failed(job: str, failed: Sequence[str]) -> JobVerdict:
    return JobVerdict(job, Outcome.FAILED, "checks", f"failed: {', '.join(failed[:5])}")


def named_check(check: CheckFact) -> str:
    """Return a check's name with its reason, in one line."""
    reason = " ".join(check.reason.split())
    cut = f"{reason[:_REASON]}..." if len(reason) > _REASON else reason
    return f"{check.name} ({cut})" if cut else check.name


def _command_ending(fact: JobFact, failed: Sequence[str]) -> Cause | None:
    """Return the ending of a command; None if it needs no explanation.

    A non-zero exit code may report failed checks; a signal may not.
    """
    if fact.signal is not None:
        return Cause(Outcome.FAILED, "crashed", f"died of signal {fact.signal}")
    if fact.exit_code == 0 or failed:
        return None
    return Cause(Outcome.FAILED, "exit", _exited(fact, "exited"))


def _tests_detail(counts: Counts) -> str:
    parts = {
        "failed": counts.failed,
        "error": counts.error,
        "missing": counts.missing,
        "not_run": counts.not_run,
    }
    return ", ".join(term(code).counted(many) for code, many in parts.items() if many)


def judge_cell(jobs: Iterable[JobVerdict], cause: Cause | None) -> Cause:
    """Return the outcome of an attempt: the worst outcome of its jobs and of its outside cause."""
    verdicts = list(jobs)
    if cause is not None:
        verdicts.append(JobVerdict("", cause.outcome, cause.reason, cause.detail))
    else:
        never = [verdict for verdict in verdicts if verdict.outcome is Outcome.NOT_RUN]
        verdicts += [replace(verdict, outcome=Outcome.ERRORED) for verdict in never]
    outcome = worst(v.outcome for v in verdicts)
    if outcome is None:
        return Cause(Outcome.ERRORED, Reason.AGENT, "the attempt ended without an event of any job")
    first = next(v for v in verdicts if v.outcome is outcome)
    if outcome is Outcome.PASSED:
        return Cause(outcome, "")
    where = f"{first.job}: " if first.job else ""
    others = sum(v.outcome is outcome and bool(v.job) for v in verdicts) - bool(first.job)
    more = f"; and {plural(others, 'other job')}" if others > 0 else ""
    return Cause(outcome, first.reason, f"{where}{first.detail or first.reason}{more}")
