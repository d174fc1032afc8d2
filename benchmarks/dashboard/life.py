"""The rows of one cell: attempts, transitions, machines and costs."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal

from benchmarks.dashboard.bulk_insert import Sink
from benchmarks.dashboard.logs import write_log
from benchmarks.dashboard.plans import Machine
from benchmarks.dashboard.surroundings import attestation, environment, facts_of
from orchestrator.domain.cell import Cause, CellState, Lease, LeaseState, PlacementResult
from orchestrator.domain.machine import Place
from orchestrator.domain.matrix import CellPlan
from orchestrator.domain.money import machine_cost
from orchestrator.domain.outcome import Outcome
from orchestrator.store.tables import (
    RUN_EVENTS,
    AttemptRow,
    AttestationRow,
    CellPlanRow,
    CellRow,
    EnvironmentReportRow,
    LeaseRow,
    PlacementDecisionRow,
    TransitionRow,
)

_WHOLE = (
    CellState.PLACING,
    CellState.BOOTING,
    CellState.PREPARING,
    CellState.RUNNING,
    CellState.COLLECTING,
    CellState.RELEASING,
)
_TAKES = {
    CellState.PLACING: (8, 60),
    CellState.BOOTING: (40, 150),
    CellState.PREPARING: (50, 200),
    CellState.RUNNING: (400, 2_400),
    CellState.COLLECTING: (5, 30),
    CellState.RELEASING: (10, 60),
}
_REFUSALS = (
    ("capacity", "InsufficientInstanceCapacity: no {instance} is left in {zone} now"),
    ("quota", "VcpuLimitExceeded: the limit of {zone} for this family is reached"),
)


@dataclass(slots=True)
class Numbers:
    """The primary keys of the next rows."""

    cell: int
    attempt: int
    lease: int
    transition: int
    check: int


@dataclass(slots=True)
class Feed:
    """The numbered events of a run."""

    sink: Sink
    run_id: str
    told: int = 0

    def tell(self, kind: str, cell: str, **data: object) -> None:
        self.told += 1
        row = {"run_id": self.run_id, "number": self.told, "kind": kind, "cell": cell}
        self.sink.add(RUN_EVENTS, **row, data=data)


@dataclass(slots=True)
class Life:
    """One cell from queued to done, and the rows that it writes."""

    sink: Sink
    numbers: Numbers
    chance: random.Random
    machine: Machine
    plan: CellPlan
    run_id: str
    position: int
    feed: Feed
    at: datetime
    """The current time of the cell."""
    revision: int = 0
    """Revision of the machine's software, which changes now and then."""
    trap: str = ""
    """Harmful text that is appended to the machine's names."""
    state: CellState = CellState.QUEUED
    attempts: int = 0
    ran_from: datetime | None = None
    ran_until: datetime | None = None
    cost: Decimal = Decimal(0)
    pk: int = 0
    attempt_pk: int = 0
    _opened: datetime | None = None
    _leases: list[Lease] = field(default_factory=list)
    _decided: int = 0
    _asked: int = 0
    log: int = 0
    """Number of log lines of an attempt that runs jobs."""
    hostile: bool = False
    _has_run: bool = False

    def __post_init__(self) -> None:
        self.pk = self.numbers.cell
        self.numbers.cell += 1

    @property
    def id(self) -> str:
        return f"{self.run_id}-{self.position}"

    @property
    def attempt_id(self) -> str:
        return f"{self.id}-{self.attempts}"

    def begin(self) -> None:
        """Open an attempt."""
        self.attempt_pk = self.numbers.attempt
        self.numbers.attempt += 1
        self.attempts += 1
        self._leases, self._decided, self._asked = [], 0, 0
        self._has_run = False
        self.at += timedelta(seconds=self.chance.uniform(1, 40))
        self._opened = self.at
        self.step(CellState.PLACING)

    def step(self, state: CellState, reason: str = "") -> None:
        """Change to a state, and write the transition."""
        self.sink.add(
            TransitionRow,
            pk=self.numbers.transition,
            cell=self.pk,
            at=self.at,
            attempt=self.attempts,
            from_state=self.state.value,
            to_state=state.value,
            reason=reason,
        )
        self.numbers.transition += 1
        self.state = state
        if state is not CellState.DONE:
            self.feed.tell("cell", self.plan.id, state=state.value)

    def stay(self, state: CellState, part: float = 1.0) -> None:
        """Advance the time by the duration of a state."""
        low, high = _TAKES[state]
        seconds = self.chance.uniform(low, high) * part
        if state is CellState.RUNNING:
            seconds /= self.machine.speed**0.5
        self.at += timedelta(seconds=seconds)

    def refuse(self, zone: str, kind: int = 0) -> None:
        """Write a refused placement in a zone."""
        word, said = _REFUSALS[kind]
        answer = f"{word}: {said.format(instance=self.machine.instance, zone=zone)}"
        self.at += timedelta(seconds=self.chance.uniform(2, 9))
        lease = replace(
            self._lease(zone),
            state=LeaseState.GONE,
            launched_at=self.at,
            gone_at=self.at + timedelta(seconds=2),
            cost_usd=Decimal(0),
            refusal=answer + self.trap,
        )
        self._keep(lease)
        self._decide(zone, PlacementResult.REFUSED, word, answer)

    def rent(self, zone: str) -> None:
        """Write a placement in a zone, with its lease."""
        self.stay(CellState.PLACING)
        machine_id = f"{zone.rpartition('/')[2]}/{self.attempt_id[-14:]}"
        lease = replace(
            self._lease(zone),
            state=LeaseState.ACTIVE,
            launched_at=self.at,
            machine_id=machine_id,
            facts=facts_of(self.machine, zone, machine_id, self.trap),
        )
        self._leases.append(lease)
        self._decide(
            zone, PlacementResult.CHOSEN, "", f"the first of {len(self.machine.zones)} places"
        )

    def run(self, until: CellState = CellState.RELEASING, part: float = 1.0) -> None:
        """Go through the states up to `until`."""
        for state in _WHOLE[1 : _WHOLE.index(until) + 1]:
            self.step(state)
            if state is CellState.RUNNING:
                self.ran_from = self.at
                self._tell_environment()
            if state is not until:
                self.stay(state, part if state is CellState.RUNNING else 1.0)
            if state is CellState.RUNNING:
                self.ran_until = self.at

    def give_back(self, outcome: Cause, cause: Cause | None) -> None:
        """End the attempt: release the machine and write its cost."""
        if self.state is not CellState.RELEASING:
            self.step(CellState.RELEASING)
        self.stay(CellState.RELEASING)
        for lease in self._leases:
            gone = replace(lease, state=LeaseState.GONE, gone_at=self.at)
            cost = machine_cost(gone, self.at)
            self.cost += cost
            self._keep(replace(gone, cost_usd=cost))
        self._leases = []
        self.write_attempt(outcome=outcome.outcome, closed_at=self.at, cause=cause)

    def again(self, cause: Cause) -> None:
        """End the attempt and queue the cell for another one."""
        self.give_back(cause, cause)
        self.step(CellState.QUEUED, cause.reason)

    def conclude(self, outcome: Cause) -> None:
        """End the cell, and write its row."""
        self.step(CellState.DONE, outcome.reason)
        said = {"state": CellState.DONE.value, "outcome": outcome.outcome.value}
        self.feed.tell("cell", self.plan.id, **said)
        self.write_cell(outcome)

    def write_cell(self, outcome: Cause | None) -> None:
        self.sink.add(
            CellRow,
            pk=self.pk,
            id=self.id,
            run_id=self.run_id,
            name=self.plan.id,
            position=self.position,
            state=self.state,
            entered_at=self.at,
            outcome=outcome.outcome if outcome else None,
            reason=outcome.reason if outcome else "",
            detail=outcome.detail if outcome else "",
        )
        self.sink.add(CellPlanRow, cell=self.pk, plan=self.plan)

    def write_attempt(
        self, *, outcome: Outcome | None, closed_at: datetime | None, cause: Cause | None
    ) -> None:
        has_ended = outcome is not None and cause is None
        self.sink.add(
            AttemptRow,
            pk=self.attempt_pk,
            id=self.attempt_id,
            cell=self.pk,
            number=self.attempts,
            opened_at=self._opened,
            cause_outcome=cause.outcome if cause else None,
            cause_reason=cause.reason if cause else "",
            cause_detail=cause.detail if cause else "",
            outcome=outcome,
            closed_at=closed_at,
            last_event_at=self.ran_until,
            end_outcome="completed" if has_ended else None,
            log_bytes=self._write_log(),
        )

    def _write_log(self) -> int:
        if not self.log or not self._has_run or self.ran_from is None:
            return 0
        told = {"since": self.ran_from, "seed": self.attempt_pk, "hostile": self.hostile}
        return write_log(self.sink, self.attempt_pk, self.log, **told)

    def _tell_environment(self) -> None:
        self._has_run = True
        told = environment(self.machine, self.revision, self.plan.environment, self.trap)
        self.sink.add(EnvironmentReportRow, attempt=self.attempt_pk, document=told)

    def _lease(self, zone: str) -> Lease:
        self._asked += 1
        price = Decimal(self.machine.usd_per_hour)
        place = Place(
            name=zone,
            price_usd_per_hour=price,
            disk_usd_per_hour=Decimal("0.0110"),
            minimum_s=60,
            priced="price list of this week",
            region=zone.split("/")[0] if "/" in zone else zone.rsplit("-", 1)[0],
            zone=zone.rpartition("/")[2],
            market=self.machine.market,
            instance_type=self.machine.instance,
        )
        return Lease(
            id=f"{self.attempt_id}-{self._asked}",
            attempt_id=self.attempt_id,
            provider=self.machine.provider,
            place=zone,
            state=LeaseState.RESERVED,
            reserved_usd=price * Decimal("1.5"),
            price_usd_per_hour=price,
            reserved_at=self.at,
            offer=place,
        )

    def _keep(self, lease: Lease) -> None:
        pk, self.numbers.lease = self.numbers.lease, self.numbers.lease + 1
        names = [name for name in Lease.__dataclass_fields__ if name != "attempt_id"]
        values = {name: getattr(lease, name) for name in names}
        values |= {"facts": dict(lease.facts) or None}
        keys = {"pk": pk, "attempt": self.attempt_pk, "run_id": self.run_id, "exclusive": False}
        self.sink.add(LeaseRow, **values, **keys)
        if lease.machine_id:
            told = attestation(self.machine, self.revision, lease.facts, self.trap)
            self.sink.add(AttestationRow, lease=pk, document=told)

    def _decide(self, place: str, result: PlacementResult, reason: str, detail: str) -> None:
        self._decided += 1
        self.sink.add(
            PlacementDecisionRow,
            attempt=self.attempt_pk,
            number=self._decided,
            at=self.at,
            place=place,
            result=result,
            reason=reason,
            detail=detail,
        )


def zones_of(machine: Machine, chance: random.Random) -> Sequence[str]:
    """Return the machine's zones in a random order."""
    return chance.sample(machine.zones, len(machine.zones))
