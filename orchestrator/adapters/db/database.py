"""Opening a database: the one way in."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.adapters.db.aliases import DbAliases
from orchestrator.adapters.db.annotations import DbStatements
from orchestrator.adapters.db.benchmark_series import DbSeries
from orchestrator.adapters.db.benchmarks import DbBenchmarks
from orchestrator.adapters.db.blobs import DbBlobs
from orchestrator.adapters.db.browser_sessions import DbBrowserSessions
from orchestrator.adapters.db.cells import DbCells
from orchestrator.adapters.db.controllers import DbControllers
from orchestrator.adapters.db.cost_aggregates import DbBills
from orchestrator.adapters.db.differences import DbDifferences
from orchestrator.adapters.db.evidence import DbEvidence
from orchestrator.adapters.db.failure_groups import DbKinds
from orchestrator.adapters.db.failures import DbFailures
from orchestrator.adapters.db.gates import DbGates
from orchestrator.adapters.db.grids import DbGrids
from orchestrator.adapters.db.ingests import DbIngests
from orchestrator.adapters.db.known_issues import DbKnownIssues
from orchestrator.adapters.db.leases import DbLeases
from orchestrator.adapters.db.logs import DbLogs
from orchestrator.adapters.db.machine_list import DbRented
from orchestrator.adapters.db.operational_metrics import DbFigures
from orchestrator.adapters.db.orphans import DbSightings
from orchestrator.adapters.db.outbox import DbOutboxs
from orchestrator.adapters.db.payloads import DbPayloads
from orchestrator.adapters.db.prices import DbPrices
from orchestrator.adapters.db.quarantines import DbQuarantines
from orchestrator.adapters.db.release_board import DbReleases
from orchestrator.adapters.db.results import DbResults
from orchestrator.adapters.db.retests import DbTrials
from orchestrator.adapters.db.reuse_inputs import DbProofs
from orchestrator.adapters.db.run_events import DbFeed
from orchestrator.adapters.db.runs import DbRuns
from orchestrator.adapters.db.schedules import DbSchedules
from orchestrator.adapters.db.schema_revisions import Revisions, migrate, require_current, revisions
from orchestrator.adapters.db.sessions import Access, Sessions, connect
from orchestrator.adapters.db.static_hosts import DbMachines
from orchestrator.adapters.db.test_histories import DbTests
from orchestrator.adapters.db.tokens import DbTokens
from orchestrator.application.ports.stores import Stores

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
