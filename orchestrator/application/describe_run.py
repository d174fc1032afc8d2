"""Reads a run into one record, for `show`, watchers and reports; lists runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal

from orchestrator.application.attribute_failures import diagnosed_cells
from orchestrator.application.explain_failures import explain_run
from orchestrator.application.job_outcomes import StoredCellResults, jobs_of_cell_record
from orchestrator.application.reused_results import (
    ReusedFrom,
    ReuseSources,
    results_of_cell,
    reused_from,
)
from orchestrator.domain.attestation import Attestation
from orchestrator.domain.cell import (
    Attempt,
    Cell,
    CellState,
    Lease,
    LeaseState,
    PlacementDecision,
    Run,
    RunSpec,
    SubjectBuild,
    Transition,
)
from orchestrator.domain.charges import NOT_STATED, STATED, Cost, cost_of, sum_of
from orchestrator.domain.copied_fields import filled
from orchestrator.domain.environment_fingerprint import fingerprint
from orchestrator.domain.event_facts import TestFact
from orchestrator.domain.grouping import grouped
from orchestrator.domain.ingested import StatedMachine
from orchestrator.domain.machine import Place, SshEndpoint
from orchestrator.domain.matrix import CellPlan
from orchestrator.domain.money import (
    Bill,
    billed_seconds,
    cost_by_phase,
    lease_bill,
    machine_cost,
    machine_seconds,
    usd_for,
)
from orchestrator.domain.outcome import Counts, Outcome, TestOutcome
from orchestrator.domain.retention import PrunedPart, RunPart
from orchestrator.domain.run_record import (
    CellRecord,
    Evidence,
    JobRecord,
    LeaseRecord,
    RunRecord,
)
from orchestrator.domain.versions import canonical_name
from orchestrator.store.cell_results import CellResults, Depth
from orchestrator.store.leases import RunSpending
from orchestrator.store.runs import RunsAsked
from orchestrator.store.stores import Stores

_DAY = timedelta(days=1)
_NOT_KEPT = frozenset({Outcome.PASSED, Outcome.CANCELLED, Outcome.NOT_AVAILABLE})


class RunMissingError(LookupError):
    """No run of this id is stored."""

    @classmethod
    def for_run(cls, run_id: str) -> RunMissingError:
        """Return the error for an unknown run."""
        return cls(f"there is no run {run_id!r}; `seatrial runs` lists them")


@dataclass(frozen=True, slots=True)
class _RunRows:
    """Stored rows of a run, read at once for all its cells."""

    known: StoredCellResults
    leases: Mapping[str, Sequence[Lease]]
    decisions: Mapping[str, Sequence[PlacementDecision]]
    attestations: Mapping[str, Attestation]
    sources: ReuseSources

    @classmethod
    def read(
        cls, stores: Stores, run_id: str, cell_ids: Sequence[str], spec: RunSpec, depth: Depth
    ) -> _RunRows:
        """Read the rows in a fixed number of statements."""
        ledger = stores.leases
        # Read before their attempts: other attempts may begin in between.
        leases, attestations = ledger.attested(run_id)
        known = StoredCellResults.read(stores, cell_ids, spec, depth)
        return cls(
            known,
            leases,
            ledger.decisions(run_id),
            attestations if depth >= Depth.WHOLE else {},
            ReuseSources.read(stores, known.decided.values()),
        )


def describe_run(stores: Stores, run_id: str, *, at: datetime) -> RunRecord:
    """Return the record of a run without its single tests. Raises RunMissingError."""
    return record_of_run(stores, *_find(stores, run_id), at=at)


def record_of_run(
    stores: Stores,
    run: Run,
    cells: Sequence[Cell],
    spec: RunSpec,
    *,
    at: datetime,
    depth: Depth = Depth.WHOLE,
) -> RunRecord:
    """Return the record of a run whose row was read already.

    Args:
        stores: What is stored.
        run: The run.
        cells: All of its cells.
        spec: What it was launched with, read after the cells: an ingestion adds to both.
        at: Now.
        depth: WHOLE to read data of reports too: metrics, artifacts, attestations, annotations.
    """
    book = _RunRows.read(stores, run.id, [cell.id for cell in cells], spec, depth)
    told = tuple(_cell(cell, spec, book, at) for cell in cells)
    if spec.hold_minutes and run.cancel_requested_at is None:
        hold = timedelta(minutes=spec.hold_minutes)
        told = tuple(replace(cell, kept_until=_kept_until(cell, hold)) for cell in told)
    annotations = stores.annotations.of_run(run.id) if depth >= Depth.WHOLE else ()
    explained = explain_run(stores, run, spec.manifest.name, told, at=at)
    return RunRecord(
        run,
        told,
        at,
        annotations,
        failure_groups=explained.failure_groups,
        known_issues=explained.known_issues,
        quarantined=explained.quarantined,
        diagnosed=diagnosed_cells(stores, run.id, cells) if spec.retests else (),
        subject=SubjectBuild.from_run(run, spec),
        pruned=_pruned(stores, run, at),
    )


def _pruned(stores: Stores, run: Run, at: datetime) -> tuple[PrunedPart, ...]:
    """Return the pruned parts of the run; no rule prunes within a day of its end."""
    ended_at = run.finished_at
    return stores.retention.of_run(run.id) if ended_at and at - ended_at >= _DAY else ()


def pruned_artifacts(stores: Stores, run_id: str) -> str:
    """Return when a run's artifacts were pruned and by which rule, in one sentence."""
    parts = stores.retention.of_run(run_id)
    return "; ".join(one.of(run_id) for one in parts if one.part is RunPart.ARTIFACTS)


