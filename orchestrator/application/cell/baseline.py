"""The baseline of paired benchmarks: resolved and shipped in addition to the subject."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial

from orchestrator.application.cell.environment import (
    EnvironmentRefusedError,
    InstallPlan,
    resolved_for,
)
from orchestrator.application.cell.flow_context import FlowDeps
from orchestrator.application.ports.wheels import WheelsError
from orchestrator.application.ports.workspaces import Workspace
from orchestrator.domain.cell import RunSpec
from orchestrator.domain.reuse_inputs import Interpreter
from orchestrator.store.cells import AttemptState

BENCHMARK = "benchmark"


def ship_baseline(
    deps: FlowDeps,
    now: AttemptState,
    workspace: Workspace,
    interpreter: Interpreter,
    *,
    finished: Collection[str],
) -> Mapping[str, object] | None:
    """Ship the baseline to the machine; return its part of the agent's plan.

    None if no benchmark is left to be paired. If the baseline is not available, the plan has the
    reason, and the benchmarks run without a baseline.
    """
    if now.spec.matrix.baseline is None or not _benchmarks(now, finished):
        return None
    try:
        payload, spec = with_baseline(deps, now)
        found = resolved_for(deps, spec, now.plan.environment, interpreter)
    except (EnvironmentRefusedError, WheelsError) as error:
        return {"refused": str(error)}
    wheels = found.resolution.wheels
    if payload != now.run.payload_digest:
        workspace.put_archive("payloads", payload, lambda: deps.blobs.open(payload))
    if wheels is not None:
        workspace.put_archive("wheels", wheels, partial(deps.wheels.open, wheels))
    return _plan_part(now.plan.environment, payload, spec, found)


def _benchmarks(now: AttemptState, finished: Collection[str]) -> bool:
    wanted = (job for job in now.spec.manifest.job if job.id in now.plan.jobs)
    return any(job.kind == BENCHMARK and job.id not in finished for job in wanted)


def with_baseline(deps: FlowDeps, now: AttemptState) -> tuple[str, RunSpec]:
    """Return the payload's digest, and the run with the baseline as its subject.

    Raises EnvironmentRefusedError.
    """
    spec, baseline = now.spec, now.spec.matrix.baseline
    if baseline is None:
        raise EnvironmentRefusedError("the matrix has no baseline")
    if baseline.source == "payload":
        stored = deps.stores.payloads.get(spec.baseline_digest or "")
        if stored is None or not deps.blobs.has(stored.digest):
            raise EnvironmentRefusedError("the baseline's payload is not kept here any more")
        return stored.digest, replace(spec, manifest=stored.manifest)
    subject = baseline.as_subject(spec.matrix.subject.name)
    matrix = replace(spec.matrix, subject=subject)
    installed = replace(spec, matrix=matrix, subject_digest=spec.baseline_digest)
    return now.run.payload_digest, installed


def _plan_part(
    name: str, payload: str, spec: RunSpec, installed: InstallPlan
) -> Mapping[str, object]:
    asked, resolved = spec.manifest.environment(name), installed.resolution
    return {
        "payload": payload,
        "wheels": resolved.wheels,
        "environment": {
            "name": name,
            "requirements": list(resolved.requirements),
            "constraints": list(resolved.constraints),
            "index": bool(asked and asked.index),
            "variables": dict(asked.variables) if asked else {},
        },
        "subject": dict(resolved.subject) if resolved.subject else None,
    }
