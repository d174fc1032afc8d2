"""Copies all rows in one transaction, in a form that SQLite and Postgres can restore.

The copy has the columns' stored values, so a row that this version cannot read is copied unchanged.
Tables with secrets and tables for living controllers are left out; channels lose their secrets,
and tokens keep the sha256 of theirs.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, TypeVar

from sqlalchemy import (
    JSON,
    Boolean,
    Column,
    Engine,
    Float,
    Integer,
    Text,
    column,
    func,
    insert,
    or_,
    select,
    text,
    union,
    update,
)
from sqlalchemy import Table as SqlTable
from sqlalchemy import table as table_clause
from sqlalchemy.orm import Session
from sqlalchemy.sql.expression import TableClause
from sqlalchemy.types import LargeBinary, TypeEngine

from orchestrator.domain.audit import AuditOutcome, AuditVerification
from orchestrator.domain.caller_identity import Token
from orchestrator.domain.cell import RunState
from orchestrator.store.audit import verify_chain
from orchestrator.store.audit_recorder import AuditedChange, Call, append, without_secrets
from orchestrator.store.column_types import (
    DocumentColumn,
    ExactDecimal,
    Name,
    OneOf,
    Utc,
    Words,
    storable,
)
from orchestrator.store.errors import RESTORE_ADVICE, DamagedError
from orchestrator.store.sessions import Sessions, as_store_errors
from orchestrator.store.sql import changed
from orchestrator.store.tables import (
    ArtifactRow,
    AuditRow,
    ChannelRow,
    PrunedBlobRow,
    RunRow,
    ScheduleRow,
    TableBase,
    TokenRow,
    VerdictRow,
)
from orchestrator.store.tokens import token_of_row

T = TypeVar("T")

_BLOBS = frozenset({"blob", "blob_chunk"})
"""Tables of blobs, which are copied by digest and not as rows."""
_LEFT_OUT = _BLOBS | {"browser_session", "change_mark", "controller", "lease_credentials"}
"""Tables that are not copied: blobs, secrets, live controllers, and change marks."""
_AT_ONCE = 500
RESTORED = "it was restored from a backup, which has no secrets: remove it, and create it again"
"""Reason that a restored channel is disabled with."""


_WHOLE_LIMIT = 1 << 62
"""Maximum number that is restored; a larger one would have no successor in its column."""
_DECIMAL_DIGITS = 60
"""Maximum digits before and after the decimal point."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredRows:
    """Audit log, tokens and schedules of the restored rows."""

    chain: AuditVerification
    """Result of verifying the restored audit log."""
    tokens: Sequence[Token]
    """The tokens that are valid after the restore."""
    tokens_revoked: int
    schedules: Mapping[str, datetime]
    """Next firing times by name, without paused schedules."""
    named_blobs: frozenset[str]
    """Digests of the blobs that the rows name, as in `BackupStore.named_blobs`."""