def _kept_until(cell: CellRecord, hold: timedelta) -> datetime | None:
    """Return the time until which the cell's machine is held; None if it is not held."""
    last = cell.leases[-1] if cell.leases else None
    if cell.state is not CellState.RELEASING or last is None or last.state != LeaseState.ACTIVE:
        return None
    attempt = cell.attempts[-1] if cell.attempts else None
    outcomes = {job.outcome for job in cell.jobs}
    if attempt is not None and attempt.cause is not None:
        outcomes = {attempt.cause.outcome}
    if not last.address or outcomes <= _NOT_KEPT:
        return None
    return cell.entered_at + hold


def evidence_of(stores: Stores, run_id: str, *, at: datetime) -> Evidence:
    """Return a run with every test of every cell. Raises RunMissingError."""
    return evidence_of_record(stores, *_find(stores, run_id), at=at)


def _find(stores: Stores, run_id: str) -> tuple[Run, Sequence[Cell], RunSpec]:
    """Return the run with its cells and launch parameters. Raises RunMissingError."""
    cells, launched = stores.cells.of_run(run_id), stores.runs.launched(run_id)
    if launched is None:
        raise RunMissingError.for_run(run_id)
    return launched[0], cells, launched[1]


def evidence_of_record(
    stores: Stores, run: Run, cells: Sequence[Cell], spec: RunSpec, *, at: datetime
) -> Evidence:
    """Return the evidence of a run whose row was read already; see `record_of_run`."""
    record = record_of_run(stores, run, cells, spec, at=at)
    reused = {cell.id: any(job.reused_from for job in cell.jobs) for cell in record.cells}
    tests = {
        cell.name: tuple(
            results_of_cell(stores, cell.id, decided=None if reused[cell.name] else {})
        )
        for cell in cells
    }
    recounted = tuple(_recounted(cell, tests[cell.id]) for cell in record.cells)
    return Evidence(replace(record, cells=recounted), tests)


def _recounted(cell: CellRecord, tests: Sequence[TestFact]) -> CellRecord:
    """Return the record with counts from these tests, where jobs still run."""
    if all(job.outcome is not None for job in cell.jobs):
        return cell
    tallies: dict[str, Counter[TestOutcome]] = {}
    for test in tests:
        tallies.setdefault(test.job, Counter())[test.outcome.counted(final=test.final)] += 1
    counts = {name: Counts.from_tally(tally) for name, tally in tallies.items()}
    jobs = (
        replace(job, counts=counts.get(job.id, Counts()) + job.unnamed)
        if job.outcome is None
        else job
        for job in cell.jobs
    )
    return replace(cell, jobs=tuple(jobs))


def find_run(stores: Stores, run_id: str) -> Run:
    """Return the run. Raises RunMissingError."""
    run = stores.runs.get(run_id)
    if run is None:
        raise RunMissingError.for_run(run_id)
    return run


def describe_cell(stores: Stores, cell: Cell, spec: RunSpec, *, at: datetime) -> CellRecord:
    """Return the record of one cell, with the jobs' outcomes so far."""
    return _cell(cell, spec, _RunRows.read(stores, cell.run_id, [cell.id], spec, Depth.WHOLE), at)


