"""The plan that the agent is given: everything it must know, in JSON."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from orchestrator.application.cell.environment import PreparedEnvironment
from orchestrator.application.cell.world import Situation
from orchestrator.domain.manifest import Job

PLAN_VERSION = 1
LOG_LIMIT_BYTES = 64 * 1024 * 1024
TEXT_LIMIT_BYTES = 64 * 1024
RESTARTS = 5
"""Fresh processes after a crash or a hang, per job."""


def agent_plan(
    now: Situation,
    environment: PreparedEnvironment,
    *,
    finals: Mapping[str, Sequence[str]],
    finished: Collection[str],
) -> dict[str, object]:
    """Build the plan of an attempt.

    Args:
        now: The attempt.
        environment: What it runs in.
        finals: By job, the tests that an earlier attempt finished; they are not run again.
        finished: The jobs that an earlier attempt finished.
    """
    manifest = now.spec.manifest
    asked = manifest.environment(now.plan.environment)
    return {
        "v": PLAN_VERSION,
        "attempt": now.attempt.id,
        "payload": now.run.payload_digest,
        "wheels": environment.wheels_digest,
        "python": environment.python,
        "environment": {
            "name": now.plan.environment,
            "requirements": list(environment.requirements),
            "constraints": list(environment.constraints),
            "index": bool(asked and asked.index),
            "variables": dict(asked.variables) if asked else {},
        },
        "subject": dict(environment.subject) if environment.subject else None,
        "payload_user": now.plan.platform.provider != "local",
        "limits": {
            "log_bytes": LOG_LIMIT_BYTES,
            "text_bytes": TEXT_LIMIT_BYTES,
            "restarts": RESTARTS,
            "deadline_s": now.spec.matrix.limits.max_minutes * 60,
            "kill_grace_s": 5,
            "heartbeat_s": 5,
        },
        "jobs": [
            _job(job, finals.get(job.id, ()))
            for job in manifest.job
            if job.id in now.plan.jobs and job.id not in finished
        ],
    }


def _job(job: Job, finals: Sequence[str]) -> dict[str, object]:
    return {
        "id": job.id,
        "kind": job.kind,
        "pytest": list(job.pytest) or None,
        "command": list(job.command) or None,
        "timeout_s": job.timeout_minutes * 60,
        "silence_s": job.silence_minutes * 60,
        "env": dict(job.env),
        "path_variables": ["PYTHONPATH"],
        "gpus": job.gpus,
        "secrets": list(job.secrets),
        "skip": list(finals),
    }
