"""A retest session: starts the agent again on the machine, with one thing changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from orchestrator.application.attribute_failures import last_time
from orchestrator.application.cell.baseline import with_baseline
from orchestrator.application.cell.environment import EnvironmentRefusedError, prepare_environment
from orchestrator.application.cell.flow_context import FlowDeps
from orchestrator.application.cell.preparing import (
    agent_plan,
    idle_timeouts,
    interpreters_to_probe,
    secrets_of,
)
from orchestrator.application.ports.workspaces import Workspace
from orchestrator.domain.cell import RunSpec
from orchestrator.domain.derive_outcomes import judge_job
from orchestrator.domain.event_facts import Facts, fold
from orchestrator.domain.evidence import EvidenceError, read_events
from orchestrator.domain.manifest import Environment
from orchestrator.domain.outcome import Counts, TestOutcome
from orchestrator.domain.retests import (
    RetestKind,
    RetestPlan,
    RetestSession,
    job_in_session,
    key_of,
    split_key,
)
from orchestrator.store.cells import AttemptState

ABSENT = "absent"
"""Outcome of a test that was not collected."""
LARGEST_SESSION = 64 * 1024 * 1024
"""Maximum bytes of a session's events."""


def start_session(
    deps: FlowDeps,
    now: AttemptState,
    workspace: Workspace,
    retest_session: RetestSession,
    *,
    deadline_s: float,
) -> None:
    """Prepare a retest session and start its agent; may take minutes; repeatable.

    Raises EnvironmentRefusedError if an environment is not available, and MachineError.
    """
    changed = _changed(deps, now, retest_session.ask)
    _check_jobs(changed.spec, retest_session.ask)
    payload = changed.run.payload_digest
    workspace.put_agent()
    workspace.put_archive("payloads", payload, lambda: deps.blobs.open(payload))
    environment = prepare_environment(
        deps, changed, workspace.probe(interpreters_to_probe(deps, changed))
    )
    if environment.wheels_digest is not None:
        workspace.put_archive("wheels", environment.wheels_digest, environment.wheels)
    plan = agent_plan(
        replace(changed, attempt=replace(now.attempt, id=retest_session.id)),
        environment,
        finals={},
        finished=(),
        idle=idle_timeouts(deps.stores, changed),
        traits=deps.traits(now.plan.platform.provider),
    )
    workspace.start(
        retest_session.id,
        _narrowed(plan, retest_session.ask, deadline_s=deadline_s),
        secrets_of(deps, changed),
    )


def _check_jobs(spec: RunSpec, ask: RetestPlan) -> None:
    """Raise EnvironmentRefusedError if the baseline's payload has none of the jobs."""
    if not {job.id for job in spec.manifest.job} & set(ask.tests):
        jobs = ", ".join(sorted(ask.tests))
        raise EnvironmentRefusedError(f"the payload {spec.manifest.name} has no job {jobs}")


def _changed(deps: FlowDeps, now: AttemptState, ask: RetestPlan) -> AttemptState:
    """Return the attempt with one thing changed."""
    match ask.kind:
        case RetestKind.BASELINE:
            return _with_baseline(deps, now)
        case RetestKind.LAST_GREEN:
            return _with_packages(now, last_time(deps.stores, now.cell, now.spec).pins)
        case RetestKind.BISECT:
            return _with_revision(now, ask)
    return now


def _with_baseline(deps: FlowDeps, now: AttemptState) -> AttemptState:
    payload, spec = with_baseline(deps, now)
    return replace(now, run=replace(now.run, payload_digest=payload), spec=spec)


def _with_packages(now: AttemptState, pins: Sequence[str]) -> AttemptState:
    manifest, name = now.spec.manifest, now.plan.environment
    asked = manifest.environment(name) or Environment()
    pinned = replace(asked, pip=(*asked.pip, *pins))
    changed = replace(manifest, env={**manifest.env, name: pinned}, setup=None)
    return replace(now, spec=replace(now.spec, manifest=changed))


