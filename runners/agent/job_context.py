"""What one job works with on one side: its folders, its output, its environment."""

from __future__ import annotations

from types import TracebackType
from typing import Callable, Dict, Optional, Type

from . import job_env
from .attempt_context import Crew, Desk
from .event_file import Checks
from .events import Data
from .job_dirs import Room
from .output import JobOutput, Sink
from .pack_artifacts import output_name
from .plan import Job
from .tail import Tail


class Bench:
    """Set up when entered, cleared when left."""

    def __init__(
        self,
        desk: Desk,
        crew: Crew,
        job: Job,
        *,
        hear: Optional[Callable[[str, Data], None]] = None,
    ) -> None:
        """Prepare.

        Args:
            desk: The side's; an arm beside the subject's is heard in a file of its own only.
            crew: Who runs the job.
            job: It.
            hear: Takes what the job says of itself, instead of the event stream.
        """
        self.desk = desk
        self.crew = crew
        self.job = job
        self.folder = desk.attempt.job(job.id)
        self._room = Room(self.folder, crew.user.account)
        name = arm_output(job.id, desk.attempt.arm)
        self._sink = Sink(desk.attempt.artifacts / output_name(name), desk.events)
        self.output = JobOutput(
            name,
            log=None if desk.attempt.arm else desk.log,
            own=self._sink,
            limit_bytes=desk.plan.limits.log_bytes,
            masker=desk.masker,
            on_cut=lambda text: desk.events.log("warning", text, job.id),
        )
        self.checks = Checks(Tail(self.folder.events), desk.events, job.id, hear=hear)
        self._tmp = self.folder.tmp

    def __enter__(self) -> Bench:
        """Make the folders."""
        self._room.make()
        self._tmp = self._room.tmp()
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
        self._room.clear(self._tmp)
        self._room.lock_away()

    @property
    def env(self) -> Dict[str, str]:
        """The environment of the job's processes."""
        return job_env.for_job(
            self.crew.variables,
            job=self.job,
            attempt=self.desk.attempt,
            secrets=self.crew.secrets,
            tmp=str(self._tmp),
        )


def arm_output(job: str, arm: str) -> str:
    """Name the output of one arm of a job; the subject's is the job's."""
    return f"{job}.{arm}" if arm else job
