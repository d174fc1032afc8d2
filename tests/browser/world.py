"""A small world for tests of the dashboard: some nights of a product, and what people did.

`make_world(home)` fills `home/app.db` (SQLite, migrated) before a controller is started there with
`seatrial serve --no-cells`: with cells, the controller would take the live run into its own hands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from benchmarks.dashboard.fill import Filled, fill
from benchmarks.dashboard.people import Left
from benchmarks.dashboard.plans import PRODUCT
from benchmarks.dashboard.sizes import SIZES
from orchestrator.adapters.files.home_folder import prepare_home
from orchestrator.bootstrap.controller_wiring import build
from orchestrator.config import Settings
from orchestrator.domain.failure_signature import failure_groups
from orchestrator.domain.outcome import Outcome
from orchestrator.store.stores import Stores
from tests.browser.hostile_values import Odd, add_oddities
from tests.browser.live import Live, begin_live, launch


@dataclass(frozen=True)
class World:
    """What there is, by the names that tests need."""

    home: Path
    now: datetime
    """When it was made; the newest night is of some hours before."""
    product: str
    runs: tuple[str, ...]
    """Finished nightlies, the oldest first."""
    green: str
    """One of them that passed."""
    red: str
    """One whose tests failed."""
    lacking: str
    """The newest: a machine was not available."""
    benchmarks: tuple[tuple[str, str], ...]
    """(job, metric)."""
    tests: Sequence[tuple[int, str]]
    """(number, node id)."""
    flaky: Sequence[tuple[int, str]]
    """Those that are not sure of themselves; the first three are in quarantine."""
    signature: str
    """Of the failure that there is most of."""
    left: Left
    live: Live
    queued: str
    """A run that nobody has begun."""
    odd: Odd
    """Runs that are not as others are."""


def make_world(home: Path, *, hostile: bool = False) -> World:
    """Fill an empty home; deterministic but for the day, the ids and the keys.

    Args:
        home: The folder that `SEATRIAL_HOME` will name; made if it is not there.
        hostile: Names, messages, reasons and words mean harm.
    """
    now = datetime.now(UTC).replace(microsecond=0)
    prepare_home(home)
    parts = build(Settings(home=home), runs_cells=False)
    try:
        filled = fill(parts, SIZES["small"], now=now, seed=7, hostile=hostile)
        database, url = parts.database, f"sqlite:///{home / 'app.db'}"
        odd = add_oddities(parts, filled, now, hostile=hostile)
        live = begin_live(database, url, filled.payload, now, hostile=hostile)
        queued = launch(database, filled.payload, now - timedelta(minutes=1))
        return _named(database.stores, home, now, filled, live, queued, odd)
    finally:
        parts.database.close()


def _named(
    stores: Stores,
    home: Path,
    now: datetime,
    filled: Filled,
    live: Live,
    queued: str,
    odd: Odd,
) -> World:
    told = [stores.runs.get(run) for run in filled.runs]
    ends = {run.id: run.outcome for run in told if run is not None}
    newest = list(reversed(filled.runs))
    failures = stores.failures.of_product(PRODUCT, runs=30).failures
    page = stores.tests.page(product=PRODUCT, job=None, contains="", limit=200, after=None)
    runs, _ = stores.runs.page(limit=50, before=None)
    measured = next(run for run in runs if run.matrix_name == "benchmarks")
    metrics = stores.results.metrics(stores.cells.of_run(measured.id)[0].id)
    return World(
        home=home,
        now=now,
        product=PRODUCT,
        runs=filled.runs,
        green=next(run for run in newest if ends[run] is Outcome.PASSED),
        red=next(run for run in newest[1:] if ends[run] is Outcome.FAILED),
        lacking=newest[0],
        benchmarks=tuple((metric.job, metric.name) for metric in metrics),
        tests=[(test.id, test.nodeid) for test in page],
        flaky=filled.flaky,
        signature=failure_groups(failures)[0].signature.id,
        left=filled.left,
        live=live,
        queued=queued,
        odd=odd,
    )
