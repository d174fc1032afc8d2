"""The ledger: a row per machine, from before the launch call until it is verified gone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from enum import StrEnum

from sqlalchemy import (
    Select,
    and_,
    bindparam,
    case,
    delete,
    exists,
    func,
    literal,
    literal_column,
    not_,
    or_,
    select,
    update,
)
from sqlalchemy.orm import Session
from sqlalchemy.sql.elements import ColumnElement

from orchestrator.domain.attestation import Attestation
from orchestrator.domain.budget import Budget, BudgetUse, Period
from orchestrator.domain.cell import Lease, LeaseFact, LeaseState, PlacementDecision
from orchestrator.domain.charges import Cost, cost_of
from orchestrator.domain.copied_fields import filled
from orchestrator.domain.machine import Endpoint, Login
from orchestrator.domain.manifest import UNTRUSTED
from orchestrator.store.benchmark_rollup import ROLLED_UP, recompute_cost
from orchestrator.store.column_types import short
from orchestrator.store.errors import UnknownIdError
from orchestrator.store.sessions import Sessions
from orchestrator.store.sql import (
    attempt_row,
    changed,
    insert_into,
    is_postgres,
    lock,
    micro_usd,
    usd_of_micro,
    values_of,
)
from orchestrator.store.tables import (
    AttemptRow,
    AttestationRow,
    CellRow,
    LeaseCredentialsRow,
    LeaseRow,
    PlacementDecisionRow,
    RunRow,
)


class Reservation(StrEnum):
    """The ledger's answer to a reservation."""

    RESERVED = "reserved"
    BUSY = "busy"
    """Another lease holds the exclusive place."""
    BUDGET_RESERVED = "budget_reserved"
    """Other machines have reserved the money, but may cost less in the end."""
    OVER_BUDGET = "over_budget"
    """The limit would be exceeded."""


@dataclass(frozen=True, slots=True)
class Reserved:
    """Result of a reservation."""

    answer: Reservation
    short: BudgetUse | None = None
    """The budget that refused the reservation."""


@dataclass(frozen=True, slots=True)
class RunSpending:
    """Costs of a run's machines."""

    settled: Cost = field(default_factory=Cost)
    unsettled: Sequence[Lease] = ()
    """Leases whose cost still grows."""


@dataclass(frozen=True, slots=True)
class _Settled:
    """The ledger's facts of a machine whose cost no longer grows."""

    provider: str
    machine_id: str
    price_usd_per_hour: Decimal | None
    cost_usd: Decimal

    @property
    def cost(self) -> Cost:
        return cost_of(self, self.cost_usd)


_BUDGET_LOCK = 7_328_417_254
"""Number of the advisory lock of reservations across runs."""
_NO_FACTS: Mapping[str, str] = {}
_BEFORE_RELEASE = (LeaseState.RESERVED, LeaseState.LAUNCHING, LeaseState.ACTIVE)


