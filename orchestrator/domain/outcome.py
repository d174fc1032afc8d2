"""Outcomes of tests and cells, and how they are derived."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import IntEnum, StrEnum
from fractions import Fraction

from orchestrator.domain.cell import Cause
from orchestrator.domain.event_facts import CheckFact, JobFact


class Outcome(StrEnum):
    """Outcome of a job, an attempt, a cell or a run."""

    PASSED = "passed"
    NOT_AVAILABLE = "not_available"
    CANCELLED = "cancelled"
    ERRORED = "errored"
    TIMED_OUT = "timed_out"
    FAILED = "failed"
    NOT_RUN = "not_run"
    """A job that never started; its cell has the cause."""


_SEVERITY = {
    Outcome.PASSED: 0,
    Outcome.NOT_AVAILABLE: 1,
    Outcome.CANCELLED: 2,
    Outcome.ERRORED: 3,
    Outcome.TIMED_OUT: 4,
    Outcome.FAILED: 5,
}


def worst(outcomes: Iterable[Outcome]) -> Outcome | None:
    """Return the most severe outcome, or None of none; jobs that never ran do not count."""
    ranked = [o for o in outcomes if o is not Outcome.NOT_RUN]
    return max(ranked, key=_SEVERITY.__getitem__, default=None)


class TestOutcome(IntEnum):
    """Outcome of a test, by severity: a test has the worst outcome of its phases."""

    __test__ = False

    MISSING = 0
    """Collected, and no result was reported."""
    PASSED = 1
    SKIPPED = 2
    XFAILED = 3
    XPASSED = 4
    ERROR = 5
    FAILED = 6
    NOT_RUN = 7
    """Collected, and never started, because its job was aborted."""

    @property
    def word(self) -> str:
        """Return the outcome's name in documents."""
        return self.name.lower()

    def counted(self, *, final: bool) -> TestOutcome:
        """Return the counted outcome: missing until the test's end is known."""
        return self if final or self is TestOutcome.NOT_RUN else TestOutcome.MISSING


@dataclass(frozen=True, slots=True)
class Counts:
    """Numbers of tests by outcome."""

    passed: int = 0
    failed: int = 0
    error: int = 0
    skipped: int = 0
    xfailed: int = 0
    xpassed: int = 0
    missing: int = 0
    """Collected, and not reported (yet)."""
    not_run: int = 0
    """Collected, and never started."""

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            **{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)}
        )

    @property
    def collected(self) -> int:
        """Number of collected tests."""
        return sum(getattr(self, f.name) for f in fields(self))

    @property
    def bad(self) -> int:
        """Number of tests that keep a suite from passing."""
        return self.failed + self.error + self.missing + self.not_run

    @property
    def pass_rate(self) -> Fraction | None:
        """Return ``passed / (passed + failed + error)``; None when all are zero."""
        judged = self.passed + self.failed + self.error
        return Fraction(self.passed, judged) if judged else None

    @property
    def nothing_passed(self) -> str:
        """Return ``no test passed: 29 skipped``, where that is so; else empty.

        Stands beside an outcome wherever one is shown, because a suite whose tests are all skipped
        or expected to fail has not failed either.
        """
        if not self.collected or self.passed or self.bad:
            return ""
        beside = {
            "skipped": self.skipped,
            "failed as expected": self.xfailed,
            "passed unexpectedly": self.xpassed,
        }
        return f"no test passed: {', '.join(f'{n:,} {word}' for word, n in beside.items() if n)}"

    def as_dict(self) -> dict[str, int]:
        """Return the eight numbers by name."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @classmethod
    def of(cls, tally: Mapping[TestOutcome, int]) -> Counts:
        """Build from numbers by outcome."""
        return cls(**{outcome.word: n for outcome, n in tally.items()})


EXIT_CODES = {
    Outcome.PASSED: 0,
    Outcome.FAILED: 1,
    Outcome.TIMED_OUT: 1,
    Outcome.ERRORED: 5,
    Outcome.CANCELLED: 5,
    Outcome.NOT_AVAILABLE: 5,
}
"""Exit codes of commands that wait for an outcome."""


PYTEST_NO_TESTS = 5
_REASON = 200
"""Maximum characters of a check's reason in the detail of its job."""
_PYTEST_FAILED = 1
_PYTEST_INTERRUPTED = 2
_PYTEST_ENDS = {_PYTEST_INTERRUPTED: "interrupted", 3: "pytest_internal", 4: "pytest_usage"}