def _cell(cell: Cell, spec: RunSpec, book: _RunRows, at: datetime) -> CellRecord:
    life = book.known.lives[cell.id]
    results = book.known.results.get(cell.id, CellResults())
    leases = book.leases.get(cell.id, ())
    ingested = life.ingested
    stated = stated_leases(ingested.machine, life.attempts) if ingested is not None else ()
    jobs = jobs_of_cell_record(book.known, cell, spec)
    if ingested is not None:  # the times are those of the artifacts
        jobs = tuple(replace(job, at=ingested.dated_at) for job in jobs)
    maker = _maker(cell, jobs, book)
    return CellRecord(
        id=cell.name,
        platform=life.plan.platform,
        environment=life.plan.environment,
        state=cell.state,
        entered_at=cell.entered_at or at,
        outcome=cell.outcome,
        reason=cell.reason,
        detail=cell.detail or _awaited(cell, leases),
        jobs=jobs,
        attempts=tuple(life.attempts),
        transitions=tuple(life.transitions),
        leases=(*_leases(leases, life.attempts, life.transitions, at), *stated),
        probed=maker.probed,
        notices=tuple(results.notices),
        artifacts=tuple(results.artifacts),
        fingerprint=fingerprint(maker.probed, subject=spec.matrix.subject.name),
        simulated=life.plan.platform.provider == "fake"
        or maker.simulated
        or any(lease.simulated for lease in leases),
        decisions=tuple(book.decisions.get(cell.id, ())),
        attestation=maker.attestation,
        ingested=ingested,
        undeclared_packages=_undeclared_packages(life.plan, maker.probed, spec),
    )


def _undeclared_packages(
    plan: CellPlan, probed: Mapping[str, object], spec: RunSpec
) -> tuple[str, ...]:
    """Return packages of this computer's interpreter that neither payload nor matrix names.

    pip is left out, because interpreters have it to install packages.
    """
    found = probed.get("interpreter_packages")
    if plan.platform.provider != "local" or not isinstance(found, list):
        return ()
    subject = canonical_name(spec.matrix.subject.name)
    named = spec.manifest.named_packages(plan.environment) | {subject, "pip"}
    return tuple(sorted({str(name) for name in found if canonical_name(str(name)) not in named}))


def _awaited(cell: Cell, leases: Sequence[Lease]) -> str:
    """Return what an unfinished cell waits for, in words with the last error; empty if nothing."""
    if cell.state is CellState.DONE or not leases:
        return ""
    lease = leases[-1]
    awaited = _machine_step(cell.state, lease)
    if not awaited:
        return f"its machine does not answer: {lease.unheard}" if lease.unheard else ""
    return f"waiting for {awaited}" + (f"; last error: {lease.unheard}" if lease.unheard else "")


def _machine_step(state: CellState, lease: Lease) -> str:
    """Return the awaited step of the cell's machine, in words; empty if there is none."""
    if state is CellState.PLACING and lease.state in (LeaseState.LAUNCHING, LeaseState.ACTIVE):
        return f"{lease.provider} to grant a machine in {lease.place}"
    if state is CellState.PREPARING and lease.awaited:
        return f"the machine to finish {lease.awaited}"
    if state is not CellState.BOOTING:
        return ""
    if _address(lease):
        return f"SSH at {_address(lease)}"
    step = "start" if lease.endpoint is None else "answer"
    return f"machine {lease.machine_id} to {step}"


def _address(lease: Lease) -> str:
    """Return the SSH address, for a person; empty without one."""
    endpoint = lease.endpoint
    if not isinstance(endpoint, SshEndpoint):
        return ""
    return f"{endpoint.user}@{endpoint.address}:{endpoint.port}"


def _maker(cell: Cell, jobs: Sequence[JobRecord], book: _RunRows) -> ReusedFrom:
    """Return environment and attestation of the cell.

    They are those of the source cells if all its jobs are reused.
    """
    known = book.known
    lent = reused_from(known.decided.get(cell.id, {}), book.sources, known.lives)
    if jobs and all(job.reused_from for job in jobs):
        return lent
    own = known.lives[cell.id].environment or {}
    leases = book.leases.get(cell.id, ())
    attested = [x for lease in leases if (x := book.attestations.get(lease.id)) is not None]
    return ReusedFrom(own, attested[-1] if attested else None, lent.simulated)


def stated_cost(machine: StatedMachine | None) -> Cost:
    """Return the cost of a stated machine; unknown without its price and duration."""
    if machine is None or machine.usd_per_hour is None or machine.seconds is None:
        return Cost(reasons=frozenset([NOT_STATED]))
    return Cost(usd_for(machine.seconds, machine.usd_per_hour), is_priced=True)


