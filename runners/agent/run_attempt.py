"""The attempt from its first event to its last."""

from __future__ import annotations

import time
from typing import Callable, Dict, List, Mapping, Optional

from . import (
    device_check,
    devices,
    environment_facts,
    event_lines,
    job_env,
    job_user,
    metadata_guard,
    plan,
    processes,
    subject_metadata,
    suite,
    variant,
)
from .attempt_context import AttemptContext, JobRunner
from .attempt_errors import AttemptEnd, DiskFull, EnvironmentFailed, Stopped
from .events import Data, EventWriter, is_full
from .evidence_text import SHORTEST, JsonValue, Masker
from .heartbeat import Heartbeat
from .installed_packages import EnvironmentCopy, EnvironmentInventory
from .job_context import arm_output
from .job_output import Sink
from .job_run import JobRun
from .job_user import User
from .layout import AttemptFolder
from .pack_artifacts import Packer
from .plan import PlanError, PlanJob
from .preemption_notices import Notices

_TRACEBACK_CHARS = 8_000
_HURRIED_PACKING_S = 8.0
"""Seconds for packing, of the 30 s of the shortest notice; the rest is for the transfer."""


def run(attempt: AttemptFolder, secrets: Mapping[str, str]) -> None:
    """Run the plan; the last event always reports how the attempt ended."""
    past = event_lines.read(attempt.events)
    suite.digests_at_start()
    masker = Masker(secrets.values())
    problem: Optional[PlanError] = None
    try:
        todo = plan.load(attempt.plan)
    except PlanError as error:
        todo, problem = plan.NOTHING, error
    events = EventWriter(
        attempt.events,
        reserve=attempt.reserve,
        masker=masker,
        text_bytes=todo.limits.text_bytes,
        after_seq=past.last_seq,
    )
    spent_s = max(time.time() - past.began_at, 0.0) if past.began_at is not None else 0.0
    notices = Notices(todo.preemption, todo.metadata_url)
    notices.start()
    heartbeat = Heartbeat(
        attempt,
        events,
        notices,
        heartbeat_s=todo.limits.heartbeat_s,
        left_s=max(todo.limits.deadline_s - spent_s, 0.0),
    )
    heartbeat.heed_signals()
    log = Sink(attempt.log, events)
    context = AttemptContext(attempt, todo, events, log, masker, heartbeat)
    _end(context, lambda: AttemptRun(context, secrets, past).do(problem))


def _end(context: AttemptContext, work: Callable[[], None]) -> None:
    """Run the attempt, and emit how it ended. Errors of the agent become part of that event."""
    data: Data = {"outcome": "completed", "reason": None, "detail": ""}
    try:
        work()
    except AttemptEnd as ending:
        data = {"outcome": ending.outcome, "reason": ending.reason, "detail": ending.detail}
    except Exception as error:  # noqa: BLE001 - the agent's own fault is evidence too
        import traceback  # noqa: PLC0415 - needed by an agent that fails only

        text = traceback.format_exc()[-_TRACEBACK_CHARS:]
        full = context.events.disk_full or (isinstance(error, OSError) and is_full(error))
        reason = "disk_full" if full else "agent"
        detail = f"the agent itself failed: {type(error).__name__}: {error}\n{text}"
        data = {"outcome": "errored", "reason": reason, "detail": detail}
    context.events.emit("end", None, data)
    context.events.close()
    context.log.close()


_SEATRIAL = "seatrial"
_OWN_ENVIRONMENT = (
    "the jobs run in the environment that Seatrial itself is installed in: all of its {} packages "
    "can be imported, also those that payload.toml does not declare; name another interpreter in "
    "python.candidates, or keep Seatrial in an environment of its own that is not on PATH"
)


