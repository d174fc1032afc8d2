"""Bring evidence home by offset: idempotent, and whole lines only."""

from __future__ import annotations

from datetime import datetime

from orchestrator.application.ports.workspaces import Workspace
from orchestrator.domain.evidence import LINE_LIMIT_BYTES, EvidenceBatch, read_events
from orchestrator.domain.facts import fold
from orchestrator.store.evidence import EvidenceStore, Position


def pull_evidence(
    workspace: Workspace,
    store: EvidenceStore,
    attempt_id: str,
    have: Position,
    *,
    at: datetime,
    limit_bytes: int,
) -> tuple[EvidenceBatch | None, Position]:
    """Fetch what is new once, and store it.

    A line that is longer than the limit, as a manifest of sixty thousand tests, is fetched whole.

    Args:
        workspace: On the attempt's machine.
        store: Where evidence is kept.
        attempt_id: Whose it is.
        have: How much of it is stored.
        at: Now.
        limit_bytes: The most to fetch at once.

    Returns:
        What the machine answered (None if it knows no such attempt), and what is stored now.

    Raises:
        ShellError: The machine could not be spoken to; nothing was stored.
        EvidenceError: What it sent is not evidence; nothing was stored.
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


def drained(pulled: EvidenceBatch, have: Position) -> bool:
    """Whether all that the machine had is stored (a torn last line stays there)."""
    torn = not pulled.alive and have.events_bytes + len(pulled.events) >= pulled.events_size_bytes
    whole = have.events_bytes >= pulled.events_size_bytes
    return (whole or torn) and have.log_bytes >= pulled.log_size_bytes
