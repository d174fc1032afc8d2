"""Tables of runs, cells, attempts and their retests."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Column, ForeignKey, Index, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from orchestrator.domain.cell import CellState, RunEvent, RunSpec, RunState
from orchestrator.domain.ingested import Ingested, RunAnnotation
from orchestrator.domain.matrix import CellPlan
from orchestrator.domain.outcome import Outcome
from orchestrator.domain.retention import PrunedPart
from orchestrator.domain.retests import RetestSession
from orchestrator.domain.reuse_inputs import Prepared
from orchestrator.store.column_types import DocumentColumn, Name, OneOf
from orchestrator.store.tables.shared_columns import (
    Id,
    KeyAttempt,
    KeyCell,
    KeyRun,
    Long,
    OfAttempt,
    OfCell,
    OfRun,
    Pk,
    TableBase,
    UniqueId,
    table_of,
)


class IngestRow(TableBase):
    """Provenance of an ingested cell."""

    __tablename__ = "ingest"

    cell: Mapped[KeyCell]
    fingerprint: Mapped[UniqueId]
    document: Mapped[Ingested] = mapped_column(DocumentColumn(Ingested))


class AnnotationRow(TableBase):
    """An annotation of a run."""

    __tablename__ = "annotation"

    pk: Mapped[Pk]
    run_id: Mapped[OfRun] = mapped_column(index=True)
    digest: Mapped[UniqueId]
    """Digest of run and annotation: an identical one is stored once."""
    document: Mapped[RunAnnotation] = mapped_column(DocumentColumn(RunAnnotation))


class RunRow(TableBase):
    """A run."""

    __tablename__ = "run"
    __table_args__ = (
        Index(
            "ix_run_unfinished",
            "id",
            postgresql_where=text("state <> 'finished'"),
            sqlite_where=text("state <> 'finished'"),
        ),
    )

    id: Mapped[Id]
    matrix_name: Mapped[str]
    subject_name: Mapped[str]
    subject_version: Mapped[str]
    payload_digest: Mapped[str]
    product: Mapped[str]
    """The payload's name: tests of different payloads are different tests."""
    build: Mapped[str]
    """Digest of what was tested (`tested_build`)."""
    created_at: Mapped[datetime]
    state: Mapped[RunState] = mapped_column(OneOf(RunState))
    outcome: Mapped[Outcome | None]
    finished_at: Mapped[datetime | None]
    cancel_requested_at: Mapped[datetime | None]
    rerun_of: Mapped[str | None]
    commit_sha: Mapped[str] = mapped_column(default="")
    branch: Mapped[str] = mapped_column(default="")
    author: Mapped[str] = mapped_column(default="")
    is_dirty: Mapped[bool] = mapped_column(default=False)
    confirmation_run_id: Mapped[str | None]
    """The run that repeats its failures on another machine."""


class RunSpecRow(TableBase):
    """The parameters that a run was launched with."""

    __tablename__ = "run_spec"

    run_id: Mapped[KeyRun]
    spec: Mapped[RunSpec] = mapped_column(DocumentColumn(RunSpec))


class IdempotencyKeyRow(TableBase):
    """An idempotency key with its run."""

    __tablename__ = "idempotency_key"

    key: Mapped[Id]
    fingerprint: Mapped[str]
    claimed_at: Mapped[datetime]
    run_id: Mapped[str | None] = mapped_column(Name, ForeignKey("run.id"))


RUN_EVENTS = table_of(
    "run_event",
    RunEvent,
    ("number",),
    Column("run_id", Name, ForeignKey("run.id"), primary_key=True),
    sqlite_with_rowid=False,
)
"""Numbered pointers to something new in a run."""


PRUNED_PARTS = table_of(
    "pruned_part",
    PrunedPart,
    ("part",),
    Column("run_id", Name, ForeignKey("run.id"), primary_key=True),
)
"""Parts of runs that were pruned, and why."""


class PruneRow(TableBase):
    """The last completed prune; one row."""

    __tablename__ = "prune"

    pk: Mapped[Pk]
    ended_at: Mapped[datetime]


class CellRow(TableBase):
    """A cell."""

    __tablename__ = "cell"
    __table_args__ = (
        UniqueConstraint("run_id", "position"),
        UniqueConstraint("run_id", "name"),
        Index(
            "ix_cell_unfinished",
            "pk",
            postgresql_where=text("state <> 'done'"),
            sqlite_where=text("state <> 'done'"),
        ),
    )

    pk: Mapped[Pk]
    id: Mapped[UniqueId]
    run_id: Mapped[OfRun]
    name: Mapped[str]
    position: Mapped[int]
    state: Mapped[CellState] = mapped_column(OneOf(CellState))
    entered_at: Mapped[datetime | None]
    outcome: Mapped[Outcome | None]
    reason: Mapped[str] = mapped_column(default="")
    detail: Mapped[str] = mapped_column(default="")


