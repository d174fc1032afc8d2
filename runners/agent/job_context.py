"""Folders, output and environment of one job, for the subject or the baseline."""

from __future__ import annotations

from types import TracebackType
from typing import Callable, Dict, Optional, Type

from . import job_env
from .attempt_context import AttemptContext, JobRunner
from .event_file import Checks
from .events import Data
from .job_dirs import JobDirs
from .output import JobOutput, Sink
from .pack_artifacts import output_name
from .plan import Job
from .tail import Tail


class JobContext:
    """Context manager: makes the job's folders, and clears them when the job is over."""

    def __init__(
        self,
        context: AttemptContext,
        runner: JobRunner,
        job: Job,
        *,
        hear: Optional[Callable[[str, Data], None]] = None,
    ) -> None:
        """Prepare.

        Args:
            context: Of the subject or the baseline; a baseline's output goes to its own file only.
            runner: The user and environment that the job runs with.
            job: The job to run.
            hear: Receives the job's own events (kind, data) instead of the event stream.
        """
        self.context = context
        self.runner = runner
        self.job = job
        self.folder = context.attempt.job(job.id)
        self._dirs = JobDirs(self.folder, runner.user.account)
        name = arm_output(job.id, context.attempt.arm)
        self._sink = Sink(context.attempt.artifacts / output_name(name), context.events)
        self.output = JobOutput(
            name,
            log=None if context.attempt.arm else context.log,
            own=self._sink,
            limit_bytes=context.plan.limits.log_bytes,
            masker=context.masker,
            on_cut=lambda text: context.events.log("warning", text, job.id),
        )
        self.checks = Checks(Tail(self.folder.events), context.events, job.id, hear=hear)
        self._tmp = self.folder.tmp

    def __enter__(self) -> JobContext:
        """Make the folders."""
        self._dirs.make()
        self._tmp = self._dirs.tmp()
        self.output.title(f"{self.job.id} ({self.job.kind})")
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        """End the output, and leave nothing for later jobs to meddle with."""
        self.output.finish()
        self._sink.close()
        self._dirs.clear(self._tmp)
        self._dirs.lock_away()

    @property
    def env(self) -> Dict[str, str]:
        """The environment of the job's processes."""
        return job_env.for_job(
            self.runner.variables,
            job=self.job,
            attempt=self.context.attempt,
            secrets=self.runner.secrets,
            tmp=str(self._tmp),
        )


def arm_output(job: str, arm: str) -> str:
    """Name the output of one arm of a job; the subject's is the job's."""
    return f"{job}.{arm}" if arm else job
