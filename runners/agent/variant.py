"""One side of an attempt: its payload, its environment, and the proof of its subject.

The subject's side is what every job runs on. The baseline's is made beside it, in folders of its
own, when the first paired benchmark needs it; what goes wrong there fails no job of the subject.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import Dict, Mapping, Optional, Tuple

from . import environment_facts, installed, job_env, subject
from .attempt_context import Crew, Desk
from .failures import DiskFull, Ending, EnvironmentFailed, Stopped
from .installed import Files
from .job_user import give
from .overlay import Overlay
from .payload_copy import PayloadCopy

BASELINE = "baseline"


def copy_payload(desk: Desk) -> None:
    """Give the side a copy of the payload for itself.

    Raises:
        Ending: it is not on this machine, or cannot be copied.
    """
    attempt = desk.attempt
    source = attempt.pristine(desk.plan.payload)
    if not source.is_dir():
        raise Ending(f"payload {desk.plan.payload} has not been unpacked on this machine")
    shutil.rmtree(attempt.payload, ignore_errors=True)
    try:
        shutil.copytree(source, attempt.payload, symlinks=True)
        for folder in (attempt.jobs, attempt.artifacts, attempt.given):
            folder.mkdir(exist_ok=True)
    except (OSError, shutil.Error) as error:
        raise_if_full(desk)
        raise Ending(f"the payload cannot be copied: {error}") from error


def payload_copy(desk: Desk) -> PayloadCopy:
    """Begin to watch the side's copy: whoever runs its jobs owns it by now."""
    return PayloadCopy(desk.attempt.pristine(desk.plan.payload), desk.attempt.payload)


def build_overlay(desk: Desk) -> Tuple[Files, ...]:
    """Build the side's environment, and list what is in it; what the tools say is in the log.

    Raises:
        EnvironmentFailed: it cannot be made.
    """
    stream = desk.masker.stream()
    overlay = Overlay(
        desk.attempt,
        desk.plan,
        tick=desk.pulse.check,
        sink=lambda data: desk.log.write(stream.feed(data)),
    )
    try:
        overlay.build()
        return installed.take(desk.attempt, desk.plan.subject, desk.pulse.check)
    except (EnvironmentFailed, OSError) as error:
        raise_if_full(desk)
        if isinstance(error, EnvironmentFailed):
            raise
        raise EnvironmentFailed(f"the environment cannot be made: {error}") from error
    finally:
        desk.log.write(stream.finish())


def prove_subject(desk: Desk, crew: Crew) -> None:
    """Prove that it is installed, and imported, for every way in which jobs' imports may differ.

    Raises:
        WrongSubject: something else is, or would be.
    """
    if desk.plan.subject is None:
        return
    subject.prove_installed(desk.plan.subject, crew.installed)
    ways: Dict[Optional[str], Mapping[str, str]] = {}
    for job in desk.plan.jobs:
        env = job_env.for_job(crew.variables, job=job, attempt=desk.attempt, secrets={})
        ways.setdefault(env.get("PYTHONPATH"), env)
    for way in ways.values() if ways else (crew.variables,):
        asker = environment_facts.Asker(desk.attempt, way, crew.user.account, desk.pulse.check)
        subject.prove(desk.plan.subject, asker)


def raise_if_full(desk: Desk) -> None:
    """Blame a disk that is full.

    Raises:
        DiskFull: it is.
    """
    if shutil.disk_usage(desk.attempt.folder).free < 1024 * 1024:
        raise DiskFull("the disk is full: nothing could be prepared")


class BaselineSide:
    """The baseline, made when it is first asked for."""

    def __init__(self, desk: Desk, crew: Crew) -> None:
        self._subject = desk
        self._crew = crew
        self._tried = False
        self._desk: Optional[Desk] = None
        self._installed: Tuple[Files, ...] = ()
        self._payload: Optional[PayloadCopy] = None

    def get(self) -> Optional[Desk]:
        """Return the baseline's desk, or None where there is no baseline; the log says why.

        Raises:
            Stopped: somebody asked for it.
            DiskFull: nothing more can be written.
        """
        if not self._tried:
            self._tried = True
            self._desk = self._made()
        return self._desk

    def crew(self, desk: Desk) -> Crew:
        """Return who runs the baseline's turns: the same user, in the baseline's environment."""
        plan, user = desk.plan, self._crew.user
        variables = job_env.common(
            desk.attempt, name=plan.attempt, environment=plan.environment, user=user
        )
        payload = self._payload or self._crew.payload
        return replace(self._crew, variables=variables, payload=payload, installed=self._installed)

    def _made(self) -> Optional[Desk]:
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
            desk = replace(self._subject, attempt=attempt, plan=plan)
            try:
                self._prepare(desk)
            except (Stopped, DiskFull):
                raise
            except (Ending, OSError) as error:
                problem = error.detail if isinstance(error, Ending) else str(error)
            else:
                return desk
        text = f"benchmarks run alone, because the baseline cannot be prepared: {problem}"
        self._subject.events.log("warning", text)
        return None

    def _prepare(self, desk: Desk) -> None:
        desk.attempt.own.mkdir(exist_ok=True, mode=0o755)
        copy_payload(desk)
        self._installed = build_overlay(desk)
        account = self._crew.user.account
        if account is not None:
            give(desk.attempt.payload, account[0], account[1])
        self._payload = payload_copy(desk)
        prove_subject(desk, self.crew(desk))
