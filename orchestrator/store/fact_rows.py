"""What events state beside tests: jobs, checks, metrics, notices, the environment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields

from sqlalchemy import ColumnElement, SQLColumnExpression, case, func
from sqlalchemy.orm import Session

from orchestrator.domain.facts import CHECK_RANKS, CheckFact, Facts, JobFact, MetricFact, Notice
from orchestrator.store.column_types import short
from orchestrator.store.sql import insert_into
from orchestrator.store.tables import (
    CheckResultRow,
    EnvironmentRow,
    JobResultRow,
    MetricRow,
    NoticeRow,
)

_JOB_COLUMNS = tuple(f.name for f in fields(JobFact) if f.name != "job")
_CHECK_COLUMNS = ("outcome", "value", "unit", "tolerance", "reason")
_INT_LIMIT = 2**31 - 1


def write_facts(session: Session, cell_pk: int, attempt_pk: int, facts: Facts) -> None:
    """Merge each part with what is stored."""
    if facts.jobs:
        _write_jobs(session, cell_pk, attempt_pk, facts.jobs)
    if facts.checks:
        write_checks(session, attempt_pk, facts.checks.values())
    if facts.metrics:
        rows = [_metric(attempt_pk, fact) for fact in facts.metrics]
        session.execute(insert_into(session, MetricRow).on_conflict_do_nothing(), rows)
    if facts.notices:
        notices = [_notice(attempt_pk, notice) for notice in facts.notices]
        session.execute(insert_into(session, NoticeRow).on_conflict_do_nothing(), notices)
    if facts.environment is not None:
        _write_environment(session, attempt_pk, facts.environment)


def _write_jobs(
    session: Session, cell_pk: int, attempt_pk: int, jobs: Mapping[str, JobFact]
) -> None:
    """Facts of the same attempt add up; a newer attempt's replace an older one's."""
    insert = insert_into(session, JobResultRow)
    new = insert.excluded
    same = JobResultRow.attempt == new.attempt
    merged = {
        name: case((same, func.coalesce(new[name], getattr(JobResultRow, name))), else_=new[name])
        for name in _JOB_COLUMNS
    }
    statement = insert.on_conflict_do_update(
        index_elements=["cell", "job"],
        set_=merged | {"attempt": new.attempt},
        where=JobResultRow.attempt <= new.attempt,
    )
    rows: dict[str, dict[str, object]] = {}
    for fact in jobs.values():
        name = short(fact.job)
        rows[name] = {"cell": cell_pk, "job": name, "attempt": attempt_pk, **_job(fact)}
    session.execute(statement, list(rows.values()))


def _job(fact: JobFact) -> dict[str, object]:
    return {name: _fitting(getattr(fact, name)) for name in _JOB_COLUMNS}


def _fitting(value: object) -> object:
    """Whole numbers that a column can keep, whatever the machine said."""
    if isinstance(value, int):
        return max(min(int(value), _INT_LIMIT), -_INT_LIMIT)
    return value


def write_checks(session: Session, attempt_pk: int, checks: Iterable[CheckFact]) -> None:
    """Add by job and name, or replace what is not worse, within the caller's transaction."""
    insert = insert_into(session, CheckResultRow)
    statement = insert.on_conflict_do_update(
        index_elements=["attempt", "job", "name"],
        set_={name: insert.excluded[name] for name in _CHECK_COLUMNS},
        where=_rank(insert.excluded.outcome) >= _rank(CheckResultRow.outcome),
    )
    rows: dict[tuple[str, str], dict[str, object]] = {}
    for fact in checks:
        job, name = short(fact.job), short(fact.name)
        said = {column: getattr(fact, column) for column in _CHECK_COLUMNS}
        rows[job, name] = {"attempt": attempt_pk, "job": job, "name": name, **said}
    session.execute(statement, list(rows.values()))


def _rank(outcome: SQLColumnExpression[str]) -> ColumnElement[int]:
    return case(dict(CHECK_RANKS), value=outcome, else_=len(CHECK_RANKS))


def _metric(attempt_pk: int, fact: MetricFact) -> dict[str, object]:
    return {
        "attempt": attempt_pk,
        "seq": fact.seq,
        "job": short(fact.job),
        "name": fact.name,
        "samples": list(fact.samples),
        "unit": fact.unit,
        "direction": fact.direction,
        "params": dict(fact.params),
        "arm": fact.arm or None,
        "turn": fact.turn,
        "readings": dict(fact.readings) if fact.arm else None,
    }


def _notice(attempt_pk: int, notice: Notice) -> dict[str, object]:
    return {
        "attempt": attempt_pk,
        "seq": notice.seq,
        "ts": float(notice.ts),
        "job": short(notice.job),
        "level": notice.level,
        "message": notice.message,
    }


def _write_environment(session: Session, attempt_pk: int, document: Mapping[str, object]) -> None:
    insert = insert_into(session, EnvironmentRow)
    row = {"attempt": attempt_pk, "document": dict(document)}
    statement = insert.values(row).on_conflict_do_update(
        index_elements=["attempt"], set_={"document": insert.excluded.document}
    )
    session.execute(statement)
