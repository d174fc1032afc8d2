"""Costs over runs and days, and the newest price of each item."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import (
    CTE,
    DateTime,
    Float,
    Select,
    Text,
    and_,
    case,
    cast,
    func,
    literal,
    not_,
    or_,
    select,
)
from sqlalchemy.orm import Session
from sqlalchemy.sql.elements import ColumnElement, SQLCoreOperations

from orchestrator.domain.cell import CellState, LeaseFact, RunState
from orchestrator.domain.charges import OWN, OWN_MACHINE, PRICE_UNKNOWN, Cost
from orchestrator.domain.outcome import Outcome
from orchestrator.domain.prices import Price
from orchestrator.store.sessions import Sessions
from orchestrator.store.sql import Records, insert_into, is_postgres, micro_usd, usd_of_micro
from orchestrator.store.tables import PRICES, AttemptRow, CellRow, LeaseRow, RunRow, TransitionRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Sum:
    """A cost sum over machines."""

    machines: int = 0
    seconds: float = 0.0
    """Total seconds for which the machines were held."""
    usd: Decimal = Decimal(0)
    reserved_usd: Decimal = Decimal(0)
    """Total reserved amount."""
    own: int = 0
    """Number of own machines, which cost nothing."""
    unknown: int = 0
    """Number of machines without a known price."""

    def __add__(self, other: Sum) -> Sum:
        """Add two sums."""
        return Sum(
            machines=self.machines + other.machines,
            seconds=self.seconds + other.seconds,
            usd=self.usd + other.usd,
            reserved_usd=self.reserved_usd + other.reserved_usd,
            own=self.own + other.own,
            unknown=self.unknown + other.unknown,
        )

    @property
    def cost(self) -> Cost:
        """The known cost, and why machines have none."""
        without = ((self.own, OWN_MACHINE), (self.unknown, PRICE_UNKNOWN))
        reasons = frozenset(reason for many, reason in without if many)
        return Cost(self.usd, self.machines > self.own + self.unknown, reasons)


@dataclass(frozen=True, slots=True, kw_only=True)
class DailyCost:
    """Cost of one day, platform, provider and version."""

    day: str
    """UTC day of the reservation: ``2026-11-21``."""
    platform: str
    """Name of the cell."""
    provider: str
    version: str
    """Name and version of the subject."""
    sum: Sum


@dataclass(frozen=True, slots=True)
class RunSum:
    """Cost of one run's leases, with the run's subject and outcome."""

    run: str
    matrix: str
    subject: str
    version: str
    launched_at: datetime
    state: RunState
    outcome: Outcome | None
    sum: Sum


@dataclass(frozen=True, slots=True)
class PhaseCost:
    """Cost of machines by phase."""

    phase: CellState
    seconds: float
    usd: Decimal

    @property
    def is_idle(self) -> bool:
        """Whether no job runs in this phase."""
        return self.phase not in (CellState.RUNNING, CellState.DIAGNOSING)


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseSum(PhaseCost):
    """Cost by phase of one platform."""

    platform: str


@dataclass(frozen=True, slots=True)
class Refusals:
    """Number of refusals of a provider at a place, by reason."""

    provider: str
    place: str
    reason: str
    """Reason of the refusals: ``capacity``, ``quota`` ..."""
    count: int
    last_at: datetime
    last_message: str
    """The provider's last answer."""


_AFTER = (CellState.QUEUED.value, CellState.DONE.value)
"""State of a machine after its attempt."""
_FAKE = "fake"
Number = ColumnElement[float]


