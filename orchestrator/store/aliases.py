"""Stores aliases: pairs of names that may be one test."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from sqlalchemy import Select, select
from sqlalchemy.orm import Session, aliased

from orchestrator.domain.copied_fields import filled
from orchestrator.domain.node_ids import Alias, AliasState, makes_a_circle
from orchestrator.store.sessions import Sessions
from orchestrator.store.sql import ListPage, PageAsked, insert_into
from orchestrator.store.tables import TestAliasRow, TestCaseRow


class AliasConflictError(ValueError):
    """The decision would make a circle of aliases, or give a test two newer names."""


_Old, _New = aliased(TestCaseRow), aliased(TestCaseRow)


class AliasStore:
    """Stores aliases: suggested, confirmed and rejected ones."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def suggest(self, aliases: Sequence[Alias]) -> None:
        """Store suggestions whose pair of names is new; given ids are ignored."""
        rows = [
            {
                "product": one.product,
                "old_test": one.old_test,
                "new_test": one.new_test,
                "change": one.change,
                "similarity": one.similarity,
                "state": AliasState.SUGGESTED,
                "suggested_at": one.suggested_at,
                "decided_at": None,
                "decided_by": "",
            }
            for one in aliases
        ]
        if rows:
            with self._sessions.write() as session:
                session.execute(insert_into(session, TestAliasRow).on_conflict_do_nothing(), rows)

    def list(
        self,
        *,
        product: str | None = None,
        state: AliasState | None = None,
        page: PageAsked[int] | None = None,
    ) -> ListPage[Alias, int]:
        """Return aliases in the order of their suggestion."""
        query = _aliases()
        if product is not None:
            query = query.where(TestAliasRow.product == product)
        if state is not None:
            query = query.where(TestAliasRow.state == state)
        return self._sessions.page(query, TestAliasRow.id, page).each(_alias)

    def get(self, alias_id: int) -> Alias | None:
        """Return the alias, or None."""
        with self._sessions.read() as session:
            return _get(session, alias_id)

    def decide(
        self, alias_id: int, state: AliasState, *, at: datetime | None, by: str
    ) -> Alias | None:
        """Store a person's decision; None for an unknown alias. Raises AliasConflictError."""
        with self._sessions.write() as session:
            row = session.get(TestAliasRow, alias_id, with_for_update=True)
            if row is None:
                return None
            if row.state is not state:
                if state is AliasState.CONFIRMED:
                    _refuse_conflicts(session, row)
                row.state, row.decided_at, row.decided_by = state, at, by
                session.flush()
            return _get(session, alias_id)

    def confirmed(self, tests: Collection[int] | None = None) -> Mapping[int, int]:
        """Return the newer test by the older one, for the given older tests or for all."""
        with self._sessions.read() as session:
            found = confirmed_of(session)
        return found if tests is None else {old: found[old] for old in tests if old in found}


def confirmed_of(session: Session) -> dict[int, int]:
    """Return every confirmed alias: the newer test by the older one."""
    query = select(TestAliasRow.old_test, TestAliasRow.new_test)
    rows = session.execute(query.where(TestAliasRow.state == AliasState.CONFIRMED))
    return {old: new for old, new in rows}  # noqa: C416 (a Row is no pair to a type checker)


def _refuse_conflicts(session: Session, row: TestAliasRow) -> None:
    known = confirmed_of(session)
    if row.old_test in known:
        raise AliasConflictError(
            f"alias {row.id} cannot be confirmed: its older test has another newer name already;"
            " undo that one first"
        )
    if makes_a_circle(row.old_test, row.new_test, known):
        raise AliasConflictError(f"alias {row.id} cannot be confirmed: it would lead in a circle")


def _aliases() -> Select[TestAliasRow, str, str, str]:
    return (
        select(TestAliasRow, _Old.nodeid, _New.nodeid, _New.job)
        .join(_Old, _Old.id == TestAliasRow.old_test)
        .join(_New, _New.id == TestAliasRow.new_test)
    )


def _get(session: Session, alias_id: int) -> Alias | None:
    row = session.execute(_aliases().where(TestAliasRow.id == alias_id)).one_or_none()
    return _alias(*row) if row is not None else None


def _alias(row: TestAliasRow, old: str, new: str, job: str) -> Alias:
    return filled(Alias, row, job=job, old=old, new=new)
