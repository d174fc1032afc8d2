"""Operational metrics in one query, so that a scrape is cheap and consistent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from statistics import median

from sqlalchemy import Float, Select, Text, and_, case, cast, func, literal, not_, select, union_all
from sqlalchemy.orm import Session
from sqlalchemy.sql.elements import ColumnElement

from orchestrator.domain.cell import CellState, LeaseState
from orchestrator.domain.channel import DeliveryState
from orchestrator.domain.schedule import FiringState
from orchestrator.store.sessions import Sessions
from orchestrator.store.tables import (
    ORPHAN_SIGHTINGS,
    AttemptRow,
    CellRow,
    ChannelRow,
    DeliveryRow,
    FiringRow,
    LeaseRow,
    RunRow,
    TransitionRow,
    VerdictRow,
)


class LabelledCount(StrEnum):
    """A counted quantity with its two labels; an empty label means none."""

    RUNS = "runs"
    """Labels: state and outcome."""
    CELLS = "cells"
    """Labels: state and outcome."""
    LEASES = "leases"
    """Labels: provider and state."""
    SPENT_USD = "spent_usd"
    """Label: provider; real machines that are settled."""
    RESERVED_USD = "reserved_usd"
    """Label: provider; real machines that are not settled."""
    COST_PER_HOUR_USD = "cost_per_hour_usd"
    """Label: provider; the recorded prices of real machines that may be there now."""
    ORPHANS = "orphans"
    """Label: provider; cloud resources that are not in the ledger."""
    DELIVERIES = "deliveries"
    """Label: state."""
    CHANNELS = "channels"
    """Label: state."""
    FIRINGS = "firings"
    """Label: state of the firing."""
    VERDICTS = "verdicts"
    """Labels: gate and decision."""


@dataclass(frozen=True, slots=True)
class Figures:
    """All operational metrics at one time."""

    counts: Mapping[LabelledCount, Mapping[tuple[str, str], float]] = field(default_factory=dict)
    oldest_waiting_at: datetime | None = None
    """When the oldest waiting delivery was created."""
    late_firings: int = 0
    """Open firings past their deadline."""
    launch_s: Mapping[str, float] = field(default_factory=dict)
    """By provider, the median time from a launch call until the machine answered, in seconds, of
    the machines that were launched in the last day."""
    quiet_since: datetime | None = None
    """The earliest of the last event times of all running attempts; None without one."""

    def of(self, figure: LabelledCount) -> Mapping[tuple[str, str], float]:
        """Return one kind of count by its labels; empty if nothing is counted."""
        return self.counts.get(figure, {})


_MOST_GATES = 500
"""Maximum pairs of gate and decision, because anybody may name gates."""

Row = Select[str, str, str, float]


class OperationalMetricStore:
    """Operational metrics."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def snapshot(self, now: datetime) -> Figures:
        """Return all metrics, read in one transaction."""
        counts: dict[LabelledCount, dict[tuple[str, str], float]] = {
            figure: {} for figure in LabelledCount
        }
        with self._sessions.read() as session:
            for name, one, other, number in session.execute(union_all(*_parts())):
                counts[LabelledCount(name)][one, other] = float(number)
            waiting = DeliveryRow.state == DeliveryState.WAITING
            oldest = session.scalar(select(func.min(DeliveryRow.created_at)).where(waiting))
            return Figures(
                counts,
                oldest,
                _late(session, now),
                _launch_s(session, now),
                session.scalar(_quiet_since()),
            )