class CostStore:
    """Reads costs by day, platform, provider and version, and by run, from the ledger's leases."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def accounts(self, since: datetime, until: datetime) -> list[DailyCost]:
        """Return accounts by day, platform, provider and version, sorted by day. One statement."""
        with self._sessions.read() as session:
            keys = (
                _day(session, LeaseRow.reserved_at).label("day"),
                CellRow.name.label("platform"),
                LeaseRow.provider.label("provider"),
                (RunRow.subject_name + literal(" ", Text) + RunRow.subject_version).label(
                    "version"
                ),
            )
            query = (
                select(*keys, *_sums(session))
                .select_from(LeaseRow)
                .join(AttemptRow, AttemptRow.pk == LeaseRow.attempt)
                .join(CellRow, CellRow.pk == AttemptRow.cell)
                .join(RunRow, RunRow.id == LeaseRow.run_id)
                .where(_counts(since, until))
                .group_by("day", "platform", "provider", "version")
                .order_by("day", "platform", "provider", "version")
            )
            return [
                DailyCost(
                    day=day, platform=platform, provider=provider, version=version, sum=_sum(*sums)
                )
                for day, platform, provider, version, *sums in session.execute(query)
            ]

    def runs(self, since: datetime, until: datetime, *, limit: int, skip: int = 0) -> list[RunSum]:
        """Return runs by cost, highest first, without those that cost nothing."""
        with self._sessions.read() as session:
            summed = (
                select(LeaseRow.run_id.label("run"), *_sums(session))
                .where(_counts(since, until), _has_cost())
                .group_by(LeaseRow.run_id)
            )
            dearest = (
                summed.order_by(func.sum(micro_usd(LeaseRow.cost_usd)).desc(), "run")
                .limit(limit)
                .offset(skip)
                .subquery()
            )
            query = select(RunRow, *list(dearest.c)[1:]).join(dearest, dearest.c.run == RunRow.id)
            rows = session.execute(query.order_by(dearest.c.micro.desc(), dearest.c.run))
            return [_run(row, _sum(*sums)) for row, *sums in rows]

    def of_runs(self, runs: Sequence[str]) -> dict[str, Decimal]:
        """Return the cost of each run, without those whose machines have no price."""
        query = (
            select(LeaseRow.run_id, func.sum(micro_usd(LeaseRow.cost_usd)))
            .where(LeaseRow.run_id.in_(list(runs)), LeaseRow.cost_usd.is_not(None), _is_real())
            .where(not_(or_(_is_own(), _is_unknown())))
            .group_by(LeaseRow.run_id)
        )
        return {run: usd_of_micro(micro) for run, micro in self._sessions.rows(query)}

    def phases(self, since: datetime, until: datetime) -> list[PhaseSum]:
        """Return phases of machines with costs; a phase ends with the next, or with its machine."""
        with self._sessions.read() as session:
            query = _phases(session, since, until)
            return [
                PhaseSum(CellState(phase), float(seconds), usd_of_micro(micro), platform=platform)
                for platform, phase, seconds, micro in session.execute(query)
            ]

    def refusals(self, since: datetime, until: datetime, *, limit: int) -> list[Refusals]:
        """Return refused launches from `since` until before `until`, the most frequent first.

        They are grouped by provider, place and reason, and include simulated providers.
        """
        with self._sessions.read() as session:
            word = _before_colon(session, LeaseRow.refusal).label("reason")
            grouped = (
                select(
                    LeaseRow.provider.label("provider"),
                    LeaseRow.place.label("place"),
                    word,
                    func.count().label("many"),
                    func.max(LeaseRow.pk).label("last"),
                )
                .where(LeaseRow.refusal != "", LeaseRow.gone_at >= since, LeaseRow.gone_at < until)
                .group_by(LeaseRow.provider, LeaseRow.place, "reason")
                .order_by(func.count().desc(), "last")
                .limit(limit)
                .subquery()
            )
            query = (
                select(grouped, LeaseRow.gone_at, LeaseRow.refusal)
                .join(LeaseRow, LeaseRow.pk == grouped.c.last)
                .order_by(grouped.c.many.desc(), grouped.c.last)
            )
            return [
                Refusals(provider, place, why, many, at or since, said)
                for provider, place, why, many, _, at, said in session.execute(query)
            ]

    def simulated_usd(self, since: datetime, until: datetime) -> Decimal:
        """Return the costs of simulated machines at real prices."""
        asked = (LeaseRow.reserved_at >= since, LeaseRow.reserved_at < until)
        query = select(func.sum(micro_usd(LeaseRow.cost_usd))).where(*asked, not_(_is_real()))
        return usd_of_micro(self._sessions.scalar(query) or 0)


def _sums(session: Session) -> tuple[ColumnElement[Any], ...]:
    held = _later(_billed_until(session) - _billed_from(session), literal(0.0))
    return (
        func.count().label("machines"),
        func.sum(held).label("held"),
        func.sum(micro_usd(LeaseRow.cost_usd)).label("micro"),
        func.sum(micro_usd(LeaseRow.reserved_usd)).label("reserved"),
        func.sum(case((_is_own(), 1), else_=0)).label("own"),
        func.sum(case((_is_unknown(), 1), else_=0)).label("unknown"),
    )


def _sum(machines: int, held: float, micro: int, reserved: int, own: int, unknown: int) -> Sum:
    return Sum(
        machines=machines,
        seconds=float(held or 0),
        usd=usd_of_micro(micro),
        reserved_usd=usd_of_micro(reserved),
        own=int(own or 0),
        unknown=int(unknown or 0),
    )


def _run(row: RunRow, summed: Sum) -> RunSum:
    subject = (row.subject_name, row.subject_version)
    return RunSum(row.id, row.matrix_name, *subject, row.created_at, row.state, row.outcome, summed)


def _counts(since: datetime, until: datetime) -> ColumnElement[bool]:
    """Select settled machines of the period."""
    return and_(
        LeaseRow.reserved_at >= since,
        LeaseRow.reserved_at < until,
        LeaseRow.cost_usd.is_not(None),
        LeaseRow.machine_id != "",
        or_(LeaseRow.refusal == "", _has_cost()),  # a refused lease counts if it had a cost
        _is_real(),
    )


def _is_real() -> ColumnElement[bool]:
    return and_(not_(LeaseRow.simulated), LeaseRow.provider != _FAKE)


def _is_own() -> ColumnElement[bool]:
    """Select own machines that were not charged, as `why_no_cost` does."""
    price = func.coalesce(cast(LeaseRow.price_usd_per_hour, Float(53)), 0)
    return and_(LeaseRow.provider.in_(OWN), price == 0, not_(_has_cost()))


def _is_unknown() -> ColumnElement[bool]:
    price = LeaseRow.price_usd_per_hour
    return and_(LeaseRow.provider.not_in(OWN), price.is_(None), not_(_has_cost()))


def _has_cost() -> ColumnElement[bool]:
    return cast(LeaseRow.cost_usd, Float(53)) > 0


def _paid(session: Session, since: datetime, until: datetime) -> CTE:
    """Select billing period and cost of each machine."""
    begin, end = _billed_from(session), _billed_until(session)
    return (
        select(
            LeaseRow.pk.label("lease"),
            AttemptRow.cell.label("cell"),
            AttemptRow.number.label("attempt"),
            begin.label("begin"),
            end.label("end"),
            micro_usd(LeaseRow.cost_usd).label("micro"),
        )
        .join(AttemptRow, AttemptRow.pk == LeaseRow.attempt)
        .where(_counts(since, until), _has_cost(), end > begin)
        .cte("paid")
    )


def _steps(session: Session, paid: CTE) -> CTE:
    """Select the periods of each cell state with a machine.

    The join uses the index of a cell's transitions. With separate subqueries the database, which
    cannot estimate their sizes, would compare every machine with every step.
    """
    at = _epoch(session, TransitionRow.at)
    is_for = and_(TransitionRow.cell == paid.c.cell, TransitionRow.attempt == paid.c.attempt)
    following = func.lead(at).over(partition_by=paid.c.lease, order_by=TransitionRow.pk)
    return (
        select(
            *(paid.c.cell, paid.c.micro, paid.c.begin, paid.c.end),
            TransitionRow.to_state,
            at.label("step_begin"),
            following.label("step_end"),
        )
        .join_from(paid, TransitionRow, is_for)
        .cte("steps")
    )


def _phases(session: Session, since: datetime, until: datetime) -> Select[Any]:
    steps = _steps(session, _paid(session, since, until)).c
    until_end = func.coalesce(steps.step_end, steps.end)
    within = _earlier(until_end, steps.end) - _later(steps.step_begin, steps.begin)
    spent = _later(within, literal(0.0))
    phase = case((steps.to_state.in_(_AFTER), CellState.RELEASING.value), else_=steps.to_state)
    return (
        select(
            CellRow.name.label("platform"),
            phase.label("phase"),
            func.sum(spent),
            func.sum(steps.micro * spent / (steps.end - steps.begin)),
        )
        .join(CellRow, CellRow.pk == steps.cell)
        .group_by("platform", "phase")
        .order_by("platform", "phase")
    )


def _billed_from(session: Session) -> Number:
    """Select the start of billing.

    It is the launch call, or the last report that the machine was not granted yet.
    """
    ordered = _time_in_facts(session, LeaseFact.ORDERED_AT)
    return func.coalesce(ordered, _epoch(session, LeaseRow.launched_at))


def _billed_until(session: Session) -> Number:
    """Select the end of billing: when the machine was gone, or ended by its provider's account."""
    gone = _epoch(session, LeaseRow.gone_at)
    return _earlier(func.coalesce(_time_in_facts(session, LeaseFact.ENDED_AT), gone), gone)