def _with_revision(now: AttemptState, ask: RetestPlan) -> AttemptState:
    subject = now.spec.matrix.subject
    if subject.source == "payload":
        raise EnvironmentRefusedError("the subject is the payload: it has no wheel to change")
    version = ask.subject_version or subject.version
    matrix = replace(now.spec.matrix, subject=replace(subject, version=version))
    spec = replace(now.spec, matrix=matrix, subject_digest=ask.subject_digest)
    return replace(now, spec=spec)


def _narrowed(
    plan: Mapping[str, object], ask: RetestPlan, *, deadline_s: float
) -> dict[str, object]:
    """Return the agent's plan with only the given jobs, each repeated in its own processes."""
    listed = plan["jobs"]
    jobs = {str(job["id"]): job for job in listed} if isinstance(listed, list) else {}
    again = [
        {**jobs[job], "id": job_in_session(job, time), "only": list(nodeids)}
        for time in range(1, ask.times + 1)
        for job, nodeids in ask.tests.items()
        if job in jobs
    ]
    limits = plan["limits"]
    known = dict(limits) if isinstance(limits, dict) else {}
    bounded = {**known, "deadline_s": max(deadline_s, 1.0)}
    return {**plan, "jobs": again, "limits": bounded, "readiness": None}


def read_session(workspace: Workspace, retest_session_id: str, *, limit_bytes: int) -> bytes:
    """Return every event of a session whose agent has ended. Raises MachineError, EvidenceError."""
    raw = b""
    while True:
        pulled = workspace.pull(
            retest_session_id, events_offset=len(raw), log_offset=0, limit_bytes=limit_bytes
        )
        if pulled is None or not pulled.events:
            return raw
        raw += pulled.events
        if len(raw) > LARGEST_SESSION:
            raise EvidenceError(f"a retest session wrote more than {LARGEST_SESSION} bytes")
        if len(raw) >= pulled.events_size_bytes:
            return raw


def outcomes_of(
    raw: bytes, ask: RetestPlan, keys: Sequence[str]
) -> tuple[tuple[Mapping[str, str], ...], str]:
    """Return each retest's outcomes by test key, and the reason if there are none.

    Raises EvidenceError.

    Args:
        raw: The retest session's events.
        ask: The requested retests.
        keys: Keys of the tests in question; when a whole job is retested, only these count.
    """
    events, _ = read_events(raw, after_seq=0)
    facts = fold(events)
    if facts.end is not None and facts.end.outcome == "errored":
        return (), facts.end.detail or facts.end.reason
    times = (_one_time(facts, ask, keys, time) for time in range(1, ask.times + 1))
    found = tuple(outcomes for outcomes in times if outcomes)
    reason = facts.end.reason if facts.end else "the agent ended without an `end` event"
    return found, "" if found else f"no test was run again: {reason or 'nothing was collected'}"


def _one_time(facts: Facts, ask: RetestPlan, keys: Sequence[str], time: int) -> dict[str, str]:
    found = {}
    for job in ask.tests:
        name = job_in_session(job, time)
        if name not in facts.jobs or facts.jobs[name].finished_ts is None:
            continue
        for key in keys:
            of_job, nodeid = split_key(key)
            if of_job == job and (not ask.tests[job] or nodeid in ask.tests[job]):
                word = _test_word(facts, name, nodeid) if nodeid else _job_word(facts, name)
                found[key_of(job, nodeid)] = word
    return found


def _test_word(facts: Facts, name: str, nodeid: str) -> str:
    fact = facts.tests.get((name, nodeid))
    if fact is None:
        return ABSENT
    return fact.outcome.word if fact.final else TestOutcome.MISSING.word


def _job_word(facts: Facts, name: str) -> str:
    checks = [check for check in facts.checks.values() if check.job == name]
    verdict = judge_job(
        name, kind="demo", fact=facts.jobs[name], counts=Counts(), checks=checks, cause=None
    )
    return verdict.outcome.value