def stated_leases(
    machine: StatedMachine | None, attempts: Sequence[Attempt]
) -> tuple[LeaseRecord, ...]:
    """Return the stated machine of an ingested cell as a lease record; it is not in the ledger.

    Without a duration, the cost is unknown and the record has no price.
    """
    if machine is None or not attempts:
        return ()
    cost, seconds = stated_cost(machine), machine.seconds or Decimal(0)
    bill = Bill(cost.known_usd)
    return (
        LeaseRecord(
            attempt=attempts[0].number,
            provider="",
            place=machine.place,
            state=STATED,
            machine_id=machine.machine_id,
            address="",
            price_usd_per_hour=machine.usd_per_hour if cost.is_priced else None,
            seconds=float(seconds),
            cost_usd=bill.total_usd,
            bill=bill,
            billed_s=int(seconds),
            priced=machine.priced,
            instance_type=machine.instance_type,
            market=machine.market,
            zone=machine.place,
        ),
    )


def _leases(
    leases: Sequence[Lease],
    attempts: Sequence[Attempt],
    transitions: Sequence[Transition],
    at: datetime,
) -> tuple[LeaseRecord, ...]:
    numbers = {attempt.id: attempt.number for attempt in attempts}
    steps = grouped((step.attempt, step) for step in transitions)
    of = [(numbers[lease.attempt_id], lease) for lease in leases]
    return tuple(_lease(number, lease, steps.get(number, []), at) for number, lease in of)


def _lease(attempt: int, lease: Lease, steps: Sequence[Transition], at: datetime) -> LeaseRecord:
    offer, facts = lease.offer or Place(lease.place), lease.facts
    bill = lease_bill(lease, at)
    return filled(
        LeaseRecord,
        lease,
        attempt=attempt,
        address=_address(lease),
        seconds=machine_seconds(lease, at),
        cost_usd=bill.total_usd,
        bill=bill,
        billed_s=billed_seconds(lease, at),
        phase_usd=cost_by_phase(steps, lease, at),
        priced=offer.priced,
        instance_type=facts.get("instance_type") or offer.instance_type,
        market=facts.get("market") or offer.market,
        region=facts.get("region") or offer.region,
        zone=facts.get("zone") or offer.zone,
        image_id=facts.get("image_id", ""),
        image_name=facts.get("image_name", ""),
    )


_ANY = RunsAsked()


@dataclass(frozen=True, slots=True)
class ListedRun:
    """A run in a list, with its counts and costs."""

    run: Run
    counts: Counts
    cost: Cost
    seconds: float | None
    """Duration until now; of an ingested run, the duration of its jobs. None if unknown."""
    cells: Sequence[Cell] = ()
    """Cells in the order of the matrix."""


def list_runs(
    stores: Stores,
    *,
    limit: int,
    before: str | None,
    at: datetime,
    filters: RunsAsked = _ANY,
) -> tuple[Sequence[ListedRun], str | None]:
    """Return the requested runs, newest first, with the cursor of the next page."""
    runs, cursor = stores.runs.page(limit=limit, before=before, filters=filters)
    return listed(stores, runs, at=at), cursor


def listed(stores: Stores, runs: Sequence[Run], *, at: datetime) -> Sequence[ListedRun]:
    """Return the runs with their counts and costs."""
    ids = [run.id for run in runs]
    if not ids:
        return ()
    counts = stores.results.totals(ids)
    cells = stores.cells.of_runs(ids)
    spent = stores.leases.spending(ids)
    ingested = stores.ingests.of_runs(ids)
    foreign = [run for run in ids if ingested.get(run) and len(ingested[run]) == len(cells[run])]
    stated_s = stores.results.job_seconds(foreign) if foreign else {}
    found = []
    for run in runs:
        told, here = ingested.get(run.id, ()), cells.get(run.id, ())
        stated = sum_of(stated_cost(one.machine) for one in told)
        is_ingested = run.id in foreign
        took = ((run.finished_at or at) - run.created_at).total_seconds()
        seconds = stated_s.get(run.id) if is_ingested else max(0.0, took)
        cost = _cost(spent.get(run.id, RunSpending()), at) + stated
        found.append(ListedRun(run, counts.get(run.id, Counts()), cost, seconds, here))
    return found


def _cost(spent: RunSpending, at: datetime) -> Cost:
    growing = (cost_of(lease, machine_cost(lease, at)) for lease in spent.unsettled)
    return sum(growing, spent.settled)
