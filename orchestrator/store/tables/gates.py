"""Tables of release gates: policies, verdicts, waivers, approvals, keys; and of schedules."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ForeignKey, ForeignKeyConstraint, Index, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from orchestrator.domain.gate.payload_review import PayloadReview
from orchestrator.domain.gate.snapshot import Waiver
from orchestrator.domain.gate.verdict import Decision
from orchestrator.domain.schedule import Firing, FiringState, Schedule
from orchestrator.store.column_types import DocumentColumn, Name, OneOf
from orchestrator.store.tables.shared_columns import Id, Pk, TableBase


class PolicyRow(TableBase):
    """A version of a policy."""

    __tablename__ = "policy"

    digest: Mapped[Id]
    product: Mapped[str]
    text: Mapped[str]
    """The file as it was uploaded."""
    document: Mapped[str]
    """Canonical JSON."""
    first_seen: Mapped[datetime]


class GatePolicyRow(TableBase):
    """A policy of a gate; the highest number is the present one."""

    __tablename__ = "gate_policy"
    __table_args__ = (UniqueConstraint("gate", "number"),)

    pk: Mapped[Pk]
    gate: Mapped[str] = mapped_column(Name)
    number: Mapped[int]
    digest: Mapped[str] = mapped_column(Name, ForeignKey("policy.digest"))
    since: Mapped[datetime]
    by: Mapped[str]


class VerdictRow(TableBase):
    """A verdict; never changed."""

    __tablename__ = "verdict"
    __table_args__ = (
        ForeignKeyConstraint(["policy_digest"], ["policy.digest"], name="fk_verdict_policy"),
    )

    pk: Mapped[Pk]
    key: Mapped[str | None] = mapped_column(Name, unique=True)
    gate: Mapped[str] = mapped_column(Name, index=True)
    lineage: Mapped[str] = mapped_column(Name, index=True)
    decision: Mapped[Decision] = mapped_column(OneOf(Decision))
    policy_digest: Mapped[str] = mapped_column(Name)
    last_run: Mapped[str] = mapped_column(Name)
    """The newest of its runs; empty without any."""
    created_at: Mapped[datetime]
    document: Mapped[str]
    """Canonical JSON."""
    snapshot_digest: Mapped[str]
    document_digest: Mapped[str]
    envelope_digest: Mapped[str]
    key_id: Mapped[str]


class VerdictRunRow(TableBase):
    """A run whose evidence a verdict evaluates."""

    __tablename__ = "verdict_run"

    verdict: Mapped[int] = mapped_column(
        ForeignKey("verdict.pk"), primary_key=True, autoincrement=False
    )
    position: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    run_id: Mapped[str] = mapped_column(Name, ForeignKey("run.id"), index=True)


class WaiverRow(TableBase):
    """A waiver; its approver is written once."""

    __tablename__ = "waiver"

    pk: Mapped[Pk]
    gate: Mapped[str] = mapped_column(Name, index=True)
    document: Mapped[Waiver] = mapped_column(DocumentColumn(Waiver))
    verdict: Mapped[str]
    evidence_digest: Mapped[str]
    """sha256 of the evidence of the verdict that the waiver is for."""


class PayloadReviewRow(TableBase):
    """A person's review of a payload; append-only."""

    __tablename__ = "payload_review"

    pk: Mapped[Pk]
    payload: Mapped[str] = mapped_column(Name, index=True)
    document: Mapped[PayloadReview] = mapped_column(DocumentColumn(PayloadReview))


class ApprovalRow(TableBase):
    """A person's approval of evidence."""

    __tablename__ = "approval"
    __table_args__ = (UniqueConstraint("gate", "evidence", "by"),)

    pk: Mapped[Pk]
    gate: Mapped[str] = mapped_column(Name)
    evidence: Mapped[str] = mapped_column(Name)
    by: Mapped[str] = mapped_column(Name)
    at: Mapped[datetime]
    token: Mapped[str | None]
    """Id of the approver's token; NULL if the name was typed."""


class SigningKeyRow(TableBase):
    """The public half of a signing key."""

    __tablename__ = "signing_key"

    id: Mapped[Id]
    public: Mapped[str]
    created_at: Mapped[datetime]
    not_after: Mapped[datetime]
    retired_at: Mapped[datetime | None]


class ScheduleRow(TableBase):
    """A schedule."""

    __tablename__ = "schedule"

    name: Mapped[Id]
    document: Mapped[Schedule] = mapped_column(DocumentColumn(Schedule))
    next_due_at: Mapped[datetime | None] = mapped_column(index=True)
    """Next due time; NULL while the schedule is paused."""


class FiringRow(TableBase):
    """A firing: one due time of a schedule. Its claimant advances it."""

    __tablename__ = "firing"
    __table_args__ = (
        UniqueConstraint("schedule", "due_at"),
        Index(
            "ix_firing_open",
            "due_at",
            postgresql_where=text("state <> 'notified'"),
            sqlite_where=text("state <> 'notified'"),
        ),
    )

    pk: Mapped[Pk]
    schedule: Mapped[str] = mapped_column(Name, ForeignKey("schedule.name"))
    due_at: Mapped[datetime]
    state: Mapped[FiringState] = mapped_column(OneOf(FiringState))
    superseded: Mapped[bool]
    """Whether another firing superseded this one; not in the document, as others write it."""
    claimed_by: Mapped[str]
    """Id of the claiming controller; empty without a claim."""
    claim_expires_s: Mapped[float]
    """End of the claim, in seconds by the database's clock."""
    document: Mapped[Firing] = mapped_column(DocumentColumn(Firing))