class CellPlanRow(TableBase):
    """The cell's part of the matrix."""

    __tablename__ = "cell_plan"

    cell: Mapped[KeyCell]
    plan: Mapped[CellPlan] = mapped_column(DocumentColumn(CellPlan))


class TransitionRow(TableBase):
    """A transition of a cell."""

    __tablename__ = "transition"

    pk: Mapped[Pk]
    cell: Mapped[OfCell] = mapped_column(index=True)
    at: Mapped[datetime]
    attempt: Mapped[int]
    from_state: Mapped[str]
    to_state: Mapped[str]
    reason: Mapped[str]


class AttemptRow(TableBase):
    """An attempt, with the position of its stored evidence."""

    __tablename__ = "attempt"
    __table_args__ = (UniqueConstraint("cell", "number"),)

    pk: Mapped[Pk]
    id: Mapped[UniqueId]
    cell: Mapped[OfCell]
    number: Mapped[int]
    opened_at: Mapped[datetime]
    cause_outcome: Mapped[Outcome | None]
    cause_reason: Mapped[str] = mapped_column(default="")
    cause_detail: Mapped[str] = mapped_column(default="")
    outcome: Mapped[Outcome | None]
    closed_at: Mapped[datetime | None]
    seq: Mapped[Long] = mapped_column(default=0)
    events_bytes: Mapped[Long] = mapped_column(default=0)
    log_bytes: Mapped[Long] = mapped_column(default=0)
    last_event_at: Mapped[datetime | None]
    end_outcome: Mapped[str | None]
    """Outcome that the agent reported at its end; NULL before."""
    end_reason: Mapped[str] = mapped_column(default="")
    end_detail: Mapped[str] = mapped_column(default="")
    tests_seen: Mapped[int] = mapped_column(default=0)
    """Counts mentions of tests, so that they keep the order in which they were collected."""
    retests_ended_at: Mapped[datetime | None]
    """Time since which the attempt accepts no retests; NULL if it does."""
    collected_at: Mapped[datetime | None]
    """Time at which the files of its jobs were collected; NULL if they were not."""


class AttemptEnvironmentRow(TableBase):
    """The reuse inputs that an attempt was prepared with."""

    __tablename__ = "attempt_environment"

    attempt: Mapped[KeyAttempt]
    document: Mapped[Prepared] = mapped_column(DocumentColumn(Prepared))


class ReusableResultRow(TableBase):
    """A passed job with its reuse inputs."""

    __tablename__ = "reusable_result"
    __table_args__ = (
        Index("ix_reusable_result_requested", "requested_digest", "job", "produced_at"),
        Index(
            "ix_reusable_result_platform",
            "product",
            "platform",
            "environment",
            "job",
            "produced_at",
        ),
    )

    cell: Mapped[KeyCell]
    job: Mapped[str] = mapped_column(Name, primary_key=True)
    attempt: Mapped[OfAttempt]
    """The attempt whose preparation it depends on."""
    requested_digest: Mapped[str] = mapped_column(Name)
    product: Mapped[str] = mapped_column(Name)
    platform: Mapped[str] = mapped_column(Name)
    environment: Mapped[str] = mapped_column(Name)
    produced_at: Mapped[datetime]


class CellReuseRow(TableBase):
    """The reuse decision for a job, made before the cell rents a machine."""

    __tablename__ = "cell_reuse"

    cell: Mapped[KeyCell]
    job: Mapped[str] = mapped_column(Name, primary_key=True)
    source: Mapped[int | None] = mapped_column(ForeignKey("cell.pk"))
    """The cell whose evidence is reused; NULL if the job runs."""
    produced_at: Mapped[datetime | None]
    reason: Mapped[str]
    decided_at: Mapped[datetime]


class RetestSessionRow(TableBase):
    """A retest session."""

    __tablename__ = "retest_session"
    __table_args__ = (UniqueConstraint("attempt", "key"),)

    pk: Mapped[Pk]
    id: Mapped[UniqueId]
    attempt: Mapped[OfAttempt]
    run_id: Mapped[OfRun] = mapped_column(index=True)
    key: Mapped[str]
    document: Mapped[RetestSession] = mapped_column(DocumentColumn(RetestSession))
