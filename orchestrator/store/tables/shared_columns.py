"""Columns and keys shared by tables.

Runs, cells, attempts and leases have text ids that sort by time. Tables with millions of rows refer
to them by a number (`pk`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any, get_type_hints

from sqlalchemy import (
    BigInteger,
    Column,
    Float,
    ForeignKey,
    Integer,
    LargeBinary,
    MetaData,
    Table,
)
from sqlalchemy.orm import DeclarativeBase, mapped_column
from sqlalchemy.types import TypeEngine

from orchestrator.domain.outcome import Outcome
from orchestrator.store.column_types import ExactDecimal, Json, Name, OneOf, Utc, Words

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
        int: Integer(),
        float: Float(53),
        datetime: Utc(),
        Decimal: ExactDecimal(),
        bytes: LargeBinary(),
        Outcome: OneOf(Outcome),
        Mapping[str, object]: Json,
    }


_TYPES: Mapping[Any, TypeEngine[Any]] = TableBase.type_annotation_map  # type: ignore[assignment]
_KEY_TYPES: Mapping[Any, TypeEngine[Any]] = {str: Name(), int: BigInteger()}


def table_of(
    name: str,
    record: type,
    keys: Collection[str],
    *more: Column[Any],
    sqlite_with_rowid: bool = True,
) -> Table:
    """Return the table of a record class: `more`, and a column of each other field.

    `keys` are fields of the primary key. Every field has a value, of a type that `TableBase` knows
    or of a StrEnum. Raises TypeError for another type.
    """
    columns: list[Column[Any]] = [
        Column(
            field,
            (field in keys and _KEY_TYPES.get(kind)) or _TYPES.get(kind) or OneOf(kind),
            primary_key=field in keys,
            autoincrement=False,
            nullable=False,
        )
        for field, kind in get_type_hints(record).items()
        if field not in {column.name for column in more}
    ]
    return Table(name, TableBase.metadata, *more, *columns, sqlite_with_rowid=sqlite_with_rowid)
