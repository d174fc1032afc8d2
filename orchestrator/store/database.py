"""Opening a database: the one way in."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.application.ports.stores import Stores
from orchestrator.store.aliases import DbAliases
from orchestrator.store.annotations import DbStatements
from orchestrator.store.benchmark_series import DbSeries
from orchestrator.store.benchmarks import DbBenchmarks
from orchestrator.store.blobs import DbBlobs
from orchestrator.store.browser_sessions import DbBrowserSessions
from orchestrator.store.cells import DbCells
from orchestrator.store.controllers import DbControllers
from orchestrator.store.cost_aggregates import DbBills
from orchestrator.store.differences import DbDifferences
from orchestrator.store.evidence import DbEvidence
from orchestrator.store.failure_groups import DbKinds
from orchestrator.store.failures import DbFailures
from orchestrator.store.gates import DbGates
from orchestrator.store.grids import DbGrids
from orchestrator.store.ingests import DbIngests
from orchestrator.store.known_issues import DbKnownIssues
from orchestrator.store.leases import DbLeases
from orchestrator.store.logs import DbLogs
from orchestrator.store.machine_list import DbRented
from orchestrator.store.operational_metrics import DbFigures
from orchestrator.store.orphans import DbSightings
from orchestrator.store.outbox import DbOutboxs
from orchestrator.store.payloads import DbPayloads
from orchestrator.store.prices import DbPrices
from orchestrator.store.quarantines import DbQuarantines
from orchestrator.store.release_board import DbReleases
from orchestrator.store.results import DbResults
from orchestrator.store.retests import DbTrials
from orchestrator.store.reuse_inputs import DbProofs
from orchestrator.store.run_events import DbFeed
from orchestrator.store.runs import DbRuns
from orchestrator.store.schedules import DbSchedules
from orchestrator.store.schema_revisions import Revisions, migrate, require_current, revisions
from orchestrator.store.sessions import Access, Sessions, connect
from orchestrator.store.static_hosts import DbMachines
from orchestrator.store.test_histories import DbTests
from orchestrator.store.tokens import DbTokens

_SIGNED_AT_ONCE = 1_000


@dataclass(frozen=True, slots=True)
class Database:
    """An open database of this version's tables."""

    sessions: Sessions
    stores: Stores
    blobs: DbBlobs

    def check(self) -> Revisions:
        """Which revision its tables are of."""
        return revisions(self.sessions.engine)

    def ready(self) -> str:
        """The revision, once something could be written. Raises StoreUnusableError."""
        self.sessions.probe()
        return self.check().current or "none"

    def close(self) -> None:
        """Let every connection go."""
        self.sessions.engine.dispose()


def open_database(url: str, *, migrate: bool = False, read_only: bool = False) -> Database:
    """Open the database at `url` (``sqlite:////file`` or ``postgresql://...``).

    Args:
        url: Where it is.
        migrate: Bring its tables to the newest revision first, making the file if need be. On
            SQLite only for the one who holds the home.
        read_only: Never write, not even what opening alone would.

    Raises:
        DatabaseOutdatedError: The tables are older than this version, or missing.
        DatabaseNewerError: The tables are newer than this version.
        StoreError: The database cannot be reached.
    """
    if migrate and read_only:
        raise ValueError("a database that is opened to read cannot be migrated")
    if migrate:
        _migrate(url)
    engine = connect(url, Access.READ if read_only else Access.WRITE)
    try:
        require_current(engine)
    except BaseException:
        engine.dispose()
        raise
    sessions = Sessions(engine)
    database = Database(sessions, _stores(sessions), DbBlobs(sessions))
    if migrate:
        while database.stores.failures.recluster(limit=_SIGNED_AT_ONCE):
            pass  # what another version of the algorithm has signed
        while database.stores.benchmarks.roll_up(limit=_SIGNED_AT_ONCE):
            pass  # what was measured before there were points
    return database


def revisions_of(url: str) -> Revisions:
    """Compare any database with this version's migrations, writing nothing."""
    engine = connect(url, Access.READ)
    try:
        return revisions(engine)
    finally:
        engine.dispose()


def _stores(sessions: Sessions) -> Stores:
    return Stores(
        runs=DbRuns(sessions),
        cells=DbCells(sessions),
        leases=DbLeases(sessions),
        bills=DbBills(sessions),
        rented=DbRented(sessions),
        evidence=DbEvidence(sessions),
        logs=DbLogs(sessions),
        results=DbResults(sessions),
        feed=DbFeed(sessions),
        payloads=DbPayloads(sessions),
        tokens=DbTokens(sessions),
        browser_sessions=DbBrowserSessions(sessions),
        controllers=DbControllers(sessions),
        machines=DbMachines(sessions),
        sightings=DbSightings(sessions),
        prices=DbPrices(sessions),
        ingests=DbIngests(sessions),
        statements=DbStatements(sessions),
        failures=DbFailures(sessions),
        tests=DbTests(sessions),
        aliases=DbAliases(sessions),
        known_issues=DbKnownIssues(sessions),
        gates=DbGates(sessions),
        schedules=DbSchedules(sessions),
        outbox=DbOutboxs(sessions),
        figures=DbFigures(sessions),
        trials=DbTrials(sessions),
        proofs=DbProofs(sessions),
        quarantines=DbQuarantines(sessions),
        series=DbSeries(sessions),
        kinds=DbKinds(sessions),
        benchmarks=DbBenchmarks(sessions),
        differences=DbDifferences(sessions),
        releases=DbReleases(sessions),
        grids=DbGrids(sessions),
    )


_migrate = migrate