class BackupStore:
    """Copies all rows of a database, and fills an empty one with them."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def copy(self) -> Iterator[tuple[str, Iterator[str]]]:
        """Yield each table's name and its rows, in one snapshot.

        A row is a line of JSON: a list of its columns' values in their order, times in ISO 8601,
        decimals as text, bytes in base64. A table's lines must be read before the next table.
        Raises DamagedError for a row that cannot be read, StoreError for a database that cannot.
        """
        with self._sessions.read() as session:
            for table in _tables():
                yield table.name, _lines(session, self._sessions.engine, table)

    def named_blobs(self) -> frozenset[str]:
        """Return digests of payloads, artifacts and evidence of verdicts, without pruned ones.

        No document is parsed, so that rows of any version can be copied.
        """
        with self._sessions.read() as session:
            return _named_blobs(session)

    def is_empty(self) -> bool:
        """Return whether no table but those of blobs has a row; a restore stores blobs first.

        Storing them leaves a mark of the latest change.
        """
        stored = _BLOBS | {"change_mark"}
        with self._sessions.read() as session:
            tables = [one for one in TableBase.metadata.sorted_tables if one.name not in stored]
            return not any(
                session.execute(select(1).select_from(t).limit(1)).first() for t in tables
            )

    def restore(
        self,
        copies: Iterable[tuple[str, Iterator[str]]],
        call: Call,
        *,
        revoke_tokens: bool = False,
        accept_broken_chain: bool = False,
    ) -> RestoredRows:
        """Insert the rows of all tables in one transaction, with an entry of the audit log.

        Runs that are not finished are marked as cancelled, so that a controller ends their
        machines; channels are disabled.

        Args:
            copies: Names of tables and their lines, as `copy` yields them.
            call: The call that the entry of the audit log names.
            revoke_tokens: Revoke every API token.
            accept_broken_chain: Accept an audit log whose chain of digests is broken.

        Raises:
            DamagedError: A line is no row of this schema, or the chain is broken.
            StoreError: The database refuses a row.
        """
        tables = {table.name: table for table in _tables()}
        number = 0
        with self._sessions.write() as session:
            for name, lines in copies:
                number += _insert(session, tables[name], lines)
            if self._sessions.is_postgres:
                _count_on(session)
            chain = _chain(session, accept_broken=accept_broken_chain)
            _end_what_went_on(session, call.at)
            revoked = _revoke(session, call.at) if revoke_tokens else 0
            after = {"rows": number, "audit_log": asdict(chain), "tokens_revoked": revoked}
            append(session, call, [AuditedChange("database", after=after)], AuditOutcome.DONE)
            return RestoredRows(
                chain=chain,
                tokens=_valid_tokens(session, call.at),
                tokens_revoked=revoked,
                schedules=_schedules(session),
                named_blobs=_named_blobs(session),
            )


def _named_blobs(session: Session) -> frozenset[str]:
    named = union(
        select(RunRow.payload_digest),
        select(ArtifactRow.digest).where(ArtifactRow.pruned_at.is_(None)),
        select(VerdictRow.snapshot_digest),
        select(VerdictRow.envelope_digest),
    )
    pruned = frozenset(session.scalars(select(PrunedBlobRow.digest)))
    return frozenset(digest for digest in session.scalars(named) if digest) - pruned


def _chain(session: Session, *, accept_broken: bool) -> AuditVerification:
    rows = select(AuditRow).order_by(AuditRow.number)
    chain = verify_chain(session.scalars(rows, execution_options={"yield_per": _AT_ONCE}))
    if chain.broken_at is not None and not accept_broken:
        raise DamagedError(f"its audit log is broken at entry {chain.broken_at}: {chain.reason}")
    return chain


def _end_what_went_on(session: Session, at: datetime) -> None:
    """Cancel unfinished runs, and disable channels, because they have lost their secrets."""
    running = (RunRow.state != RunState.FINISHED, RunRow.cancel_requested_at.is_(None))
    session.execute(update(RunRow).where(*running).values(cancel_requested_at=at))
    session.execute(update(ChannelRow).values(disabled_at=at, disabled_reason=RESTORED))


def _revoke(session: Session, at: datetime) -> int:
    left = update(TokenRow).where(TokenRow.revoked_at.is_(None))
    return changed(session, left.values(revoked_at=at))


def _valid_tokens(session: Session, at: datetime) -> list[Token]:
    lasting = or_(TokenRow.expires_at.is_(None), TokenRow.expires_at > at)
    query = select(TokenRow).where(TokenRow.revoked_at.is_(None), lasting)
    return [token_of_row(row) for row in session.scalars(query.order_by(TokenRow.name))]


def _schedules(session: Session) -> dict[str, datetime]:
    query = select(ScheduleRow.name, ScheduleRow.next_due_at).order_by(ScheduleRow.name)
    return {name: due for name, due in session.execute(query) if due is not None}


def table_names() -> list[str]:
    """Return the names of the copied tables, in an order in which they can be inserted."""
    return [table.name for table in _tables()]


def _tables() -> list[SqlTable]:
    return [one for one in TableBase.metadata.sorted_tables if one.name not in _LEFT_OUT]


def _plain(given: Column[Any]) -> TypeEngine[Any]:
    """Return the type of a column's stored value."""
    is_text = isinstance(given.type, DocumentColumn | OneOf | Words | Name)
    return Text() if is_text else given.type


def _bare(table: SqlTable) -> TableClause:
    return table_clause(table.name, *(column(one.name, _plain(one)) for one in table.columns))


