"""One side of an attempt: its payload, its environment, and the proof of its subject.

The subject's side is what every job runs on. The baseline's is made beside it, in folders of its
own, when the first paired benchmark needs it; what goes wrong there fails no job of the subject.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import Dict, Mapping, Optional, Tuple

from . import environment_facts, installed, job_env, subject
from .attempt_context import AttemptContext, JobRunner
from .failures import AttemptEnd, DiskFull, EnvironmentFailed, Stopped
from .installed import Files
from .job_user import give
from .overlay import Overlay
from .payload_copy import PayloadCopy

BASELINE = "baseline"


def copy_payload(context: AttemptContext) -> None:
    """Give the side a copy of the payload for itself.

    Raises:
        Ending: it is not on this machine, or cannot be copied.
    """
    attempt = context.attempt
    source = attempt.pristine(context.plan.payload)
    if not source.is_dir():
        raise AttemptEnd(f"payload {context.plan.payload} has not been unpacked on this machine")
    shutil.rmtree(attempt.payload, ignore_errors=True)
    try:
        shutil.copytree(source, attempt.payload, symlinks=True)
        for folder in (attempt.jobs, attempt.artifacts, attempt.given):
            folder.mkdir(exist_ok=True)
    except (OSError, shutil.Error) as error:
        raise_if_full(context)
        raise AttemptEnd(f"the payload cannot be copied: {error}") from error


def payload_copy(context: AttemptContext) -> PayloadCopy:
    """Begin to watch the side's copy: whoever runs its jobs owns it by now."""
    return PayloadCopy(context.attempt.pristine(context.plan.payload), context.attempt.payload)


def build_overlay(context: AttemptContext) -> Tuple[Files, ...]:
    """Build the side's environment, and list what is in it; what the tools say is in the log.

    Raises:
        EnvironmentFailed: it cannot be made.
    """
    stream = context.masker.stream()
    overlay = Overlay(
        context.attempt,
        context.plan,
        tick=context.heartbeat.check,
        sink=lambda data: context.log.write(stream.feed(data)),
    )
    try:
        overlay.build()
        return installed.take(context.attempt, context.plan.subject, context.heartbeat.check)
    except (EnvironmentFailed, OSError) as error:
        raise_if_full(context)
        if isinstance(error, EnvironmentFailed):
            raise
        raise EnvironmentFailed(f"the environment cannot be made: {error}") from error
    finally:
        context.log.write(stream.finish())


def prove_subject(context: AttemptContext, runner: JobRunner) -> None:
    """Prove that it is installed, and imported, for every way in which jobs' imports may differ.

    Raises:
        WrongSubject: something else is, or would be.
    """
    if context.plan.subject is None:
        return
    subject.prove_installed(context.plan.subject, runner.installed)
    ways: Dict[Optional[str], Mapping[str, str]] = {}
    for job in context.plan.jobs:
        env = job_env.for_job(runner.variables, job=job, attempt=context.attempt, secrets={})
        ways.setdefault(env.get("PYTHONPATH"), env)
    for way in ways.values() if ways else (runner.variables,):
        asker = environment_facts.Asker(
            context.attempt, way, runner.user.account, context.heartbeat.check
        )
        subject.prove(context.plan.subject, asker)


def raise_if_full(context: AttemptContext) -> None:
    """Blame a disk that is full.

    Raises:
        DiskFull: it is.
    """
    if shutil.disk_usage(context.attempt.folder).free < 1024 * 1024:
        raise DiskFull("the disk is full: nothing could be prepared")


class BaselineSide:
    """The baseline, made when it is first asked for."""

    def __init__(self, context: AttemptContext, runner: JobRunner) -> None:
        self._subject = context
        self._runner = runner
        self._tried = False
        self._context: Optional[AttemptContext] = None
        self._installed: Tuple[Files, ...] = ()
        self._payload: Optional[PayloadCopy] = None

    def get(self) -> Optional[AttemptContext]:
        """Return the baseline's context, or None where there is no baseline; the log says why.

        Raises:
            Stopped: somebody asked for it.
            DiskFull: nothing more can be written.
        """
        if not self._tried:
            self._tried = True
            self._context = self._made()
        return self._context

    def runner(self, context: AttemptContext) -> JobRunner:
        """Return who runs the baseline's turns: the same user, in the baseline's environment."""
        plan, user = context.plan, self._runner.user
        variables = job_env.common(
            context.attempt, name=plan.attempt, environment=plan.environment, user=user
        )
        payload = self._payload or self._runner.payload
        return replace(
            self._runner, variables=variables, payload=payload, installed=self._installed
        )

    def _made(self) -> Optional[AttemptContext]:
        asked = self._subject.plan.baseline
        if asked is None:
            return None
        problem = asked.refused
        if not problem:
            plan = replace(
                self._subject.plan,
                **{key: getattr(asked, key) for key in ("payload", "wheels", "environment")},
                subject=asked.subject,
                jobs=tuple(job for job in self._subject.plan.jobs if job.paired is not None),
            )
            attempt = replace(self._subject.attempt, arm=BASELINE)
            context = replace(self._subject, attempt=attempt, plan=plan)
            try:
                self._prepare(context)
            except (Stopped, DiskFull):
                raise
            except (AttemptEnd, OSError) as error:
                problem = error.detail if isinstance(error, AttemptEnd) else str(error)
            else:
                return context
        text = f"benchmarks run alone, because the baseline cannot be prepared: {problem}"
        self._subject.events.log("warning", text)
        return None

    def _prepare(self, context: AttemptContext) -> None:
        context.attempt.own.mkdir(exist_ok=True, mode=0o755)
        copy_payload(context)
        self._installed = build_overlay(context)
        account = self._runner.user.account
        if account is not None:
            give(context.attempt.payload, account[0], account[1])
        self._payload = payload_copy(context)
        prove_subject(context, self.runner(context))
