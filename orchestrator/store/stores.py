"""Every store of one database."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_type_hints

from orchestrator.store.aliases import AliasStore
from orchestrator.store.attempt_evidence import EvidenceStore, LogStore
from orchestrator.store.audit import AuditStore
from orchestrator.store.backup import BackupStore
from orchestrator.store.benchmarks import BenchmarkSeriesStore, BenchmarkStore
from orchestrator.store.blobs import PayloadStore
from orchestrator.store.cells import CellStore
from orchestrator.store.changes import ChangeStore
from orchestrator.store.controllers import ControllerStore
from orchestrator.store.costs import CostStore, PriceStore
from orchestrator.store.durations import DurationStore
from orchestrator.store.failure_groups import FailureGroupStore
from orchestrator.store.failures import FailureStore
from orchestrator.store.gates import GateStore
from orchestrator.store.grid_of_tests import GridStore
from orchestrator.store.histories_of_tests import TestStore
from orchestrator.store.ingests import IngestStore
from orchestrator.store.leases import LeaseStore
from orchestrator.store.machines import MachineStore, OrphanStore, StaticHostStore
from orchestrator.store.operational_metrics import OperationalMetricStore
from orchestrator.store.outbox import OutboxStore
from orchestrator.store.product_records import KnownIssueStore, QuarantineStore
from orchestrator.store.release_board import ReleaseStore
from orchestrator.store.results import ResultStore
from orchestrator.store.retention import RetentionStore
from orchestrator.store.retests import RetestStore
from orchestrator.store.reuse import ReusableResultStore
from orchestrator.store.run_comparison import DifferenceStore
from orchestrator.store.runs import AnnotationStore, RunEventStore, RunStore
from orchestrator.store.schedules import ScheduleStore
from orchestrator.store.sessions import Sessions
from orchestrator.store.tokens import BrowserSessionStore, TokenStore


@dataclass(frozen=True, slots=True)
class Stores:
    """Every store of one database.

    Each method of a store is one transaction, idempotent unless its docstring says otherwise, and
    makes no other network call.
    """

    runs: RunStore
    cells: CellStore
    leases: LeaseStore
    costs: CostStore
    machines: MachineStore
    evidence: EvidenceStore
    logs: LogStore
    results: ResultStore
    run_events: RunEventStore
    payloads: PayloadStore
    tokens: TokenStore
    browser_sessions: BrowserSessionStore
    controllers: ControllerStore
    static_hosts: StaticHostStore
    orphans: OrphanStore
    prices: PriceStore
    ingests: IngestStore
    annotations: AnnotationStore
    failures: FailureStore
    tests: TestStore
    aliases: AliasStore
    known_issues: KnownIssueStore
    gates: GateStore
    schedules: ScheduleStore
    outbox: OutboxStore
    operational_metrics: OperationalMetricStore
    retests: RetestStore
    retention: RetentionStore
    reusable_results: ReusableResultStore
    quarantines: QuarantineStore
    benchmark_series: BenchmarkSeriesStore
    failure_groups: FailureGroupStore
    benchmarks: BenchmarkStore
    differences: DifferenceStore
    durations: DurationStore
    releases: ReleaseStore
    grids: GridStore
    audit: AuditStore
    backup: BackupStore
    changes: ChangeStore


def stores_of(sessions: Sessions) -> Stores:
    """Return every store of a database."""
    kinds = get_type_hints(Stores)
    return Stores(**{name: kind(sessions) for name, kind in kinds.items()})