class LeaseStore:
    """The ledger: a row per machine, written before the launch call."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def reserve(
        self, lease: Lease, *, run_id: str, exclusive: bool, budgets: Iterable[Budget] = ()
    ) -> Reserved:
        """Reserve money and place. Settled costs and open reservations count.

        An existing lease of this id is reserved already: nothing changes.
        """
        budgets = tuple(budgets)
        with self._sessions.write() as session:
            if is_postgres(session) and any(x.period is not Period.RUN for x in budgets):
                # Reservations across runs are made one at a time, as on SQLite.
                session.execute(select(func.pg_advisory_xact_lock(_BUDGET_LOCK)))
            lock(session, select(RunRow.id).where(RunRow.id == run_id))
            known, uses = _uses(session, budgets, run_id, lease.reserved_at, lease_id=lease.id)
            if known:
                return Reserved(Reservation.RESERVED)
            for use in uses:
                if use.settled_usd + lease.reserved_usd > use.budget.limit_usd:
                    return Reserved(Reservation.OVER_BUDGET, use)
            for use in uses:
                if use.left_usd < lease.reserved_usd:
                    return Reserved(Reservation.BUDGET_RESERVED, use)
            attempt = select(AttemptRow.pk).where(AttemptRow.id == lease.attempt_id)
            row = values_of(
                LeaseRow,
                lease,
                attempt=attempt.scalar_subquery(),
                run_id=run_id,
                exclusive=exclusive,
                facts=dict(lease.facts) or None,
            )
            # The index of exclusive places decides between concurrent reservations.
            new = insert_into(session, LeaseRow).values(row)
            taken = changed(session, new.on_conflict_do_nothing())
            return Reserved(Reservation.RESERVED if taken else Reservation.BUSY)

    def budget_uses(self, budgets: Iterable[Budget], at: datetime) -> list[BudgetUse]:
        """Return each budget's usage in the period of `at`, for budgets across runs."""
        with self._sessions.read() as session:
            return _uses(session, budgets, "", at)[1]

    def get(self, lease_id: str) -> Lease:
        """Return the lease. Raises UnknownIdError."""
        with self._sessions.read() as session:
            found = session.execute(_leases().where(LeaseRow.id == lease_id)).one_or_none()
            if found is None:
                raise UnknownIdError("lease", lease_id)
            return lease_of(found[0], found[1])

    def of_attempt(self, attempt_id: str) -> list[Lease]:
        """Return leases in the order of their reservation."""
        with self._sessions.read() as session:
            found = session.execute(_OF_ATTEMPT, {"of_attempt": attempt_id})
            return [lease_of(row, attempt_id) for row, _ in found]

    def of_run(self, run_id: str) -> dict[str, list[Lease]]:
        """Return leases by cell id; cells without any have an empty list."""
        return self.attested(run_id)[0]

    def attested(self, run_id: str) -> tuple[dict[str, list[Lease]], dict[str, Attestation]]:
        """Return leases by cell id, and attestations by lease id, in the order of reservation."""
        query = (
            select(CellRow.id, LeaseRow, AttemptRow.id, AttestationRow.document)
            .join(AttemptRow, AttemptRow.cell == CellRow.pk, isouter=True)
            .join(LeaseRow, LeaseRow.attempt == AttemptRow.pk, isouter=True)
            .join(AttestationRow, AttestationRow.lease == LeaseRow.pk, isouter=True)
            .where(CellRow.run_id == run_id)
            .order_by(CellRow.position, LeaseRow.pk)
        )
        leases: dict[str, list[Lease]] = {}
        attestations: dict[str, Attestation] = {}
        with self._sessions.read() as session:
            for cell_id, row, attempt_id, document in session.execute(query):
                mine = leases.setdefault(cell_id, [])
                if row is not None:
                    mine.append(lease_of(row, attempt_id))
                    if document is not None:
                        attestations[row.id] = document
        return leases, attestations

    def spending(self, run_ids: Sequence[str]) -> dict[str, RunSpending]:
        """Return the settled costs and the open leases by run."""
        mine = LeaseRow.run_id.in_(run_ids)
        settled = select(
            LeaseRow.run_id,
            LeaseRow.provider,
            LeaseRow.machine_id,
            LeaseRow.price_usd_per_hour,
            LeaseRow.cost_usd,
        )
        unsettled = _leases().add_columns(LeaseRow.run_id)
        found: dict[str, RunSpending] = {}
        with self._sessions.read() as session:
            for run, name, machine, price, cost in session.execute(
                settled.where(mine, LeaseRow.cost_usd.is_not(None))
            ):
                spent = found.get(run, RunSpending())
                one = _Settled(name, machine, price, cost or Decimal(0)).cost
                found[run] = replace(spent, settled=spent.settled + one)
            for row, attempt, run in session.execute(
                unsettled.where(mine, LeaseRow.cost_usd.is_(None))
            ):
                spent = found.get(run, RunSpending())
                found[run] = replace(spent, unsettled=(*spent.unsettled, lease_of(row, attempt)))
        return found

    def open(self) -> list[Lease]:
        """Return every lease that is not GONE, oldest first."""
        with self._sessions.read() as session:
            return _all(session, _leases().where(LeaseRow.state != LeaseState.GONE))

    def launching(self, lease_id: str, *, at: datetime) -> Lease:
        """Enter LAUNCHING: a machine may exist from now on.

        A repeated launch call may create the machine late, so the time of the call is stored.
        """
        asked: dict[str, str] = {LeaseFact.ASKED_AT: at.isoformat()}
        again, first = LeaseRow.state == LeaseState.LAUNCHING, LeaseRow.state == LeaseState.RESERVED
        values = {
            "facts": case((again, self._with(asked)), else_=LeaseRow.facts),
            "launched_at": case((first, at), else_=LeaseRow.launched_at),
            "state": case((first, LeaseState.LAUNCHING), else_=LeaseRow.state),
        }
        return self._change(lease_id, values)

    def active(
        self,
        lease_id: str,
        machine_id: str,
        *,
        at: datetime,
        facts: Mapping[str, str] = _NO_FACTS,
        simulated: bool = False,
    ) -> Lease:
        """Store the machine's id at any time; enter ACTIVE unless the lease is past that state."""
        is_early = LeaseRow.state.in_((LeaseState.RESERVED, LeaseState.LAUNCHING))
        values = {
            "machine_id": case((LeaseRow.machine_id == "", machine_id), else_=LeaseRow.machine_id),
            "launched_at": func.coalesce(LeaseRow.launched_at, at),
            "state": case((is_early, LeaseState.ACTIVE), else_=LeaseRow.state),
        }
        return self._change(lease_id, values | self._noted(facts, simulated=simulated))

    def reached(self, lease_id: str, endpoint: Endpoint) -> Lease:
        """Store the machine's endpoint; return the changed lease. Raises UnknownIdError."""
        return self._change(lease_id, {"endpoint": endpoint})

    def releasing(self, lease_id: str) -> None:
        """Enter RELEASING: the provider was called to terminate the machine.

        A lease that is RELEASING or GONE is unchanged. Raises UnknownIdError.
        """
        is_early = LeaseRow.state.in_(_BEFORE_RELEASE)
        state = case((is_early, LeaseState.RELEASING), else_=LeaseRow.state)
        self._change(lease_id, {"state": state})

    def _change(self, lease_id: str, values: Mapping[str, object]) -> Lease:
        """Set the columns, and return the lease. Raises UnknownIdError."""
        attempt = select(AttemptRow.id).where(AttemptRow.pk == LeaseRow.attempt).scalar_subquery()
        new = update(LeaseRow).where(LeaseRow.id == lease_id).values(values)
        with self._sessions.write() as session:
            found = session.execute(new.returning(LeaseRow, attempt)).one_or_none()
            if found is None:
                raise UnknownIdError("lease", lease_id)
            return lease_of(found[0], found[1])

    def _noted(self, facts: Mapping[str, str], *, simulated: bool) -> dict[str, object]:
        """Return the columns of the noted facts; empty without facts."""
        values: dict[str, object] = {"facts": self._with(facts)} if facts else {}
        return values | ({"simulated": True} if simulated else {})

    def _with(self, facts: Mapping[str, str]) -> ColumnElement[dict[str, str]]:
        """Return an expression for the lease's facts merged with these."""
        new = literal(dict(facts), LeaseRow.facts.type)
        if self._sessions.is_postgres:
            known = func.coalesce(LeaseRow.facts, literal_column("'{}'::jsonb"))
            return known.op("||")(new)
        return func.json_patch(func.coalesce(LeaseRow.facts, literal_column("'{}'")), new)

    def gone(self, lease_id: str, *, at: datetime, cost_usd: Decimal, refusal: str = "") -> None:
        """Close a lease: its place and the rest of its reserved money are free again.

        A lease that is GONE is unchanged. Raises UnknownIdError.

        Args:
            lease_id: The lease.
            at: When its machine was verified to be gone.
            cost_usd: The settled cost.
            refusal: Why the provider gave no machine, ``reason: detail``; empty if it gave one.
        """
        with self._sessions.write() as session:
            closed = {"state": LeaseState.GONE, "gone_at": at}
            query = update(LeaseRow).where(LeaseRow.id == lease_id)
            new = query.where(LeaseRow.state != LeaseState.GONE).values(
                closed | {"cost_usd": cost_usd, "refusal": refusal}
            )
            found = session.execute(new.returning(LeaseRow.pk, ROLLED_UP)).one_or_none()
            if found is None:
                _locked(session, lease_id)
                return
            pk, cell = found
            changed(session, delete(LeaseCredentialsRow).where(LeaseCredentialsRow.lease == pk))
            if cell is not None:
                recompute_cost(session, cell)

    def reopen(self, lease_id: str, machine_id: str) -> None:
        """Reopen a lease that is GONE, since its machine appeared: enter RELEASING and bill it.

        A lease that is not GONE is unchanged. Raises UnknownIdError.
        """
        with self._sessions.write() as session:
            row = _locked(session, lease_id)
            if row.state is not LeaseState.GONE:
                return
            row.state, row.machine_id = LeaseState.RELEASING, machine_id
            row.launched_at = row.launched_at or row.reserved_at
            row.gone_at = row.cost_usd = None
            facts = row.facts or {}
            row.facts = {key: facts[key] for key in facts if key != LeaseFact.ENDED_AT}
            row.exclusive = False  # another lease may have its place by now

    def note(self, lease_id: str, facts: Mapping[str, str], *, simulated: bool) -> Lease:
        """Merge the provider's facts of the machine into the lease's; return the changed lease."""
        values = self._noted(facts, simulated=simulated)
        return self._change(lease_id, values) if values else self.get(lease_id)

    def placed(
        self, attempt_id: str, provider: str, since: datetime
    ) -> tuple[list[Lease], list[Lease]]:
        """Return an attempt's leases, oldest first, and recent refusals to others, newest first."""
        mine = select(AttemptRow.pk).where(AttemptRow.id == attempt_id).scalar_subquery()
        refused = (LeaseRow.provider == provider, LeaseRow.refusal != "", LeaseRow.gone_at >= since)
        with self._sessions.read() as session:
            found = _all(session, _leases().where(or_(LeaseRow.attempt == mine, and_(*refused))))
        own = [lease for lease in found if lease.attempt_id == attempt_id]
        others = [lease for lease in reversed(found) if lease.attempt_id != attempt_id]
        return own, sorted(others, key=lambda lease: lease.gone_at or since, reverse=True)

    def by_token(self, lease_ids: Iterable[str]) -> dict[str, Lease]:
        """Return the leases of these ids that the ledger has."""
        with self._sessions.read() as session:
            found = _all(session, _leases().where(LeaseRow.id.in_(set(lease_ids))))
        return {lease.id: lease for lease in found}

    def providers(self) -> list[str]:
        """Return every provider in the ledger."""
        query = select(LeaseRow.provider).distinct().order_by(LeaseRow.provider)
        return list(self._sessions.scalars(query))

    def places(self, provider: str) -> list[str]:
        """Return every place of the provider in the ledger."""
        query = select(LeaseRow.place).where(LeaseRow.provider == provider).distinct()
        return sorted(self._sessions.scalars(query))

    def keep_login(self, lease_id: str, login: Login) -> Login:
        """Store the credentials; the first ones are kept and returned. A gone lease has none."""
        with self._sessions.write() as session:
            its = LeaseCredentialsRow.login.type
            mine = select(LeaseRow.pk, literal(login, its)).where(LeaseRow.id == lease_id)
            new = insert_into(session, LeaseCredentialsRow).from_select(
                ["lease", "login"], mine.where(LeaseRow.state != LeaseState.GONE)
            )
            if changed(session, new.on_conflict_do_nothing()):
                return login
            kept = session.get(LeaseCredentialsRow, _locked(session, lease_id).pk)
            return kept.login if kept is not None else login

    def login(self, lease_id: str) -> Login | None:
        """Return the credentials of a lease; None for a gone lease or one without credentials."""
        query = select(LeaseCredentialsRow.login).join(
            LeaseRow, LeaseRow.pk == LeaseCredentialsRow.lease
        )
        return self._sessions.scalar(query.where(LeaseRow.id == lease_id))

    def attest(self, lease_id: str, attestation: Attestation) -> None:
        """Insert or replace the attestation of the lease's machine. Raises UnknownIdError."""
        with self._sessions.write() as session:
            insert = insert_into(session, AttestationRow)
            document = literal(attestation, AttestationRow.document.type)
            row = select(LeaseRow.pk, document).where(LeaseRow.id == lease_id)
            statement = insert.from_select(["lease", "document"], row).on_conflict_do_update(
                index_elements=["lease"], set_={"document": insert.excluded.document}
            )
            if not changed(session, statement):
                raise UnknownIdError("lease", lease_id)

    def attestations(self, attempt_id: str) -> dict[str, Attestation]:
        """Return the attestations of an attempt's machines, by lease id."""
        query = (
            select(LeaseRow.id, AttestationRow.document)
            .join(AttestationRow, AttestationRow.lease == LeaseRow.pk)
            .join(AttemptRow, AttemptRow.pk == LeaseRow.attempt)
            .where(AttemptRow.id == attempt_id)
            .order_by(LeaseRow.pk)
        )
        return dict(self._sessions.rows(query))

    def decide(self, attempt_id: str, decision: PlacementDecision) -> bool:
        """Store a placement decision; return whether the decision is new.

        An equal (place, result, reason) of an attempt is stored once.
        """
        with self._sessions.write() as session:
            return add_decision(session, attempt_id, decision)

    def decisions(self, run_id: str) -> dict[str, list[PlacementDecision]]:
        """Return placement decisions by cell id, in order, each with its attempt's number."""
        with self._sessions.read() as session:
            return decisions_of(session, run_id)


