"""Columns and keys shared by tables.

Runs, cells, attempts and leases have text ids that sort by time; where rows by the million point
at them, they do so by a number (`pk`).
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Annotated

from sqlalchemy import (
    BigInteger,
    ForeignKey,
    Integer,
    LargeBinary,
    MetaData,
)
from sqlalchemy.orm import DeclarativeBase, mapped_column

from orchestrator.domain.outcome import Outcome
from orchestrator.store.column_types import ExactDecimal, Name, OneOf, Utc, Words

Pk = Annotated[int, mapped_column(Integer, primary_key=True)]
Id = Annotated[str, mapped_column(Name, primary_key=True)]
UniqueId = Annotated[str, mapped_column(Name, unique=True)]
OfRun = Annotated[str, mapped_column(Name, ForeignKey("run.id"))]
OfCell = Annotated[int, mapped_column(Integer, ForeignKey("cell.pk"))]
OfAttempt = Annotated[int, mapped_column(Integer, ForeignKey("attempt.pk"))]
KeyRun = Annotated[str, mapped_column(Name, ForeignKey("run.id"), primary_key=True)]
KeyCell = Annotated[int, mapped_column(Integer, ForeignKey("cell.pk"), primary_key=True)]
KeyAttempt = Annotated[int, mapped_column(Integer, ForeignKey("attempt.pk"), primary_key=True)]
KeyNumber = Annotated[int, mapped_column(BigInteger, primary_key=True, autoincrement=False)]
Long = Annotated[int, mapped_column(BigInteger)]


class TableBase(DeclarativeBase):
    """Base of all tables: column types of Python types, and names of constraints."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(column_0_label)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {  # noqa: RUF012 (SQLAlchemy's own form)
        str: Words(),
        datetime: Utc(),
        Decimal: ExactDecimal(),
        bytes: LargeBinary(),
        Outcome: OneOf(Outcome),
    }
