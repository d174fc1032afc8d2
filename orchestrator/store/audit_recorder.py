"""Writes the audit log: what a call changes, in the transaction that changes it.

A context variable holds the present call. Transactions outside of a call are the controller's own
work and are not recorded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from pydantic import TypeAdapter
from pydantic_core import to_jsonable_python
from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Result,
    Select,
    UniqueConstraint,
    and_,
    event,
    func,
    or_,
    select,
)
from sqlalchemy import Table as SqlTable
from sqlalchemy import inspect as state_of
from sqlalchemy.orm import ORMExecuteState, Session

from orchestrator.domain.audit import BEGINNING, AuditEntry, AuditOutcome
from orchestrator.domain.caller_identity import Person
from orchestrator.store.column_types import short, storable_json
from orchestrator.store.errors import PreconditionFailedError
from orchestrator.store.tables import (
    ApprovalRow,
    AuditRow,
    ChannelRow,
    GatePolicyRow,
    KnownIssueRow,
    PayloadReviewRow,
    PayloadRow,
    PolicyRow,
    QuarantineRow,
    RunRow,
    ScheduleRow,
    SigningKeyRow,
    TableBase,
    TestAliasRow,
    TokenRow,
    VerdictRow,
    WaiverRow,
)

ENTRY = TypeAdapter(AuditEntry)
_CHAIN_LOCK = 7_328_417_255
"""Number of the advisory lock in Postgres under which the chain grows."""
_LONGEST_REASON = 500
Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class AuditedChange:
    """A change of a resource."""

    resource: str
    before: Mapping[str, object] | None = None
    after: Mapping[str, object] | None = None
    product: str = ""


@dataclass(frozen=True, slots=True)
class ExpectedVersion:
    """The versions of a resource that a call may change (If-Match)."""

    resource: str
    versions: frozenset[int]

    def require(self, version: int) -> None:
        """Raise PreconditionFailedError for another version."""
        if version not in self.versions:
            raise PreconditionFailedError(self.resource)


@dataclass(slots=True)
class Call:
    """A call that may change something."""

    operation: Callable[[], str]
    """Returns the operation's name, once it is known."""
    at: datetime
    project: str
    address: str = ""
    agent: str = ""
    caller: Person | None = None
    """The caller; None until it is known."""
    is_recorded: bool = False
    """Whether an entry was stored with a change."""
    is_refused: bool = False
    """Whether the caller was refused, whatever the status of the response."""
    expected: ExpectedVersion | None = None
    """The versions of the resource that the caller may change; None without If-Match."""
    reason: str = ""
    """Reason of a refusal or failure, in the words of the response."""
    changes: list[AuditedChange] = field(default_factory=list)
    """Changes of no row of a setting; they are recorded at the end of the call."""


_CALL: ContextVar[Call | None] = ContextVar("call", default=None)


@contextmanager
def recording(call: Call) -> Iterator[None]:
    """Record the changes inside the context as changes of this call."""
    token = _CALL.set(call)
    try:
        yield
    finally:
        _CALL.reset(token)


def identify(caller: Person) -> None:
    """Set the caller of the present call, if there is one."""
    call = _CALL.get()
    if call is not None:
        call.caller = caller


def refuse(reason: str) -> None:
    """Mark the present call, if there is one, as refused to its caller, with the reason."""
    call = _CALL.get()
    if call is not None:
        call.is_refused, call.reason = True, reason


def explain(reason: str) -> None:
    """Set the reason that the present call's entry gets if the call is refused or fails."""
    call = _CALL.get()
    if call is not None:
        call.reason = reason


def note(
    resource: str,
    *,
    before: Mapping[str, object] | None = None,
    after: Mapping[str, object] | None = None,
) -> None:
    """Add a change, to be recorded at the end of the present call, if there is one."""
    call = _CALL.get()
    if call is not None:
        call.changes.append(AuditedChange(resource, before, after))


def origin() -> tuple[str, str]:
    """Return the client's address and user agent of the present call; empty without one."""
    call = _CALL.get()
    return (call.address, call.agent) if call is not None else ("", "")


@dataclass(frozen=True, slots=True)
class _Audited:
    """How the audit log names the rows of a table, and which columns it shows."""

    resource: str
    without: frozenset[str] = frozenset()
    """Columns that are left out: secret, large, or no setting."""
    shown: Callable[[Values], Values] = lambda values: values


def without_secrets(values: Values) -> Values:
    """Return the values of a channel without the secrets of its address and its signatures."""
    channel = values["channel"]
    secrets = tuple(replace(one, value="") for one in channel.secrets)
    shown = replace(channel, target=channel.shown_target, secrets=secrets)
    return {**values, "channel": shown}