def _lines(session: Session, engine: Engine, table: SqlTable) -> Iterator[str]:
    """Yield rows as lines; errors are this generator's own, not those of the one who made it."""
    bare = _bare(table)
    channel = ChannelRow.__table__
    try:
        with as_store_errors(engine):
            every = select(*bare.columns)
            for row in session.execute(every, execution_options={"yield_per": _AT_ONCE}):
                values = dict(row._mapping)  # noqa: SLF001 - SQLAlchemy's public name
                if table is channel:
                    values = _without_secrets(values)
                written = [_written(one) for one in values.values()]
                yield json.dumps(written, ensure_ascii=False) + "\n"
    except (ValueError, TypeError, ArithmeticError) as error:
        raise DamagedError(
            f"a row of the table {table.name} cannot be read: {error}; {RESTORE_ADVICE}"
        ) from error


def _without_secrets(values: dict[str, object]) -> dict[str, object]:
    kind = ChannelRow.__table__.columns["channel"].type
    channel = kind.process_result_value(values["channel"], None)  # type: ignore[attr-defined]
    shown = without_secrets({"channel": replace(channel, secrets=())})
    return values | {"channel": kind.process_bind_param(shown["channel"], None)}  # type: ignore[attr-defined]


def _written(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    return base64.b64encode(value).decode("ascii") if isinstance(value, bytes) else value


def _reader(kind: TypeEngine[Any]) -> Callable[[Any], object]:
    """Return a function that reads a column's value; it raises ValueError for a wrong type."""
    if isinstance(kind, OneOf):
        return lambda value: kind.words(value).value
    readers = (
        (Utc, _time),
        (ExactDecimal, _decimal),
        (LargeBinary, lambda value: base64.b64decode(value, validate=True)),
        (JSON, lambda value: value),
        (Boolean, lambda value: _of_type(value, bool)),
        (Integer, _whole),
        (Float, lambda value: float(_of_type(value, float, int))),
    )
    found = (read for known, read in readers if isinstance(kind, known))
    return next(found, lambda value: storable(_of_type(value, str)))


def _of_type(value: T, *kinds: type) -> T:
    if type(value) not in kinds:
        raise ValueError(f"{type(value).__name__} instead of {kinds[0].__name__}")
    return value


def _time(value: str) -> datetime:
    at = datetime.fromisoformat(value)
    if at.tzinfo is None:
        raise ValueError("a time has no zone")
    return at.astimezone(UTC)


def _whole(value: int) -> int:
    if abs(_of_type(value, int)) >= _WHOLE_LIMIT:
        raise ValueError("a number is too large")
    return value


def _decimal(value: str) -> Decimal:
    number = Decimal(_of_type(value, str))
    exponent = number.as_tuple().exponent
    if not isinstance(exponent, int) or max(-exponent, number.adjusted()) > _DECIMAL_DIGITS:
        raise ValueError("a decimal is too large, too long, or no number")
    return number


def _insert(session: Session, table: SqlTable, lines: Iterator[str]) -> int:
    readers, bare = [(one.name, _reader(one.type)) for one in table.columns], _bare(table)
    number = 0
    waiting: list[dict[str, object]] = []
    for line in lines:
        waiting.append(_row(table.name, readers, line))
        if len(waiting) == _AT_ONCE:
            session.execute(insert(bare), waiting)
            number += len(waiting)
            waiting = []
    if waiting:
        session.execute(insert(bare), waiting)
    return number + len(waiting)


def _row(
    table: str, readers: Sequence[tuple[str, Callable[[object], object]]], line: str
) -> dict[str, object]:
    try:
        values = _of_type(json.loads(line), list)
        pairs = zip(readers, values, strict=True)
        return {name: None if one is None else read(one) for (name, read), one in pairs}
    except (ValueError, TypeError, ArithmeticError, AttributeError, RecursionError) as error:
        raise DamagedError(f"a row of the table {table} cannot be read: {error}") from error


def _count_on(session: Session) -> None:
    """Set the sequences of Postgres to continue after the restored numbers."""
    for table in _tables():
        for key in table.primary_key:
            named = {"table": table.name, "column": key.name}
            sequence = session.scalar(text("SELECT pg_get_serial_sequence(:table, :column)"), named)
            if sequence is not None:
                highest = select(func.max(key)).scalar_subquery()
                session.execute(select(func.setval(sequence, func.coalesce(highest, 1))))