@dataclass(frozen=True, slots=True)
class JobVerdict:
    """Outcome of a job with a one-word reason."""

    job: str
    outcome: Outcome
    reason: str = ""
    detail: str = ""
    ending: Cause | None = None
    """How the job ended, where failing tests and checks do not explain it."""


def judge_job(
    job: str,
    *,
    kind: str,
    fact: JobFact | None,
    counts: Counts,
    checks: Sequence[CheckFact],
    cause: Cause | None,
) -> JobVerdict:
    """Derive the outcome of a job of a finished attempt.

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
            return JobVerdict(job, Outcome.FAILED, fact.cause, fact.detail or "")
        if fact is not None and fact.cause:
            return JobVerdict(job, Outcome.NOT_RUN, fact.cause, fact.detail or "")
        return JobVerdict(job, Outcome.NOT_RUN, cause.reason if cause else "agent")
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
    """Return what ended the job from outside; None where it ended by itself."""
    if fact.cause == "disk_full":
        return Cause(Outcome.ERRORED, "disk_full", fact.detail or "")
    if fact.finished_ts is not None and fact.cause != "stopped":
        return None
    return cause or Cause(Outcome.ERRORED, "agent", "the job's end was never reported")


def _interrupted(job: str, counts: Counts, outside: Cause) -> JobVerdict:
    if counts.failed or counts.error:
        return JobVerdict(job, Outcome.FAILED, "tests", _tests_detail(counts), outside)
    return _as_ended(job, outside)


def _stopped(fact: JobFact) -> Cause | None:
    """Return why the agent stopped the job or rejected its records."""
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
    # Nothing left to run is no fault here: an earlier attempt reported all that was collected.
    if code in (0, PYTEST_NO_TESTS) or (failed and code in _explained_by_tests(fact)):
        return None
    reason = _PYTEST_ENDS.get(code, "exit") if code is not None else "exit"
    return Cause(Outcome.FAILED, reason, f"pytest exited with {code}")


def _explained_by_tests(fact: JobFact) -> tuple[int | None, ...]:
    """Whether the exit code follows from failing tests.

    2 alone means that files could not be collected.
    """
    hidden = fact.test_set is not None and bool(fact.test_set.hidden)
    return (None, _PYTEST_FAILED, _PYTEST_INTERRUPTED) if hidden else (None, _PYTEST_FAILED)


def _as_ended(job: str, ending: Cause) -> JobVerdict:
    return JobVerdict(job, ending.outcome, ending.reason, ending.detail, ending)


def _only_modules_skipped(fact: JobFact, counts: Counts) -> bool:
    """Whether pytest found no test because every module skipped itself."""
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
    """Return a check's name, with its reason in one line."""
    reason = " ".join(check.reason.split())
    cut = f"{reason[:_REASON]}..." if len(reason) > _REASON else reason
    return f"{check.name} ({cut})" if cut else check.name


def _command_ending(fact: JobFact, failed: Sequence[str]) -> Cause | None:
    """Return the ending of a command: a non-zero exit code may report failed checks.

    A signal may not.
    """
    if fact.signal is not None:
        return Cause(Outcome.FAILED, "crashed", f"died of signal {fact.signal}")
    if fact.exit_code == 0 or failed:
        return None
    return Cause(Outcome.FAILED, "exit", f"exited with {fact.exit_code}")


def _tests_detail(counts: Counts) -> str:
    parts = {
        "failed": counts.failed,
        "error" if counts.error == 1 else "errors": counts.error,
        "missing": counts.missing,
        "not run": counts.not_run,
    }
    return ", ".join(f"{n} {word}" for word, n in parts.items() if n)


def judge_cell(jobs: Iterable[JobVerdict], cause: Cause | None) -> Cause:
    """Derive the outcome of an attempt: the worst of its jobs, or its outside cause."""
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