_AUDITED: Mapping[type[TableBase], _Audited] = {
    ApprovalRow: _Audited("approvals/{gate}/{by}"),
    ChannelRow: _Audited(
        "channels/{name}", frozenset({"failing_since", "last_success_at"}), without_secrets
    ),
    GatePolicyRow: _Audited("gates/{gate}", frozenset({"pk"})),
    KnownIssueRow: _Audited("known-issues/KI-{pk:04d}"),
    PayloadReviewRow: _Audited("payload-reviews/{payload}"),
    PayloadRow: _Audited("payloads/{digest}", frozenset({"manifest"})),
    PolicyRow: _Audited("policies/{digest}", frozenset({"document"})),
    QuarantineRow: _Audited("quarantines/Q-{pk:04d}"),
    RunRow: _Audited("runs/{id}"),
    ScheduleRow: _Audited("schedules/{name}", frozenset({"next_due_at"})),
    SigningKeyRow: _Audited("keys/{id}"),
    TestAliasRow: _Audited("aliases/{id}"),
    TokenRow: _Audited("tokens/{id}", frozenset({"secret_sha256", "last_used_at"})),
    VerdictRow: _Audited("verdicts/{pk}", frozenset({"document"})),
    WaiverRow: _Audited("waivers/W-{pk:04d}"),
}
"""The tables of settings and decisions, whose entries have before and after.

    Calls that change others (annotations, retests) have an entry without them, and sessions are
    noted.
    """


@contextmanager
def recorded(session: Session) -> Iterator[None]:
    """Append the changes of this transaction to the audit log at its end, for the present call."""
    call = _CALL.get()
    if call is None:
        yield
        return
    recorder = _Recorder(session)
    yield
    session.flush()
    changes = recorder.changes()
    if changes:
        _lock_chain(session)
        expected = call.expected
        if expected is not None and expected.resource in (one.resource for one in changes):
            expected.require(session.scalar(latest_change(expected.resource)) or 0)
            call.expected = None  # later changes by this call are based on this one
        append(session, call, changes)
        call.is_recorded = True