def _time_in_facts(session: Session, fact: LeaseFact) -> Number:
    said = LeaseRow.facts[fact.value].as_string()
    if is_postgres(session):
        said = cast(said, DateTime(timezone=True))
    return _epoch(session, said)


def _epoch(session: Session, at: SQLCoreOperations[Any]) -> Number:
    """Convert to seconds since 1970."""
    if is_postgres(session):
        return cast(func.extract("epoch", at), Float(53))
    return (func.julianday(at) - 2440587.5) * 86400.0


def _day(session: Session, at: SQLCoreOperations[Any]) -> ColumnElement[str]:
    if is_postgres(session):
        return func.to_char(func.timezone("UTC", at), "YYYY-MM-DD")
    return func.strftime("%Y-%m-%d", at)


def _before_colon(session: Session, text: object) -> ColumnElement[str]:
    if is_postgres(session):
        return func.split_part(text, ":", 1)
    colon = func.instr(text, ":")
    return case((colon > 0, func.substr(text, 1, colon - 1)), else_=text)


def _later(one: Number, other: Number) -> Number:
    return case((one > other, one), else_=other)


def _earlier(one: Number, other: Number) -> Number:
    return case((one < other, one), else_=other)


_THING = ("provider", "item", "place", "market")


class PriceStore:
    """The newest plausible price of each item."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def write(self, prices: Iterable[Price]) -> None:
        """Store prices; only the newest of each item is kept, or the first of equally old ones."""
        newest: dict[tuple[str, ...], Price] = {}
        for price in prices:
            thing = (price.provider, price.item, price.place, price.market)
            if thing not in newest or newest[thing].as_of < price.as_of:
                newest[thing] = price
        if not newest:
            return
        rows = [asdict(newest[thing]) for thing in sorted(newest)]
        with self._sessions.write() as session:
            insert = insert_into(session, PRICES)
            new = insert.excluded
            statement = insert.on_conflict_do_update(
                index_elements=_THING,
                set_={name: new[name] for name in ("usd_per_hour", "as_of", "source")},
                where=PRICES.c.as_of < new.as_of,
            )
            session.execute(statement, rows)

    def of(self, provider: str) -> tuple[Price, ...]:
        """Return the newest price by item, place and market."""
        query = select(Records(Price, PRICES)).where(PRICES.c.provider == provider)
        ordered = query.order_by(PRICES.c.item, PRICES.c.place, PRICES.c.market)
        return tuple(self._sessions.scalars(ordered))
