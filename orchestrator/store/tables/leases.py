"""Tables of the ledger: leases, credentials, placement decisions, orphans and prices."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Annotated

from sqlalchemy import ForeignKey, Index, Integer, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from orchestrator.domain.attestation import Attestation
from orchestrator.domain.cell import LeaseState, PlacementResult
from orchestrator.domain.inventory import Orphan
from orchestrator.domain.machine import Endpoint, Login, Machine, Place
from orchestrator.domain.prices import Price
from orchestrator.store.column_types import DocumentColumn, Json, Name, OneOf
from orchestrator.store.tables.shared_columns import (
    Id,
    KeyAttempt,
    OfAttempt,
    OfRun,
    Pk,
    TableBase,
    UniqueId,
    table_of,
)

KeyLease = Annotated[int, mapped_column(Integer, ForeignKey("lease.pk"), primary_key=True)]


class LeaseRow(TableBase):
    """A lease; no two open ones share an exclusive place."""

    __tablename__ = "lease"
    __table_args__ = (
        Index(
            "ux_lease_place",
            "provider",
            "place",
            unique=True,
            postgresql_where=text("exclusive and state <> 'gone'"),
            sqlite_where=text("exclusive and state <> 'gone'"),
        ),
        Index(
            "ix_lease_open",
            "pk",
            postgresql_where=text("state <> 'gone'"),
            sqlite_where=text("state <> 'gone'"),
        ),
        Index(
            "ix_lease_refused",
            "provider",
            "gone_at",
            postgresql_where=text("refusal <> ''"),
            sqlite_where=text("refusal <> ''"),
        ),
    )

    pk: Mapped[Pk]
    id: Mapped[UniqueId]
    attempt: Mapped[OfAttempt] = mapped_column(index=True)
    run_id: Mapped[OfRun] = mapped_column(index=True)
    provider: Mapped[str]
    place: Mapped[str]
    exclusive: Mapped[bool]
    state: Mapped[LeaseState] = mapped_column(OneOf(LeaseState))
    reserved_usd: Mapped[Decimal]
    price_usd_per_hour: Mapped[Decimal | None]
    reserved_at: Mapped[datetime] = mapped_column(index=True)
    machine_id: Mapped[str]
    endpoint: Mapped[Endpoint | None] = mapped_column(DocumentColumn(Endpoint))  # type: ignore[arg-type]
    launched_at: Mapped[datetime | None]
    gone_at: Mapped[datetime | None]
    cost_usd: Mapped[Decimal | None]
    refusal: Mapped[str]
    offer: Mapped[Place | None] = mapped_column(DocumentColumn(Place))
    facts: Mapped[dict[str, str] | None] = mapped_column(Json)
    simulated: Mapped[bool]


class LeaseCredentialsRow(TableBase):
    """The keys of a lease that is not gone."""

    __tablename__ = "lease_credentials"

    lease: Mapped[KeyLease]
    login: Mapped[Login] = mapped_column(DocumentColumn(Login))


class AttestationRow(TableBase):
    """Attestation of a lease's machine."""

    __tablename__ = "attestation"

    lease: Mapped[KeyLease]
    document: Mapped[Attestation] = mapped_column(DocumentColumn(Attestation))


class PlacementDecisionRow(TableBase):
    """A placement decision of an attempt."""

    __tablename__ = "placement_decision"
    __table_args__ = (UniqueConstraint("attempt", "place", "result", "reason"),)

    attempt: Mapped[KeyAttempt]
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    """Number of the decision within its attempt, from 1."""
    at: Mapped[datetime]
    place: Mapped[str] = mapped_column(Name)
    result: Mapped[PlacementResult] = mapped_column(OneOf(PlacementResult))
    reason: Mapped[str] = mapped_column(Name)
    detail: Mapped[str]


class StaticHostRow(TableBase):
    """A machine of `local` or `static`, as last seen."""

    __tablename__ = "static_host"

    provider: Mapped[Id]
    id: Mapped[Id]
    machine: Mapped[Machine] = mapped_column(DocumentColumn(Machine))


ORPHAN_SIGHTINGS = table_of("orphan_sighting", Orphan, ("provider", "machine_id"))
"""Cloud resources that are not in the ledger."""


PRICES = table_of("price", Price, ("provider", "item", "place", "market"))
"""The newest price of each item, in a place and a market."""