class AttemptRun:
    """The phases of an attempt, in order."""

    def __init__(
        self, context: AttemptContext, secrets: Mapping[str, str], past: event_lines.History
    ) -> None:
        self._context = context
        self._secrets = secrets
        self._past = past
        self._beside: Optional[variant.BaselineSide] = None

    def do(self, problem: Optional[PlanError]) -> None:
        """Prepare, run, pack.

        Raises:
            AttemptEnd: The attempt ends before its jobs are done.
        """
        if problem is not None:
            raise AttemptEnd(f"the plan cannot be followed: {problem}")
        if self._past.last_seq:
            self._take_over()
        self._phase("preparing")
        self._warn_of_short_secrets()
        runner, environment = self._prepare()
        self._phase("running")
        ending = self._run_jobs(runner)
        self._phase("packing")
        self._pack(environment)
        if ending is not None:
            raise ending

    def _phase(self, name: str) -> None:
        self._context.events.emit("phase", None, {"name": name})

    def _take_over(self) -> None:
        """Continue the attempt of an agent that died, after killing its processes."""
        attempt = self._context.attempt
        processes.kill_all(lambda: processes.marked(attempt.folder))
        text = "an earlier agent of this attempt died; this one goes on with what is left"
        self._context.events.log("warning", text)

    def _warn_of_short_secrets(self) -> None:
        for name, value in self._secrets.items():
            if len(value) < SHORTEST:
                text = f"secret {name} is shorter than {SHORTEST} characters and is not masked"
                self._context.events.log("warning", text)

    def _prepare(self) -> "tuple[JobRunner, JsonValue]":
        context = self._context
        context.attempt.plan.chmod(0o600)
        variant.copy_payload(context)
        variant.build_overlay(context)
        user = job_user.choose(
            context.attempt,
            wanted=context.plan.payload_user,
            guarded=context.plan.metadata_guard,
            tick=context.heartbeat.check,
        )
        separation = self._separation(user)
        inventory = variant.list_environment(context, user.account)
        runner = self._runner(user, inventory)
        asker = environment_facts.Asker(
            context.attempt, runner.variables, user.account, context.heartbeat.check
        )
        facts = environment_facts.gather(asker, lambda text: context.events.log("warning", text))
        environment = facts.event
        environment["undeclared_requirements"] = inventory.undeclared
        environment["subject_imports"] = list(inventory.subject_imports)
        environment.update(separation)
        self._see_metadata(runner, environment)
        self._see_whose(environment)
        self._see_readiness(asker, facts)
        variant.prove_subject(context, runner)
        return runner, environment

    def _separation(self, user: User) -> Dict[str, JsonValue]:
        """Return how the jobs are separated from the agent and from the metadata server.

        Raises EnvironmentFailed if untrusted code would not be separated.
        """
        context = self._context
        facts: Dict[str, JsonValue] = {
            "separated_user": user.separated,
            "separated_user_reason": user.reason,
        }
        if context.plan.metadata_guard:
            closed, seen = metadata_guard.close(
                user.account, context.attempt.python, context.heartbeat.check
            )
            facts["metadata_closed"] = closed
            facts["metadata_closed_reason"] = seen
            if not closed:
                text = f"jobs can read the cloud's metadata, the machine's host key too: {seen}"
                context.events.log("warning", text)
        for fact in ("separated_user", "metadata_closed") if context.plan.untrusted else ():
            if not facts.get(fact):
                why = facts.get(f"{fact}_reason", "this provider has no guard of the metadata")
                raise EnvironmentFailed(f"untrusted code does not run here: {fact} is false: {why}")
        return facts

    def _see_metadata(self, runner: JobRunner, environment: Dict[str, JsonValue]) -> None:
        """Add the subject's installed metadata to `environment`; warn of other versions."""
        found = subject_metadata.find(self._context, runner)
        product = self._context.plan.product
        if found is not None and product is not None:
            environment.update(found.facts())
            text = found.warning(product, is_payload=self._context.plan.subject is None)
            if text:
                self._context.events.log("warning", text)

    def _see_whose(self, environment: Dict[str, JsonValue]) -> None:
        """Store in `environment` whether the jobs see Seatrial's own packages; warn if they do."""
        found = environment["packages"]
        assert isinstance(found, Mapping)
        subject = self._context.plan.subject
        own = _SEATRIAL in found and (subject is None or subject.distribution != _SEATRIAL)
        environment["own_environment"] = own
        if own:
            text = _OWN_ENVIRONMENT.format(len(found))
            self._context.events.log("warning", text)

    def _see_readiness(
        self, asker: environment_facts.Asker, facts: environment_facts.OverlayFacts
    ) -> None:
        """Emit the environment, with the device check if the plan requests one."""
        environment = facts.event
        asked = self._context.plan.readiness
        if asked is None:
            self._context.events.emit("environment", None, environment)
            return
        result = device_check.see(asked, asker, has_torch=facts.has_torch)
        environment["readiness"] = result
        self._context.events.emit("environment", None, environment)
        device_check.enforce(asked, result)

    def _runner(self, user: User, inventory: EnvironmentInventory) -> JobRunner:
        plan_ = self._context.plan
        shared = job_env.common(
            self._context.attempt, name=plan_.attempt, environment=plan_.environment, user=user
        )
        gpus = devices.gpu_count(devices.find()) if any(job.gpus for job in plan_.jobs) else 0
        return JobRunner(
            user,
            shared,
            self._secrets,
            gpus,
            payload=variant.payload_copy(self._context, inventory.names),
            environment=EnvironmentCopy(self._context.attempt.venv),
            installed=inventory.files,
        )

    def _run_jobs(self, runner: JobRunner) -> Optional[AttemptEnd]:
        """Run the unfinished jobs; return why not all ran, or None."""
        for job in self._context.plan.jobs:
            if job.id in self._past.finished:
                continue
            try:
                self._context.heartbeat.check()
                cause = self._run_job(runner, job)
            except (Stopped, DiskFull) as ending:
                return ending
            if cause == "stopped":
                return self._context.heartbeat.ending() or Stopped("cancelled", "stopped")
            if cause == "disk_full":
                return self._say_full()
        return None

    def _run_job(self, runner: JobRunner, job: PlanJob) -> Optional[str]:
        done = sorted(self._past.done.get(job.id, ()))
        baseline = self._baseline(runner) if job.paired is not None else None
        return JobRun(self._context, runner, job, baseline=baseline).run(done=done).cause

    def _baseline(self, runner: JobRunner) -> "Optional[tuple[AttemptContext, JobRunner]]":
        """Return the baseline's context and runner; made for the first paired job."""
        if self._beside is None:
            self._beside = variant.BaselineSide(self._context, runner)
        context = self._beside.get()
        return None if context is None else (context, self._beside.runner(context))

    def _say_full(self) -> DiskFull:
        self._context.events.full()
        lost = (
            f"; {self._context.events.lost} events were lost" if self._context.events.lost else ""
        )
        text = f"the disk is full: no more jobs are run, what was written until now is kept{lost}"
        self._context.events.log("error", text)
        return DiskFull(text)

    def _pack(self, environment: JsonValue) -> None:
        if self._context.events.disk_full:
            return  # the space that is left is for the last events
        hurried = self._context.heartbeat.hurried
        packer = Packer(self._context, patience_s=_HURRIED_PACKING_S if hurried else None)
        jobs: List[str] = [job.id for job in self._context.plan.jobs]
        try:
            packer.outputs([*jobs, *(arm_output(job, variant.BASELINE) for job in jobs)])
            packer.facts(environment, details=not hurried)
            for job in jobs:
                packer.left_by(job)
        except OSError as error:
            variant.raise_if_full(self._context)
            raise AttemptEnd(f"artifacts cannot be packed: {error}") from error
        packer.announce(jobs)