def _uses(
    session: Session, budgets: Iterable[Budget], run_id: str, at: datetime, *, lease_id: str = ""
) -> tuple[bool, list[BudgetUse]]:
    """Return whether the lease is known, and each budget's usage, read in one statement.

    Across runs, machines of an emulation cost nothing.
    """
    budgets = tuple(budgets)
    is_settled = LeaseRow.cost_usd.is_not(None)
    amounts = (
        func.sum(case((is_settled, micro_usd(LeaseRow.cost_usd)), else_=0)),
        func.sum(case((is_settled, 0), else_=micro_usd(LeaseRow.reserved_usd))),
    )
    sums = []
    for budget in budgets:
        counted = LeaseRow.run_id == run_id
        if budget.period is not Period.RUN:
            counted = and_(LeaseRow.reserved_at >= budget.since(at), not_(LeaseRow.simulated))
        if budget.period is Period.UNTRUSTED:
            untrusted = select(RunRow.id).where(RunRow.product.startswith(UNTRUSTED))
            counted = and_(counted, LeaseRow.run_id.in_(untrusted))
        sums += [select(one).where(counted).scalar_subquery() for one in amounts]
    is_known, *micro = session.execute(select(exists().where(LeaseRow.id == lease_id), *sums)).one()
    found = zip(budgets, micro[::2], micro[1::2], strict=True)
    return is_known, [
        BudgetUse(budget, usd_of_micro(settled), usd_of_micro(reserved))
        for budget, settled, reserved in found
    ]


