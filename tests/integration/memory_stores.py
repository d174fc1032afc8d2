"""The stores that a cell's flow and the janitor use, in memory: so fast that thousands of
histories can be lived through. `test_no_leaks` shows that SQLite's lead to the same histories.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from types import SimpleNamespace

from orchestrator.domain.attestation import Attestation
from orchestrator.domain.budget import Budget, BudgetUse
from orchestrator.domain.cell import (
    Attempt,
    Cause,
    Cell,
    CellState,
    Lease,
    LeaseFact,
    LeaseState,
    PlacementDecision,
    Run,
    RunSpec,
    RunState,
    Transition,
)
from orchestrator.domain.event_facts import Facts
from orchestrator.domain.machine import Endpoint, Login
from orchestrator.domain.matrix import CellPlan
from orchestrator.domain.outcome import Outcome
from orchestrator.store.attempt_evidence import EvidencePosition
from orchestrator.store.cells import AttemptState, CellLife, CellStatus
from orchestrator.store.leases import Reservation, Reserved
from orchestrator.store.stores import Stores
from tests.integration.absent_stores import NoQuarantines, NoResults, NoReusableResults

_NO_FACTS: Mapping[str, str] = {}


@dataclass(slots=True)
class Tables:
    """What is stored."""

    runs: dict[str, Run] = field(default_factory=dict)
    specs: dict[str, RunSpec] = field(default_factory=dict)
    cells: dict[str, Cell] = field(default_factory=dict)
    plans: dict[str, CellPlan] = field(default_factory=dict)
    attempts: dict[str, Attempt] = field(default_factory=dict)
    transitions: dict[str, list[Transition]] = field(default_factory=dict)
    leases: dict[str, Lease] = field(default_factory=dict)
    exclusive: set[str] = field(default_factory=set)
    logins: dict[str, Login] = field(default_factory=dict)
    attestations: dict[str, Attestation] = field(default_factory=dict)
    decisions: dict[str, list[PlacementDecision]] = field(default_factory=dict)
    positions: dict[str, EvidencePosition] = field(default_factory=dict)
    sightings: dict[str, dict[str, datetime]] = field(default_factory=dict)

    def run_of(self, attempt_id: str) -> str:
        return self.cells[self.attempts[attempt_id].cell_id].run_id


@dataclass(slots=True)
class MemoryRuns:
    """Runs, as far as a flow looks at them."""

    tables: Tables

    def create(
        self, run: Run, spec: RunSpec, cells: Sequence[tuple[str, CellPlan]], *, key: str | None
    ) -> None:
        self.tables.runs[run.id], self.tables.specs[run.id] = run, spec
        for position, (cell_id, plan) in enumerate(cells):
            self.tables.cells[cell_id] = Cell(cell_id, run.id, f"cell-{position}", position)
            self.tables.plans[cell_id] = plan

    def get(self, run_id: str) -> Run | None:
        return self.tables.runs.get(run_id)

    def spec(self, run_id: str) -> RunSpec:
        return self.tables.specs[run_id]

    def request_cancel(self, run_id: str, *, at: datetime) -> Run:
        run = self.tables.runs[run_id]
        if run.cancel_requested_at is None and run.state is not RunState.FINISHED:
            self.tables.runs[run_id] = replace(run, cancel_requested_at=at)
        return self.tables.runs[run_id]

    def launched(self, run_id: str) -> tuple[Run, RunSpec] | None:
        run = self.get(run_id)
        return (run, self.spec(run_id)) if run is not None else None

    def finish(
        self,
        run_id: str,
        outcome: Outcome,
        *,
        at: datetime,
        cells: int | None = None,
        report: Mapping[str, object] | None = None,
    ) -> bool:
        run = self.tables.runs[run_id]
        states = [cell.state for cell in self.tables.cells.values() if cell.run_id == run_id]
        if run.state is RunState.FINISHED or states != [CellState.DONE] * (cells or len(states)):
            return False
        ended = replace(run, state=RunState.FINISHED, outcome=outcome, finished_at=at)
        self.tables.runs[run_id] = ended
        return True


@dataclass(slots=True)
class MemoryCells:
    """Cells and their attempts."""

    tables: Tables

    def get(self, cell_id: str) -> Cell:
        return self.tables.cells[cell_id]

    def of_run(self, run_id: str) -> list[Cell]:
        return [cell for cell in self.tables.cells.values() if cell.run_id == run_id]

    def lives(self, cell_ids: Sequence[str], *, whole: bool = True) -> dict[str, CellLife]:
        return {
            cell_id: CellLife(
                self.get(cell_id),
                self.plan(cell_id),
                self.attempts(cell_id),
                self.transitions(cell_id),
            )
            for cell_id in cell_ids
        }

    def plan(self, cell_id: str) -> CellPlan:
        return self.tables.plans[cell_id]

    def run_id(self, cell_id: str) -> str:
        return self.get(cell_id).run_id

    def concluded(self, run_id: str) -> list[tuple[Cell, CellPlan]]:
        cells = self.of_run(run_id)
        done = all(cell.state is CellState.DONE for cell in cells)
        return [(cell, self.plan(cell.id)) for cell in cells] if done else []

    def attempt(self, attempt_id: str) -> Attempt:
        return self.tables.attempts[attempt_id]

    def attempt_state(self, attempt_id: str) -> AttemptState:
        tables = self.tables
        attempt = tables.attempts[attempt_id]
        cell = tables.cells[attempt.cell_id]
        held = [
            one
            for one in tables.leases.values()
            if one.attempt_id == attempt_id and one.state is not LeaseState.GONE
        ]
        return AttemptState(
            tables.runs[cell.run_id],
            tables.specs[cell.run_id],
            cell,
            tables.plans[cell.id],
            attempt,
            tables.positions.get(attempt_id, EvidencePosition()),
            held[-1] if held else None,
        )

    def status(self, cell_id: str) -> CellStatus:
        tables = self.tables
        cell, attempts = tables.cells[cell_id], self.attempts(cell_id)
        return CellStatus(
            tables.runs[cell.run_id],
            tables.specs[cell.run_id],
            cell,
            tables.plans[cell_id],
            attempts[-1] if attempts else None,
        )

    def attempts(self, cell_id: str) -> list[Attempt]:
        return [one for one in self.tables.attempts.values() if one.cell_id == cell_id]

    def transitions(self, cell_id: str) -> list[Transition]:
        return list(self.tables.transitions.get(cell_id, ()))

    def admit(self, cell_id: str, attempt_id: str, *, max_parallel: int, at: datetime) -> bool:
        known = self.tables.attempts.get(attempt_id)
        if known is not None:
            return known.closed_at is None
        cell = self.get(cell_id)
        idle = (CellState.QUEUED, CellState.DONE)
        if sum(one.state not in idle for one in self.of_run(cell.run_id)) >= max_parallel:
            return False
        number = len(self.attempts(cell_id)) + 1
        self.tables.attempts[attempt_id] = Attempt(attempt_id, cell_id, number, at)
        self._move(cell, CellState.PLACING, at=at)
        return True

    def enter(self, cell_id: str, state: CellState, *, at: datetime, reason: str = "") -> Cell:
        cell = self.get(cell_id)
        return cell if cell.has_reached(state) else self._move(cell, state, at=at, reason=reason)

    def requeue(self, attempt_id: str, outcome: Cause, *, at: datetime) -> None:
        attempt = self.attempt(attempt_id)
        if attempt.closed_at is not None:
            return
        self._close(attempt, outcome, at=at)
        self.record_cause(attempt_id, outcome)
        self._move(self.get(attempt.cell_id), CellState.QUEUED, at=at, reason=outcome.reason)

    def conclude(self, cell_id: str, outcome: Cause, *, at: datetime) -> None:
        cell = self.get(cell_id)
        if cell.state is CellState.DONE:
            return
        attempts = self.attempts(cell_id)
        if attempts and attempts[-1].closed_at is None:
            self._close(attempts[-1], outcome, at=at)
        said = replace(cell, outcome=outcome.outcome, reason=outcome.reason, detail=outcome.detail)
        self._move(said, CellState.DONE, at=at, reason=outcome.reason)

    def record_cause(self, attempt_id: str, cause: Cause) -> None:
        attempt = self.attempt(attempt_id)
        if attempt.cause is None:
            self.tables.attempts[attempt_id] = replace(attempt, cause=cause)

    def record_collection(self, attempt_id: str, *, at: datetime) -> None:
        """Do nothing: no test of this store reads the time of collection."""

    def _close(self, attempt: Attempt, outcome: Cause, *, at: datetime) -> None:
        closed = replace(attempt, outcome=outcome.outcome, closed_at=at)
        self.tables.attempts[attempt.id] = closed

    def _move(self, cell: Cell, state: CellState, *, at: datetime, reason: str = "") -> Cell:
        moved = self.tables.cells[cell.id] = cell.to(state, at=at)
        step = Transition(at, len(self.attempts(cell.id)), cell.state, state, reason)
        self.tables.transitions.setdefault(cell.id, []).append(step)
        return moved


@dataclass(slots=True)
class MemoryLeases:
    """The ledger."""

    tables: Tables

    def reserve(
        self, lease: Lease, *, run_id: str, exclusive: bool, budgets: Iterable[Budget] = ()
    ) -> Reserved:
        if lease.id in self.tables.leases:
            return Reserved(Reservation.RESERVED)
        mine = self._of_run(run_id)
        settled = sum((x.cost_usd or Decimal(0) for x in mine), Decimal(0))
        reserved = sum((x.reserved_usd for x in mine if x.cost_usd is None), Decimal(0))
        for budget in budgets:
            use = BudgetUse(budget, settled, reserved)
            if settled + lease.reserved_usd > budget.limit_usd:
                return Reserved(Reservation.OVER_BUDGET, use)
            if use.left_usd < lease.reserved_usd:
                return Reserved(Reservation.BUDGET_RESERVED, use)
        held = (self.tables.leases[x] for x in self.tables.exclusive)
        if exclusive and any((x.provider, x.place) == (lease.provider, lease.place) for x in held):
            return Reserved(Reservation.BUSY)
        self.tables.leases[lease.id] = lease
        if exclusive:
            self.tables.exclusive.add(lease.id)
        return Reserved(Reservation.RESERVED)

    def get(self, lease_id: str) -> Lease:
        return self.tables.leases[lease_id]

    def of_attempt(self, attempt_id: str) -> list[Lease]:
        return [x for x in self.tables.leases.values() if x.attempt_id == attempt_id]

    def of_run(self, run_id: str) -> dict[str, list[Lease]]:
        found: dict[str, list[Lease]] = {
            cell.id: [] for cell in self.tables.cells.values() if cell.run_id == run_id
        }
        for lease in self._of_run(run_id):
            found[self.tables.attempts[lease.attempt_id].cell_id].append(lease)
        return found

    def open(self) -> list[Lease]:
        return [x for x in self.tables.leases.values() if x.state is not LeaseState.GONE]

    def launching(self, lease_id: str, *, at: datetime) -> Lease:
        state = self.get(lease_id).state
        if state is LeaseState.LAUNCHING:
            self.note(lease_id, {LeaseFact.ASKED_AT: at.isoformat()}, simulated=False)
        if state is LeaseState.RESERVED:
            self._set(lease_id, state=LeaseState.LAUNCHING, launched_at=at)
        return self.get(lease_id)

    def active(
        self,
        lease_id: str,
        machine_id: str,
        *,
        at: datetime,
        facts: Mapping[str, str] = _NO_FACTS,
        simulated: bool = False,
    ) -> Lease:
        lease = self.get(lease_id)
        early = lease.state in (LeaseState.RESERVED, LeaseState.LAUNCHING)
        self._set(
            lease_id,
            machine_id=lease.machine_id or machine_id,
            launched_at=lease.launched_at or at,
            state=LeaseState.ACTIVE if early else lease.state,
        )
        return self.note(lease_id, facts, simulated=simulated)

    def reached(self, lease_id: str, endpoint: Endpoint) -> Lease:
        self._set(lease_id, endpoint=endpoint)
        return self.get(lease_id)

    def releasing(self, lease_id: str) -> None:
        if self.get(lease_id).state is not LeaseState.GONE:
            self._set(lease_id, state=LeaseState.RELEASING)

    def gone(self, lease_id: str, *, at: datetime, cost_usd: Decimal, refusal: str = "") -> None:
        if self.get(lease_id).state is LeaseState.GONE:
            return
        self._set(lease_id, state=LeaseState.GONE, gone_at=at, cost_usd=cost_usd, refusal=refusal)
        self.tables.logins.pop(lease_id, None)
        self.tables.exclusive.discard(lease_id)

    def reopen(self, lease_id: str, machine_id: str) -> None:
        lease = self.get(lease_id)
        if lease.state is LeaseState.GONE:
            facts = {key: said for key, said in lease.facts.items() if key != LeaseFact.ENDED_AT}
            self._set(
                lease_id,
                facts=facts,
                state=LeaseState.RELEASING,
                machine_id=machine_id,
                launched_at=lease.launched_at or lease.reserved_at,
                gone_at=None,
                cost_usd=None,
            )

    def note(self, lease_id: str, facts: Mapping[str, str], *, simulated: bool) -> Lease:
        lease = self.get(lease_id)
        known = {**lease.facts, **facts}
        self._set(lease_id, facts=known, simulated=lease.simulated or simulated)
        return self.get(lease_id)

    def placed(
        self, attempt_id: str, provider: str, since: datetime
    ) -> tuple[list[Lease], list[Lease]]:
        found = (x for x in self.tables.leases.values() if x.provider == provider)
        late = [
            x
            for x in found
            if x.attempt_id != attempt_id and x.refusal and x.gone_at and x.gone_at >= since
        ]
        late.reverse()
        late.sort(key=lambda x: x.gone_at or since, reverse=True)
        return self.of_attempt(attempt_id), late

    def by_token(self, lease_ids: Iterable[str]) -> dict[str, Lease]:
        return {x: self.tables.leases[x] for x in lease_ids if x in self.tables.leases}

    def providers(self) -> list[str]:
        return sorted({x.provider for x in self.tables.leases.values()})

    def keep_login(self, lease_id: str, login: Login) -> Login:
        if self.get(lease_id).state is LeaseState.GONE:
            return self.tables.logins.get(lease_id, login)
        return self.tables.logins.setdefault(lease_id, login)

    def login(self, lease_id: str) -> Login | None:
        return self.tables.logins.get(lease_id)

    def attest(self, lease_id: str, attestation: Attestation) -> None:
        self.tables.attestations[lease_id] = attestation

    def attestations(self, run_id: str) -> dict[str, Attestation]:
        known = self.tables.attestations
        return {x.id: known[x.id] for x in self._of_run(run_id) if x.id in known}

    def decide(self, attempt_id: str, decision: PlacementDecision) -> bool:
        lines = self.tables.decisions.setdefault(attempt_id, [])
        said = {(x.place, x.result, x.reason) for x in lines}
        is_new = (decision.place, decision.result, decision.reason) not in said
        if is_new:
            lines.append(decision)
        return is_new

    def decisions(self, run_id: str) -> dict[str, list[PlacementDecision]]:
        found: dict[str, list[PlacementDecision]] = {}
        for attempt in self.tables.attempts.values():
            lines = self.tables.decisions.get(attempt.id, ())
            mine = found.setdefault(attempt.cell_id, [])
            mine += [replace(line, attempt=attempt.number) for line in lines]
        return found

    def _of_run(self, run_id: str) -> Iterator[Lease]:
        leases = self.tables.leases.values()
        return (x for x in leases if self.tables.run_of(x.attempt_id) == run_id)

    def _set(self, lease_id: str, **values: object) -> None:
        self.tables.leases[lease_id] = replace(self.tables.leases[lease_id], **values)


@dataclass(slots=True)
class MemoryEvidence:
    """How far the evidence of each attempt has come; what it says is not kept."""

    tables: Tables

    def position(self, attempt_id: str) -> EvidencePosition:
        return self.tables.positions.get(attempt_id, EvidencePosition())

    def append(
        self,
        attempt_id: str,
        have: EvidencePosition,
        *,
        at: datetime,
        events: bytes,
        facts: Facts,
        log: bytes,
    ) -> EvidencePosition | None:
        known = self.position(attempt_id)
        if (have.events_bytes, have.log_bytes) != (known.events_bytes, known.log_bytes):
            return None
        now = self.tables.positions[attempt_id] = replace(
            known,
            seq=max(have.seq, facts.last_seq),
            events_bytes=have.events_bytes + len(events),
            log_bytes=have.log_bytes + len(log),
            last_event_at=at if events else known.last_event_at,
            end=facts.end or known.end,
        )
        return now

    def raw_events(self, attempt_id: str) -> Iterable[bytes]:
        return iter(())

    def settle(self, cell_id: str, given_up: Iterable[str]) -> None:
        """There are no tests."""

    def reopen(self, cell_id: str, jobs: Sequence[str], *, tests: bool) -> None:
        """There are no jobs."""


class NoRunEvents:
    """Nobody watches."""

    def add(self, run_id: str, kind: str, data: Mapping[str, object]) -> None:
        """Nothing."""


@dataclass(slots=True)
class MemoryOrphans:
    """What the janitor saw."""

    tables: Tables

    def see(
        self,
        provider: str,
        machine_ids: Iterable[str],
        *,
        at: datetime,
        cleared: Iterable[str] | None = None,
    ) -> dict[str, datetime]:
        known = self.tables.sightings.get(provider, {})
        seen = {machine_id: known.get(machine_id, at) for machine_id in machine_ids}
        over = known.keys() if cleared is None else set(cleared)
        kept = {name: first for name, first in known.items() if name not in over}
        self.tables.sightings[provider] = kept | seen
        return dict(seen)


class NoDurations:
    """Nothing ran before."""

    def longest(
        self, product: str, jobs: Sequence[str]
    ) -> tuple[dict[str, float], dict[str, dict[str, float]]]:
        return {}, {}


ABSENT = (
    *("payloads", "tokens", "browser_sessions", "controllers", "static_hosts", "prices", "ingests"),
    *("annotations", "failures", "tests", "aliases", "known_issues", "gates", "schedules"),
    *("outbox", "operational_metrics", "retests", "benchmark_series", "failure_groups"),
    *("benchmarks", "differences", "releases"),
    *("grids", "logs", "costs", "machines", "retention", "audit", "backup", "changes"),
)


def memory_stores() -> Stores:
    """Everything that a flow asks for; the rest is not there."""
    tables = Tables()
    return Stores(
        runs=MemoryRuns(tables),
        cells=MemoryCells(tables),
        leases=MemoryLeases(tables),
        evidence=MemoryEvidence(tables),
        results=NoResults(),
        run_events=NoRunEvents(),
        orphans=MemoryOrphans(tables),
        reusable_results=NoReusableResults(),
        quarantines=NoQuarantines(),
        durations=NoDurations(),
        **dict.fromkeys(ABSENT, SimpleNamespace()),
    )
