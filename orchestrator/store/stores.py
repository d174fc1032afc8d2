"""Every store of one database."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.store.aliases import AliasStore
from orchestrator.store.annotations import StatementStore
from orchestrator.store.benchmark_series import SeriesStore
from orchestrator.store.benchmarks import BenchmarkStore
from orchestrator.store.cells import CellStore
from orchestrator.store.controllers import ControllerStore
from orchestrator.store.cost_aggregates import BillStore
from orchestrator.store.differences import DifferenceStore
from orchestrator.store.evidence import EvidenceStore
from orchestrator.store.failure_groups import KindStore
from orchestrator.store.failures import FailureStore
from orchestrator.store.gates import GateStore
from orchestrator.store.grids import GridStore
from orchestrator.store.ingests import IngestStore
from orchestrator.store.known_issues import KnownIssueStore
from orchestrator.store.leases import LeaseStore
from orchestrator.store.logs import LogStore
from orchestrator.store.machine_list import RentedStore, SightingStore
from orchestrator.store.operational_metrics import FigureStore
from orchestrator.store.outbox import OutboxStore
from orchestrator.store.payloads import PayloadStore
from orchestrator.store.prices import PriceStore
from orchestrator.store.quarantines import QuarantineStore
from orchestrator.store.release_board import ReleaseStore
from orchestrator.store.results import ResultStore
from orchestrator.store.retests import TrialStore
from orchestrator.store.reuse_inputs import ProofStore
from orchestrator.store.run_events import FeedStore
from orchestrator.store.runs import RunStore
from orchestrator.store.schedules import ScheduleStore
from orchestrator.store.sessions import Sessions
from orchestrator.store.static_hosts import StaticHostStore
from orchestrator.store.test_histories import TestStore
from orchestrator.store.tokens import BrowserSessionStore, TokenStore


@dataclass(frozen=True, slots=True)
class Stores:
    """Every store of one database.

    Each method of a store is one transaction. Every method is idempotent, or says why it is not.
    None makes a network call of another kind.
    """

    runs: RunStore
    cells: CellStore
    leases: LeaseStore
    bills: BillStore
    rented: RentedStore
    evidence: EvidenceStore
    logs: LogStore
    results: ResultStore
    feed: FeedStore
    payloads: PayloadStore
    tokens: TokenStore
    browser_sessions: BrowserSessionStore
    controllers: ControllerStore
    machines: StaticHostStore
    sightings: SightingStore
    prices: PriceStore
    ingests: IngestStore
    statements: StatementStore
    failures: FailureStore
    tests: TestStore
    aliases: AliasStore
    known_issues: KnownIssueStore
    gates: GateStore
    schedules: ScheduleStore
    outbox: OutboxStore
    figures: FigureStore
    trials: TrialStore
    proofs: ProofStore
    quarantines: QuarantineStore
    series: SeriesStore
    kinds: KindStore
    benchmarks: BenchmarkStore
    differences: DifferenceStore
    releases: ReleaseStore
    grids: GridStore


def stores_of(sessions: Sessions) -> Stores:
    """Make every store of a database."""
    return Stores(
        runs=RunStore(sessions),
        cells=CellStore(sessions),
        leases=LeaseStore(sessions),
        bills=BillStore(sessions),
        rented=RentedStore(sessions),
        evidence=EvidenceStore(sessions),
        logs=LogStore(sessions),
        results=ResultStore(sessions),
        feed=FeedStore(sessions),
        payloads=PayloadStore(sessions),
        tokens=TokenStore(sessions),
        browser_sessions=BrowserSessionStore(sessions),
        controllers=ControllerStore(sessions),
        machines=StaticHostStore(sessions),
        sightings=SightingStore(sessions),
        prices=PriceStore(sessions),
        ingests=IngestStore(sessions),
        statements=StatementStore(sessions),
        failures=FailureStore(sessions),
        tests=TestStore(sessions),
        aliases=AliasStore(sessions),
        known_issues=KnownIssueStore(sessions),
        gates=GateStore(sessions),
        schedules=ScheduleStore(sessions),
        outbox=OutboxStore(sessions),
        figures=FigureStore(sessions),
        trials=TrialStore(sessions),
        proofs=ProofStore(sessions),
        quarantines=QuarantineStore(sessions),
        series=SeriesStore(sessions),
        kinds=KindStore(sessions),
        benchmarks=BenchmarkStore(sessions),
        differences=DifferenceStore(sessions),
        releases=ReleaseStore(sessions),
        grids=GridStore(sessions),
    )