def _leases() -> Select[LeaseRow, str]:
    query = select(LeaseRow, AttemptRow.id).join(AttemptRow, AttemptRow.pk == LeaseRow.attempt)
    return query.order_by(LeaseRow.pk)


_OF_ATTEMPT = _leases().where(AttemptRow.id == bindparam("of_attempt"))


def _all(session: Session, query: Select[LeaseRow, str]) -> list[Lease]:
    return [lease_of(row, attempt_id) for row, attempt_id in session.execute(query)]


def _locked(session: Session, lease_id: str) -> LeaseRow:
    query = select(LeaseRow).where(LeaseRow.id == lease_id).with_for_update(key_share=True)
    row = session.scalar(query)
    if row is None:
        raise UnknownIdError("lease", lease_id)
    return row


def lease_of(row: LeaseRow, attempt_id: str) -> Lease:
    """Return the lease of a row."""
    return filled(Lease, row, attempt_id=attempt_id, facts=row.facts or {})


def add_decision(session: Session, attempt_id: str, decision: PlacementDecision) -> bool:
    """Store a placement decision; return False if the attempt has an equal one."""
    mine = AttemptRow.id == attempt_id
    lock(session, select(AttemptRow.pk).where(mine))
    last = select(func.coalesce(func.max(PlacementDecisionRow.number), 0)).where(
        PlacementDecisionRow.attempt == AttemptRow.pk
    )
    told = {
        "at": decision.at,
        "place": short(decision.place),
        "result": decision.result,
        "reason": short(decision.reason),
        "detail": decision.detail,
    }
    columns = PlacementDecisionRow.__table__.columns
    values = [literal(value, columns[name].type) for name, value in told.items()]
    line = select(AttemptRow.pk, last.scalar_subquery() + 1, *values).where(mine)
    new = insert_into(session, PlacementDecisionRow).from_select(["attempt", "number", *told], line)
    if changed(session, new.on_conflict_do_nothing()):
        return True
    attempt_row(session, attempt_id)
    return False


def decisions_of(session: Session, run_id: str) -> dict[str, list[PlacementDecision]]:
    """Return placement decisions by cell id; cells without any have an empty list."""
    query = (
        select(CellRow.id, PlacementDecisionRow, AttemptRow.number)
        .join(AttemptRow, AttemptRow.cell == CellRow.pk, isouter=True)
        .join(PlacementDecisionRow, PlacementDecisionRow.attempt == AttemptRow.pk, isouter=True)
        .where(CellRow.run_id == run_id)
        .order_by(CellRow.position, AttemptRow.number, PlacementDecisionRow.number)
    )
    found: dict[str, list[PlacementDecision]] = {}
    for cell_id, row, number in session.execute(query):
        mine = found.setdefault(cell_id, [])
        if row is not None:
            mine.append(filled(PlacementDecision, row, attempt=number))
    return found
