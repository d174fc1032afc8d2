"""Verdicts as rows, and back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Select, insert, select
from sqlalchemy.orm import Session

from orchestrator.domain.gate.gate_documents import canonical, read_verdict, verdict_document
from orchestrator.domain.gate.verdict import Verdict
from orchestrator.store.errors import DamagedError
from orchestrator.store.sql import insert_into, slices
from orchestrator.store.tables import VerdictRow, VerdictRunRow


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredVerdict:
    """A verdict and where the bytes are that it was made from. All digests are of blobs."""

    id: str
    """``V-0001``; empty of one that is about to be stored."""
    gate: str
    verdict: Verdict
    runs: tuple[str, ...]
    """Whose evidence it is about."""
    lineage: str
    """The line of verdicts that it stands in; the gate's name where nobody says."""
    created_at: datetime
    snapshot_digest: str
    """Of the frozen evidence with the waivers and approvals that it was made with."""
    document_digest: str
    """Of the verdict's canonical bytes."""
    envelope_digest: str
    """Of the signed statements."""
    key_id: str
    """Who signed."""


def keep_verdict(session: Session, verdict: StoredVerdict, *, key: str | None) -> int | None:
    """Add it with its runs; its number, or None where the key has one already."""
    values = {
        "key": key,
        "gate": verdict.gate,
        "lineage": verdict.lineage,
        "decision": verdict.verdict.decision,
        "policy_digest": verdict.verdict.policy_digest,
        "last_run": max(verdict.runs, default=""),
        "created_at": verdict.created_at,
        "document": canonical(verdict_document(verdict.verdict)).decode(),
        "snapshot_digest": verdict.snapshot_digest,
        "document_digest": verdict.document_digest,
        "envelope_digest": verdict.envelope_digest,
        "key_id": verdict.key_id,
    }
    new = insert_into(session, VerdictRow).values(values).on_conflict_do_nothing()
    added = session.scalars(new.returning(VerdictRow.pk)).one_or_none()
    rows = [
        {"verdict": added, "position": position, "run_id": run}
        for position, run in enumerate(verdict.runs)
    ]
    if added is not None and rows:
        session.execute(insert(VerdictRunRow), rows)
    return added


def read_verdicts(session: Session, query: Select[VerdictRow]) -> list[StoredVerdict]:
    """The verdicts of a query, in its order."""
    rows = session.scalars(query).all()
    runs = runs_of_verdicts(session, [row.pk for row in rows])
    return [_verdict(row, runs.get(row.pk, [])) for row in rows]


def runs_of_verdicts(session: Session, verdicts: Sequence[int]) -> Mapping[int, list[str]]:
    """Whose evidence each of these verdicts is about, in its order."""
    found: dict[int, list[str]] = {}
    for some in slices(verdicts):
        query = select(VerdictRunRow.verdict, VerdictRunRow.run_id)
        query = query.where(VerdictRunRow.verdict.in_(some)).order_by(VerdictRunRow.position)
        for verdict, run in session.execute(query):
            found.setdefault(verdict, []).append(run)
    return found


def _verdict(row: VerdictRow, runs: Sequence[str]) -> StoredVerdict:
    try:
        verdict = read_verdict(json.loads(row.document))
    except ValueError as error:
        raise DamagedError(f"the stored verdict V-{row.pk:04d} cannot be read back") from error
    return StoredVerdict(
        id=f"V-{row.pk:04d}",
        gate=row.gate,
        verdict=verdict,
        runs=tuple(runs),
        lineage=row.lineage,
        created_at=row.created_at,
        snapshot_digest=row.snapshot_digest,
        document_digest=row.document_digest,
        envelope_digest=row.envelope_digest,
        key_id=row.key_id,
    )
