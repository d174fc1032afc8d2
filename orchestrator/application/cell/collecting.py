"""COLLECTING: stop what still runs, take the last evidence and the raw files; bounded in time."""

from __future__ import annotations

from orchestrator.application.cell.world import (
    GO,
    Situation,
    World,
    is_out_of_reach,
    overdue,
    situation,
    workspace_of,
)
from orchestrator.application.collect_artifacts import collect_artifacts, keep_raw_evidence
from orchestrator.application.ingest_evidence import drained, pull_evidence
from orchestrator.application.ports.bundles import BundleError
from orchestrator.application.ports.engine import NOT_YET, NotYet, Value
from orchestrator.application.ports.workspaces import Workspace
from orchestrator.domain.cell import CellState
from orchestrator.domain.evidence import EvidenceError
from orchestrator.domain.machine import MachineError, ShellError


def look_collected(world: World, attempt_id: str) -> Value | NotYet:
    """Drain the evidence until the agent's `end`, or until nothing more can be had in time."""
    now = situation(world, attempt_id)
    if now.cell.has_reached(CellState.RELEASING):
        return GO
    late = overdue(world, now.cell, world.timings.collect_s) or is_out_of_reach(now.attempt)
    try:
        workspace = workspace_of(world, now.lease)
        if not _is_over(world, now, workspace, late=late):
            return NOT_YET
        collect_artifacts(workspace, world.unpack, world.stores, world.blobs, attempt_id)
    except (MachineError, EvidenceError, BundleError) as error:
        if not late and isinstance(error, ShellError):
            return NOT_YET
        world.stores.feed.add(
            now.run.id, "cell", {"cell": now.cell.name, "notice": f"not collected: {error}"}
        )
    keep_raw_evidence(world.stores, world.blobs, attempt_id)
    return GO


def _is_over(world: World, now: Situation, workspace: Workspace, *, late: bool) -> bool:
    attempt_id, evidence = now.attempt.id, world.stores.evidence
    if evidence.position(attempt_id).end is None:
        cause = now.attempt.cause
        workspace.stop(attempt_id, cause.reason if cause else "agent", kill=late)
    pulled = pull_evidence(
        workspace,
        evidence,
        attempt_id,
        at=world.clock.now(),
        limit_bytes=world.timings.pull_limit_bytes,
    )
    if pulled is None:
        return True
    ended = evidence.position(attempt_id).end is not None or not pulled.alive
    return ended and drained(evidence, attempt_id, pulled)
