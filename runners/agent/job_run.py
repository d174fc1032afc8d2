"""One job, from its folders to its ``finished`` event."""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace
from typing import Callable, Dict, List, Mapping, Optional, Sequence, Set, Tuple

from . import job_env, processes
from .attempt_context import AttemptContext, JobRunner
from .benchmark_arms import Arm, ArmReport, ProcessPerTurn, Resident
from .evidence_text import JsonValue
from .heartbeat import is_nearly_full
from .job_context import JobContext
from .layout import mark_of
from .plan import PlanJob
from .pytest_records import RecordsRefusal, SuiteRecords
from .suite import JobExit, Suite, config_file
from .supervise import Ended, Watch
from .tail_json_lines import JsonLinesTail, PipeTail

_FOR_TURNS = 0.9
"""Share of a paired job's time for its turns; the rest is for the end of the subject's arm."""
LEFT_BEHIND = "processes-left-behind"
"""The failed check of a command that ended before processes that it had started."""
_AFTERGLOW_S = 8.0
"""Seconds of `Watch.afterglow_s` for a command: PyTorch's workers check their parent every 5 s."""
_NAMED = 5
"""Maximum number of changed payload files that are named."""


class JobRun:
    """Runs one job; returns how the job ended."""

    def __init__(
        self,
        context: AttemptContext,
        runner: JobRunner,
        job: PlanJob,
        *,
        baseline: Optional[Tuple[AttemptContext, JobRunner]] = None,
    ) -> None:
        """Prepare.

        Args:
            context: The shared state of the attempt.
            runner: The user and environment that the job runs with.
            job: The job to run.
            baseline: Context and runner of the other arm of a paired job.
        """
        self._context = context
        self._runner = runner
        self._job = job
        self._baseline = baseline
        self._began_at = time.monotonic()
        self._announced = False
        self._watches: List[Watch] = []

    def run(self, *, done: Sequence[str] = ()) -> JobExit:
        """Run the job.

        Args:
            done: Tests that an earlier agent of this attempt has already settled.

        Returns:
            How it ended, as in its ``finished`` event.
        """
        verdict = self._refusal() or self._settled(self._work(done))
        self._finished(verdict)
        return verdict

    def _refusal(self) -> Optional[JobExit]:
        missing = [name for name in self._job.secrets if name not in self._runner.secrets]
        if missing:
            detail = f"secret {missing[0]} was not handed over"
            return JobExit(None, None, "config", detail, 0)
        if self._job.gpus > self._runner.gpus:
            detail = f"needs {self._job.gpus} gpus, found {self._runner.gpus}"
            return JobExit(None, None, "wrong_hardware", detail, 0)
        crews = (self._runner, self._baseline[1]) if self._baseline else (self._runner,)
        for runner in crews:
            for files in runner.installed:
                files.drop_strange_byte_code()
            changed = runner.refusal(tests=self._job.pytest is not None)
            if changed is not None:
                return JobExit(None, None, changed.reason, changed.detail, 0)
            problem = self._restore(runner)
            if problem:
                return JobExit(None, None, "environment", problem, 0)
        return None

    def _restore(self, runner: JobRunner) -> str:
        """Undo the changes of earlier jobs to payload and environment; return why that failed."""
        try:
            self._emit("changed", runner.payload.restore(), "as shipped again")
            self._emit("added to the environment", runner.environment.restore(), "removed again")
        except OSError as error:
            return f"what earlier jobs changed cannot be undone: {error}"
        return ""

    def _emit(self, what: str, files: Sequence[str], done: str) -> None:
        if files:
            more = f" and {len(files) - _NAMED} more" if len(files) > _NAMED else ""
            text = f"an earlier job {what} {', '.join(files[:_NAMED])}{more}: {done}"
            self._context.events.log("warning", text, self._job.id)

    def _work(self, done: Sequence[str]) -> JobExit:
        if self._baseline is not None and self._job.paired is not None:
            return self._paired(*self._baseline)
        with JobContext(self._context, self._runner, self._job) as job_context:
            suite = self._job.pytest is not None
            root = self._context.attempt.payload
            before = {name: mark_of(root / name, is_link=True) for name in self._job.metrics}
            verdict = self._suite(job_context, done) if suite else self._command(job_context)
            job_context.checks.drain()
            if before:
                from .pack_artifacts import Packer  # noqa: PLC0415 - few jobs need it here

                Packer(self._context).measured(self._job.id, before)
            return verdict

    def _paired(self, context: AttemptContext, runner: JobRunner) -> JobExit:
        from .paired_benchmark import PairedRun  # noqa: PLC0415 - its statistics are for few jobs

        pairing = self._job.paired
        assert pairing is not None
        arm_report, others = ArmReport(), ArmReport()
        own = JobContext(self._context, self._runner, self._job, hear=arm_report.hear)
        with own, JobContext(context, runner, self._job, hear=others.hear) as beside:
            arms = self._arm(own, arm_report), self._arm(beside, others)
            try:
                verdict = PairedRun(*arms, pairing, left_s=self._left_s).run()
            finally:
                processes.kill_all(lambda: processes.of_attempt(context.attempt.folder))
            refused = own.refusal()
            own.report_subject()
            return _unless_refused(verdict, refused or _of_baseline(beside.refusal()))

    def _arm(self, job_context: JobContext, arm_report: ArmReport) -> Arm:
        """Create an arm; the baseline's must end before the job.

        While both are resident, ending one must not end the other.
        """
        beside, resident = bool(job_context.context.attempt.arm), self._job.turns
        watch = self._watch(
            job_context,
            poll=job_context.checks.poll,
            running=lambda: None,
            share=_FOR_TURNS if beside else 1.0,
            own=processes.of_session if resident else None,
        )
        kind = Resident if resident else ProcessPerTurn
        return kind(job_context, arm_report, watch, _unannounced if beside else self._started)

    def _left_s(self) -> float:
        own = self._began_at + self._job.timeout_s * _FOR_TURNS - time.monotonic()
        return min(own, self._context.heartbeat.left_s)

    def _suite(self, job_context: JobContext, done: Sequence[str]) -> JobExit:
        separate = self._runner.user.account is not None
        with contextlib.closing(
            PipeTail(job_context.folder.records, mode=0o622 if separate else 0o600)
        ) as tail:
            return self._follow(job_context, done, tail)

    def _follow(self, job_context: JobContext, done: Sequence[str], tail: JsonLinesTail) -> JobExit:
        arguments = job_context.job.pytest or ()
        records = SuiteRecords(tail, self._context.events, job_context.job.id, arguments=arguments)
        watch = self._watch(
            job_context,
            poll=lambda: bool(int(records.poll()) | int(job_context.checks.poll())),
            running=records.running,
        )
        own = config_file(self._context.attempt.payload, arguments)
        if own is None:
            job_context.folder.empty_config.touch(mode=0o644)
        suite = Suite(
            self._context,
            job_context.job,
            records=records,
            output=job_context.output,
            config=own or job_context.folder.empty_config,
            skip_file=job_context.folder.skip,
            skipped={*job_context.job.skip, *done},
            runner=self._runner,
        )
        verdict = suite.run(
            lambda argv, more: self._process(
                watch, argv, job_env.without_pythonpath({**job_context.env, **more})
            )
        )
        return _unless_refused(verdict, job_context.refusal())

    def _command(self, job_context: JobContext) -> JobExit:
        python = str(self._context.attempt.python)
        argv = [word.replace("{python}", python) for word in job_context.job.command or ()]
        watch = self._watch(job_context, poll=job_context.checks.poll, running=lambda: None)
        watch.afterglow_s = _AFTERGLOW_S
        ended = self._process(watch, argv, job_context.env)
        verdict = JobExit(ended.exit_code, ended.signal, ended.cause, ended.detail, 0)
        if watch.left_behind and ended.cause is None:
            advice = "Fix: let the command wait for all that it starts, or end it"
            job_context.checks.fail(LEFT_BEHIND, f"{watch.left_behind}. {advice}")
        refused = job_context.refusal()
        job_context.report_subject()
        return _unless_refused(verdict, refused)

    def _watch(
        self,
        job_context: JobContext,
        *,
        poll: Callable[[], bool],
        running: Callable[[], Optional[str]],
        share: float = 1.0,
        own: Optional[Callable[[int], Set[int]]] = None,
    ) -> Watch:
        watch = Watch(
            job_context.context,
            job_context.job,
            job_context.output,
            deadline=self._began_at + job_context.job.timeout_s * share,
            poll=poll,
            running=running,
            own=own,
        )
        self._watches.append(watch)
        return watch

    def _process(self, watch: Watch, argv: Sequence[str], env: Mapping[str, str]) -> Ended:
        try:
            return watch.run(
                argv, env=env, account=self._runner.user.account, started=self._started
            )
        except OSError as error:
            return Ended(None, None, "start_failed", str(error))

    def _started(self, pid: int) -> None:
        if not self._announced:
            self._announced = True
            data: Dict[str, JsonValue] = {"name": "started", "kind": self._job.kind, "pid": pid}
            self._context.events.emit("phase", self._job.id, data)

    def _settled(self, verdict: JobExit) -> JobExit:
        """Return the end of the job, attributed to a full disk where that caused it."""
        full = self._context.events.disk_full or verdict.cause == "disk_full"
        if verdict.cause is None and verdict.exit_code != 0:
            full = full or is_nearly_full(self._context.attempt.folder)
        if not full:
            return verdict
        detail = f"the disk is full ({verdict.detail})"
        return JobExit(verdict.exit_code, verdict.signal, "disk_full", detail, verdict.restarts)

    def _finished(self, verdict: JobExit) -> None:
        data: Dict[str, JsonValue] = {
            "name": "finished",
            "exit_code": verdict.exit_code,
            "signal": verdict.signal,
            "cause": verdict.cause,
            "detail": verdict.detail,
            "duration_s": round(time.monotonic() - self._began_at, 3),
            "restarts": verdict.restarts,
            "longest_idle_s": round(max((w.longest_idle_s for w in self._watches), default=0.0), 1),
        }
        self._context.events.emit("phase", self._job.id, data)


def _unless_refused(verdict: JobExit, refused: Optional[RecordsRefusal]) -> JobExit:
    """Return the end of a job, or the refusal of its results if nothing else ended it."""
    if refused is None or verdict.cause is not None:
        return verdict
    return replace(verdict, cause=refused.reason, detail=refused.detail)


def _of_baseline(refused: Optional[RecordsRefusal]) -> Optional[RecordsRefusal]:
    return refused and replace(refused, detail=f"the baseline: {refused.detail}")


def _unannounced(_: int) -> None:
    """Emit nothing: the job's start was reported with the subject's arm."""
