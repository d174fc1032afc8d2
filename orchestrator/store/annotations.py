"""Annotations of runs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict

from sqlalchemy import select
from sqlalchemy.orm import Session

from orchestrator.domain.ingested import RunAnnotation
from orchestrator.store.sessions import Sessions
from orchestrator.store.sql import insert_into
from orchestrator.store.tables import AnnotationRow


class AnnotationStore:
    """Annotations of runs."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def add(self, run_id: str, annotations: Sequence[RunAnnotation]) -> None:
        """Append annotations; an identical one is stored once."""
        if annotations:
            with self._sessions.write() as session:
                keep_annotations(session, run_id, annotations)

    def of_run(self, run_id: str) -> tuple[RunAnnotation, ...]:
        """Return a run's annotations in the order in which they were added."""
        query = select(AnnotationRow.document).where(AnnotationRow.run_id == run_id)
        with self._sessions.read() as session:
            return tuple(session.scalars(query.order_by(AnnotationRow.pk)))


def keep_annotations(session: Session, run_id: str, annotations: Sequence[RunAnnotation]) -> None:
    """Append new annotations within the caller's transaction."""
    rows = [
        {"run_id": run_id, "digest": _digest(run_id, one), "document": one} for one in annotations
    ]
    if rows:
        session.execute(insert_into(session, AnnotationRow).on_conflict_do_nothing(), rows)


def _digest(run_id: str, annotation: RunAnnotation) -> str:
    said = json.dumps([run_id, asdict(annotation)], sort_keys=True, default=str)
    return hashlib.sha256(said.encode()).hexdigest()
