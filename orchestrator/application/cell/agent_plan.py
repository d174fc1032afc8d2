"""The plan that the agent is given: everything it must know, in JSON."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from orchestrator.application.cell.baseline import BENCHMARK
from orchestrator.application.cell.environment import PreparedEnvironment
from orchestrator.domain.machine import LocalEndpoint
from orchestrator.domain.manifest import Job
from orchestrator.domain.matrix import device_kind
from orchestrator.store.cells import AttemptState

PLAN_VERSION = 1
LOG_LIMIT_BYTES = 64 * 1024 * 1024
TEXT_LIMIT_BYTES = 64 * 1024
READINESS_S = 180
RESTARTS = 5
"""Fresh processes after a crash or a hang, per job."""


def agent_plan(
    now: AttemptState,
    environment: PreparedEnvironment,
    *,
    finals: Mapping[str, Sequence[str]],
    finished: Collection[str],
    notice: str,
    baseline: Mapping[str, object] | None = None,
) -> dict[str, object]:
    """Build the plan of an attempt.

    Args:
        now: The attempt.
        environment: What it runs in.
        finals: By job, the tests that an earlier attempt finished; they are not run again.
        finished: The jobs that an earlier attempt finished.
        notice: How the machine hears that it will be taken away; empty where it does not.
        baseline: The other arm of benchmarks, where they are paired.
    """
    manifest = now.spec.manifest
    return {
        "v": PLAN_VERSION,
        "attempt": now.attempt.id,
        "payload": now.run.payload_digest,
        "wheels": environment.wheels_digest,
        "python": environment.python,
        "environment": _environment(now, environment),
        "subject": dict(environment.subject) if environment.subject else None,
        "payload_user": now.plan.platform.provider != "local",
        "readiness": _readiness(now),
        "preemption": notice or None,
        "baseline": baseline,
        "limits": {
            "log_bytes": LOG_LIMIT_BYTES,
            "text_bytes": TEXT_LIMIT_BYTES,
            "restarts": RESTARTS,
            "deadline_s": now.spec.matrix.limits.max_minutes * 60,
            "kill_grace_s": 5,
            "heartbeat_s": 5,
        },
        "jobs": [
            _job(job, finals.get(job.id, ())) | _turns(now, job, baseline)
            for job in manifest.job
            if job.id in now.plan.jobs and job.id not in finished
        ],
    }


def _environment(now: AttemptState, environment: PreparedEnvironment) -> dict[str, object]:
    asked = now.spec.manifest.environment(now.plan.environment)
    return {
        "name": now.plan.environment,
        "requirements": list(environment.requirements),
        "constraints": list(environment.constraints),
        "index": bool(asked and asked.index),
        "variables": dict(asked.variables) if asked else {},
    }


def _readiness(now: AttemptState) -> dict[str, object] | None:
    """What torch must be able to do before the first job; nothing is asked of this computer."""
    platform, lease = now.plan.platform, now.lease
    if lease is None or isinstance(lease.endpoint, LocalEndpoint):
        return None
    return {
        "device": device_kind(platform),
        "enforce": not lease.simulated,
        "timeout_s": READINESS_S,
    }


def _turns(now: AttemptState, job: Job, baseline: Mapping[str, object] | None) -> dict[str, object]:
    """How a benchmark is measured in turns with the baseline; nothing for any other job."""
    asked = now.spec.matrix.baseline
    if asked is None or baseline is None or job.kind != BENCHMARK:
        return {}
    pairing = {
        "min_pairs": asked.min_pairs,
        "max_pairs": asked.max_pairs,
        "precision": asked.half_width,
    }
    return {"paired": pairing, "turns": job.turns}


def _job(job: Job, finals: Sequence[str]) -> dict[str, object]:
    return {
        "id": job.id,
        "kind": job.kind,
        "pytest": list(job.pytest) or None,
        "command": list(job.command) or None,
        "timeout_s": job.timeout_minutes * 60,
        "silence_s": job.idle_timeout_minutes * 60,
        "env": dict(job.env),
        "path_variables": ["PYTHONPATH"],
        "gpus": job.gpus,
        "secrets": list(job.secrets),
        "skip": list(finals),
    }
