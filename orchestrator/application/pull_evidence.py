"""Pulls evidence from a machine and stores it: the centre of every running cell."""

from __future__ import annotations

from datetime import datetime

from orchestrator.application.ports.workspaces import Workspace
from orchestrator.domain.event_facts import fold
from orchestrator.domain.evidence import LINE_LIMIT_BYTES, EvidenceBatch, read_events
from orchestrator.store.attempt_evidence import EvidencePosition, EvidenceStore


def pull_evidence(
    workspace: Workspace,
    store: EvidenceStore,
    attempt_id: str,
    have: EvidencePosition,
    *,
    at: datetime,
    limit_bytes: int,
) -> tuple[EvidenceBatch | None, EvidencePosition]:
    """Fetch and store new evidence once.

    A line longer than the limit, such as the manifest of 60,000 tests, is fetched whole.

    Args:
        workspace: On the attempt's machine.
        store: The store of evidence.
        attempt_id: Id of the attempt.
        have: The stored position.
        at: Now.
        limit_bytes: Maximum bytes of one fetch.

    Returns:
        The machine's answer (None if it has no such attempt), and the new position.

    Raises:
        ShellError: The machine could not be reached; nothing was stored.
        EvidenceError: The bytes are not evidence; nothing was stored.
    """
    while True:
        pulled = workspace.pull(
            attempt_id,
            events_offset=have.events_bytes,
            log_offset=have.log_bytes,
            limit_bytes=limit_bytes,
        )
        if pulled is None or len(pulled.events) < limit_bytes or b"\n" in pulled.events:
            break
        if limit_bytes > LINE_LIMIT_BYTES:
            break  # it is refused
        limit_bytes = min(4 * limit_bytes, LINE_LIMIT_BYTES + 1)
    if pulled is None:
        return None, have
    events, used = read_events(pulled.events, after_seq=have.seq)
    if not used and not pulled.log:
        return pulled, have
    whole = pulled.events[:used]
    now = store.append(attempt_id, have, at=at, events=whole, facts=fold(events), log=pulled.log)
    return pulled, now or store.position(attempt_id)


def drained(pulled: EvidenceBatch, have: EvidencePosition) -> bool:
    """Whether all of the machine's evidence is stored, without an incomplete last line."""
    torn = not pulled.alive and have.events_bytes + len(pulled.events) >= pulled.events_size_bytes
    whole = have.events_bytes >= pulled.events_size_bytes
    return (whole or torn) and have.log_bytes >= pulled.log_size_bytes