class _Recorder:
    """Observes the changed rows of a transaction."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._rows: dict[tuple[type[TableBase], str], tuple[Values | None, Values | None]] = {}
        event.listen(session, "after_flush", self._flushed)
        event.listen(session, "do_orm_execute", self._executed)

    def changes(self) -> list[AuditedChange]:
        """Return a change for each row whose values differ from before."""
        found = []
        for (table, resource), (before, after) in self._rows.items():
            shown = [_document(table, values) for values in (before, after)]
            if shown[0] != shown[1]:
                product = _product(after or before or {})
                found.append(AuditedChange(resource, shown[0], shown[1], product))
        return found

    def _add(self, table: type[TableBase], before: Values | None, after: Values | None) -> None:
        name = _AUDITED[table].resource.format_map(after or before or {})
        first = self._rows.get((table, name), (before, None))[0]
        self._rows[table, name] = first, after

    def _flushed(self, session: Session, _flush: object) -> None:
        for row in session.new:
            if type(row) in _AUDITED:
                self._add(type(row), None, _values(row))
        for row in session.dirty:
            if type(row) in _AUDITED:
                now = _values(row)
                self._add(type(row), {**now, **_replaced(row)}, now)
        for row in session.deleted:
            if type(row) in _AUDITED:
                self._add(type(row), _values(row), None)

    def _executed(self, state: ORMExecuteState) -> Result[Any] | None:
        """Read the rows of an INSERT, UPDATE or DELETE before it and after it."""
        table: type[TableBase] = state.bind_mapper.class_ if state.bind_mapper else TableBase
        if table not in _AUDITED or not (state.is_insert or state.is_update or state.is_delete):
            return None
        if state.is_insert:
            before = self._rows_of(table, _inserted(state))
        else:
            before = self._rows_of(table, getattr(state.statement, "whereclause", None))
        result = state.invoke_statement()
        primary = [column.name for column in table.__table__.primary_key]
        where = _inserted(state) if state.is_insert else _is_one_of(table, primary, before)
        by_key = {_key(row, primary): row for row in before}
        after = {_key(row, primary): row for row in self._rows_of(table, where)}
        for key in {**by_key, **after}:
            self._add(table, by_key.get(key), after.get(key))
        return result

    def _rows_of(self, table: type[TableBase], where: ColumnElement[bool] | None) -> list[Values]:
        query = select(*table.__table__.columns)
        if where is not None:
            query = query.where(where)
        return [dict(row) for row in self._session.execute(query).mappings()]


def _values(row: TableBase) -> Values:
    return {one.key: getattr(row, one.key) for one in type(row).__mapper__.column_attrs}


def _replaced(row: TableBase) -> Values:
    """Return the earlier values of changed columns."""
    attributes = state_of(row).attrs
    keys = (one.key for one in type(row).__mapper__.column_attrs)
    histories = {key: attributes[key].history for key in keys}
    return {key: one.deleted[0] for key, one in histories.items() if one.deleted}


def _inserted(state: ORMExecuteState) -> ColumnElement[bool]:
    """Select the rows of an INSERT by a key that all of them have a value for."""
    table = state.bind_mapper.class_ if state.bind_mapper else TableBase
    given = state.parameters
    if not given:
        dialect = state.session.get_bind().dialect
        given = state.statement.compile(dialect=dialect).params  # type: ignore[attr-defined]
    rows = [given] if isinstance(given, Mapping) else list(given)
    names = next(key for key in _keys(table.__table__) if all(key <= row.keys() for row in rows))
    return _is_one_of(table, sorted(names), rows)


def _keys(table: Any) -> Iterator[set[str]]:  # noqa: ANN401 - declared as a FromClause
    made: SqlTable = table
    yield {column.name for column in made.primary_key}
    for constraint in made.constraints:
        if isinstance(constraint, UniqueConstraint):
            yield {column.name for column in constraint.columns}


def _is_one_of(table: type[TableBase], names: list[str], rows: list[Values]) -> ColumnElement[bool]:
    columns = table.__table__.columns
    return or_(False, *(and_(*(columns[name] == row[name] for name in names)) for row in rows))


def _key(row: Values, names: list[str]) -> tuple[object, ...]:
    return tuple(row[name] for name in names)


def _document(table: type[TableBase], values: Values | None) -> Mapping[str, object] | None:
    """Return a row as JSON values, without the columns that are left out."""
    if values is None:
        return None
    audited = _AUDITED[table]
    kept = {name: one for name, one in values.items() if name not in audited.without}
    shown: dict[str, object] = to_jsonable_python(audited.shown(kept))
    return shown


def _product(values: Values) -> str:
    return str(values.get("product") or getattr(values.get("document"), "product", ""))


def _lock_chain(session: Session) -> None:
    """Lock the chain until the transaction ends; SQLite has one writer anyway."""
    if session.get_bind().dialect.name == "postgresql":
        session.execute(select(func.pg_advisory_xact_lock(_CHAIN_LOCK)))


def append(
    session: Session,
    call: Call,
    changes: list[AuditedChange],
    outcome: AuditOutcome = AuditOutcome.DONE,
    status: int | None = None,
) -> None:
    """Append an entry for each change to the chain, in the caller's transaction."""
    _lock_chain(session)
    last = select(AuditRow.number, AuditRow.digest).order_by(AuditRow.number.desc()).limit(1)
    number, digest = session.execute(last).one_or_none() or (0, BEGINNING)
    for change in changes:
        number += 1
        entry = _entry(call, change, outcome, status, number=number, previous=digest)
        document = storable_json(ENTRY.dump_python(entry, mode="json"))
        digest = digest_of(document)
        row = AuditRow(
            number=number,
            at=entry.at,
            actor=entry.actor,
            resource=entry.resource,
            document=document,
            digest=digest,
        )
        session.add(row)
    session.flush()


def latest_change(resource: str | BindParameter[str]) -> Select[int]:
    """Select the number of a resource's latest entry with a change; no row without one.

    Refused calls and calls without a change of the resource do not count.
    """
    is_done = AuditRow.document.contains('"outcome": "done"', autoescape=True)
    is_empty = AuditRow.document.contains('"before": null, "after": null', autoescape=True)
    mine = select(AuditRow.number).where(AuditRow.resource == resource, is_done, ~is_empty)
    return mine.order_by(AuditRow.number.desc()).limit(1)


def _entry(
    call: Call,
    change: AuditedChange,
    outcome: AuditOutcome,
    status: int | None,
    *,
    number: int,
    previous: str,
) -> AuditEntry:
    caller = call.caller or Person("", "")
    return AuditEntry(
        number=number,
        at=call.at,
        actor=short(caller.name),
        token=caller.token,
        address=call.address,
        agent=call.agent,
        operation=call.operation(),
        resource=short(change.resource),
        project=call.project,
        product=change.product,
        outcome=outcome,
        status=status,
        reason="" if outcome is AuditOutcome.DONE else call.reason[:_LONGEST_REASON],
        before=change.before,
        after=change.after,
        previous=previous,
    )


def digest_of(document: str) -> str:
    """Return the sha256 of an entry's JSON."""
    return hashlib.sha256(document.encode()).hexdigest()
