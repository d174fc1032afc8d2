"""Folders, output and environment of one job, for the subject or the baseline."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from types import TracebackType
from typing import Callable, Dict, List, Optional, Type

from . import bounded_process, job_env
from .attempt_context import AttemptContext, JobRunner
from .event_lines import Checks
from .events import Data
from .job_output import JobOutput, Sink
from .job_user import give
from .layout import JobFolder
from .pack_artifacts import output_name
from .plan import PlanJob
from .pytest_records import RecordsRefusal, loaded_modules, origin_problems, refusal_of
from .tail_json_lines import JsonLinesTail

_LONGEST_TMP = 60
"""Longer paths leave no room for the 108 bytes of a socket's name, which multiprocessing needs."""


class JobDirs:
    """The folders that a job may write to, with its temporary folder."""

    def __init__(self, folder: JobFolder, account: bounded_process.Account) -> None:
        self._folder = folder
        self._account = account

    def make(self) -> None:
        """Create every folder; the files of an earlier agent are deleted."""
        folder = self._folder
        shutil.rmtree(folder.folder, ignore_errors=True)
        for path in (folder.artifacts, folder.tmp, folder.caches):
            path.mkdir(parents=True, mode=0o755)
        folder.given.mkdir(parents=True, exist_ok=True, mode=0o755)
        if self._account is not None:
            give(folder.folder, self._account[0], self._account[1])

    def tmp(self) -> Path:
        """Return the job's temporary folder, by a short link if its path is too long."""
        own = self._folder.tmp
        if len(str(own)) <= _LONGEST_TMP:
            return own
        short = Path(self._folder.short_tmp)
        try:
            if short.is_symlink() and short.readlink() == own:
                return short
            short.symlink_to(own)
        except OSError:
            return own
        return short

    def clear(self, tmp: Path) -> None:
        """Delete the temporary and cache folders."""
        if tmp != self._folder.tmp:
            tmp.unlink(missing_ok=True)
        for path in (self._folder.tmp, self._folder.caches):
            shutil.rmtree(path, ignore_errors=True)

    def lock_away(self) -> None:
        """Restrict the job's folder to the agent: later jobs run as the same user."""
        if self._account is None or not self._folder.folder.is_dir():
            return
        os.chown(self._folder.folder, os.geteuid(), os.getegid(), follow_symlinks=False)
        self._folder.folder.chmod(0o700)


class JobContext:
    """Context manager: makes the job's folders, and clears them when the job is over."""

    def __init__(
        self,
        context: AttemptContext,
        runner: JobRunner,
        job: PlanJob,
        *,
        hear: Optional[Callable[[str, Data], None]] = None,
    ) -> None:
        """Prepare.

        Args:
            context: Context of the subject or the baseline; a baseline's output goes only to its
                own file.
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
            on_cut=self._unread,
        )
        self._events = JsonLinesTail(self.folder.events)
        self.checks = Checks(self._events, context.events, job.id, hear=hear)
        self._modules = JsonLinesTail(self.folder.modules)
        self._loaded = 0
        self._tmp = self.folder.tmp

    def __enter__(self) -> JobContext:
        """Create the folders."""
        self._dirs.make()
        self._tmp = self._dirs.tmp()
        for tail, path in (
            (self._events, self.folder.events),
            (self._modules, self.folder.modules),
        ):
            tail.create()
            if self.runner.user.account is not None:
                os.chown(path, *self.runner.user.account[:2])
        self.output.title(f"{self.job.id} ({self.job.kind})")
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        """Close the output, and protect or delete the job's files against later jobs."""
        self.output.finish()
        self._sink.close()
        self._modules.close()
        self._dirs.clear(self._tmp)
        self._dirs.lock_away()

    def refusal(self) -> Optional[RecordsRefusal]:
        """Return why the evidence of the job is refused, or None.

        It is refused for forged module records, modules of the subject from elsewhere, and payload
        files that were copied into the subject.
        Called once, after the last process has ended. Suites report theirs with their records.
        """
        problems: List[Dict[str, str]] = []
        refused = ""
        try:
            for _, line, wrong in self._modules.drain():
                problems += origin_problems(line) if line is not None else []
                self._loaded = max(self._loaded, loaded_modules(line) if line is not None else 0)
                if wrong:
                    text = f"a line of $SEATRIAL_MODULES is not read: {wrong}"
                    self.context.events.log("warning", text, self.job.id)
            refused = self._modules.lost
        except ValueError as error:
            refused = f"has a line that no process of Python wrote ({error})"
        if refused:
            text = f"$SEATRIAL_MODULES {refused}. Fix: let nothing write there"
            return RecordsRefusal("forged_records", text)
        return refusal_of(problems) or self.runner.copied()

    def report_subject(self) -> None:
        """Emit the largest number of the subject's modules that one process of the command loaded.

        Called after `refusal`. Nothing is emitted where no subject was installed.
        """
        if "SEATRIAL_SUBJECT" in self._for_origins():
            data: Data = {"record": "test_set", "nodeid": "", "subject_modules": self._loaded}
            self.context.events.emit("test", self.job.id, data)

    def _unread(self, text: str) -> None:
        """Log that output was cut; a command may have reported its failure in it."""
        self.context.events.log("warning", text, self.job.id)
        if self.job.pytest is None:
            self.checks.unread(f"{text}; print less")

    @property
    def env(self) -> Dict[str, str]:
        """The environment of the job's processes."""
        given = job_env.for_job(
            self.runner.variables,
            job=self.job,
            attempt=self.context.attempt,
            secrets=self.runner.secrets,
            tmp=str(self._tmp),
        )
        return {**given, **self._for_origins()}

    def _for_origins(self) -> Dict[str, str]:
        """Return the variables that make each process report the origins of its modules."""
        subject, tops = self.context.plan.subject, self.runner.payload.tops()
        given = {
            "SEATRIAL_MODULES": str(self.folder.modules),
            "SEATRIAL_PAYLOAD": str(self.context.attempt.payload),
        }
        if subject is None and tops:
            return {**given, "SEATRIAL_SUBJECT_TOPS": " ".join(tops)}
        for each in self.runner.installed:
            if subject is not None and each.name == subject.distribution:
                return {
                    **given,
                    "SEATRIAL_SUBJECT": subject.distribution,
                    "SEATRIAL_SUBJECT_HOME": str(each.home),
                    "SEATRIAL_SUBJECT_TOPS": " ".join(each.tops()),
                }
        return {}


def arm_output(job: str, arm: str) -> str:
    """Return the name of the output of one arm of a job; the subject's is the job's id."""
    return f"{job}.{arm}" if arm else job