def _parts() -> Iterator[Row]:
    yield _count(LabelledCount.RUNS, _word(RunRow.state), _word(RunRow.outcome))
    yield _count(LabelledCount.CELLS, _word(CellRow.state), _word(CellRow.outcome))
    yield _count(LabelledCount.LEASES, _word(LeaseRow.provider), _word(LeaseRow.state))
    is_gone = LeaseRow.state == LeaseState.GONE
    real = not_(LeaseRow.simulated)
    yield _sum(LabelledCount.SPENT_USD, _word(LeaseRow.provider), LeaseRow.cost_usd).where(
        is_gone, real
    )
    yield _sum(LabelledCount.RESERVED_USD, _word(LeaseRow.provider), LeaseRow.reserved_usd).where(
        not_(is_gone), real
    )
    live = LeaseRow.state.in_((LeaseState.LAUNCHING, LeaseState.ACTIVE, LeaseState.RELEASING))
    price = _sum(
        LabelledCount.COST_PER_HOUR_USD, _word(LeaseRow.provider), LeaseRow.price_usd_per_hour
    )
    yield price.where(live, real)
    yield _count(LabelledCount.ORPHANS, _word(ORPHAN_SIGHTINGS.c.provider))
    yield _count(LabelledCount.DELIVERIES, _word(DeliveryRow.state))
    health = case(
        (ChannelRow.disabled_at.is_not(None), "disabled"),
        (ChannelRow.failing_since.is_not(None), "failing"),
        else_="ok",
    )
    yield _count(LabelledCount.CHANNELS, health)
    yield _count(LabelledCount.FIRINGS, _word(FiringRow.state))
    verdicts = _count(LabelledCount.VERDICTS, _word(VerdictRow.gate), _word(VerdictRow.decision))
    most = verdicts.order_by(func.count().desc()).limit(_MOST_GATES).subquery()
    yield select(*most.c)


def _word(column: object) -> ColumnElement[str]:
    return func.coalesce(cast(column, Text), "")


def _count(figure: LabelledCount, *labels: ColumnElement[str]) -> Row:
    return _grouped(figure, labels, cast(func.count(), Float(53)))


def _sum(figure: LabelledCount, label: ColumnElement[str], amount: object) -> Row:
    return _grouped(figure, (label,), func.coalesce(func.sum(cast(amount, Float(53))), 0.0))


def _grouped(
    figure: LabelledCount, labels: tuple[ColumnElement[str], ...], number: ColumnElement[float]
) -> Row:
    one, other = (*labels, literal("", Text))[:2]
    named = (literal(figure.value, Text).label("figure"), one.label("one"), other.label("other"))
    return select(*named, number.label("number")).group_by(*("one", "other")[: len(labels)])


def _late(session: Session, now: datetime) -> int:
    """Return open firings past their deadline."""
    query = select(FiringRow.document).where(FiringRow.state != FiringState.NOTIFIED)
    deadlines = (firing.deadline_at for firing in session.scalars(query))
    return sum(1 for deadline in deadlines if deadline is not None and deadline < now)


_DAY = timedelta(days=1)
_MOST_LAUNCHES = 1_000


def _launch_s(session: Session, now: datetime) -> dict[str, float]:
    """Return the median launch latency by provider, in seconds."""
    answered = select(LeaseRow.provider, LeaseRow.launched_at, TransitionRow.at)
    answered = answered.join(AttemptRow, AttemptRow.pk == LeaseRow.attempt).join(
        TransitionRow,
        and_(TransitionRow.cell == AttemptRow.cell, TransitionRow.attempt == AttemptRow.number),
    )
    answered = answered.where(
        LeaseRow.launched_at >= now - _DAY, TransitionRow.to_state == CellState.PREPARING
    )
    took: dict[str, list[float]] = {}
    rows = session.execute(answered.order_by(LeaseRow.pk.desc()).limit(_MOST_LAUNCHES))
    for provider, launched_at, at in rows:
        if launched_at is not None:
            took.setdefault(provider, []).append((at - launched_at).total_seconds())
    return {provider: median(seconds) for provider, seconds in took.items()}


def _quiet_since() -> Select[datetime | None]:
    """Return the query for the earliest last event of the running attempts."""
    running = select(func.min(AttemptRow.last_event_at)).join(
        CellRow, CellRow.pk == AttemptRow.cell
    )
    return running.where(CellRow.state == CellState.RUNNING, AttemptRow.closed_at.is_(None))
