"""Fill a database with the trials of a large project, and with its people's actions.

The same seed, size and day make the same rows. Run it as
`python -m benchmarks.dashboard.fill --size large --url postgresql://...`.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pydantic import SecretStr

from benchmarks.dashboard.bulk_insert import Sink
from benchmarks.dashboard.nights import Writer
from benchmarks.dashboard.people import Left, People
from benchmarks.dashboard.plans import MANIFEST, PAYLOAD
from benchmarks.dashboard.series import Series
from benchmarks.dashboard.sizes import SIZES, Size
from benchmarks.dashboard.suite import Suite
from orchestrator.application.context import Context
from orchestrator.bootstrap.controller_wiring import Parts, build
from orchestrator.config import Settings
from orchestrator.domain.manifest import StoredPayload
from orchestrator.store.database import Database
from orchestrator.store.tables import TextRow
from tests.integration.api_context import archive

_ROLLED_UP_AT_ONCE = 1_000


@dataclass(frozen=True, slots=True)
class Filled:
    """Ids and counts of the rows that were written."""

    runs: tuple[str, ...]
    """Ids of the nightly runs, the oldest first."""
    flaky: Sequence[tuple[int, str]]
    """Numbers and node ids of flaky tests."""
    payload: str
    """Digest of the product's payload."""
    left: Left
    results: int
    metrics: int
    took_s: float


def fill(
    parts: Parts,
    size: Size,
    *,
    now: datetime,
    seed: int = 1,
    hostile: bool = False,
    told: Callable[[int, int], None] = lambda _done, _all: None,
) -> Filled:
    """Fill an empty database.

    Args:
        parts: The parts of a controller with an open database.
        size: Amount of data.
        now: The present time; the newest run is of the night before.
        seed: Seed of all random values.
        hostile: Whether names and texts contain markup and control characters.
        told: Called with the number of written runs, and of all runs.
    """
    begun = time.perf_counter()
    payload = _keep_payload(parts.context)
    writer = _writer(parts.database, size, random.Random(seed), now, payload, hostile=hostile)
    writer.sink.begin()
    writer.write(told)
    while parts.database.stores.benchmarks.roll_up(limit=_ROLLED_UP_AT_ONCE):
        pass  # what was measured, as the product does it when a cell is done
    writer.sink.end()
    suite = writer.suite
    flaky = [(suite.ids[index], suite.named[index][1]) for index in sorted(suite.flaky)]
    names = [nodeid for _, nodeid in flaky]
    left = People(parts.context, payload, now, names, hostile=hostile).act(verdicts=size.judged)
    return Filled(
        runs=tuple(writer.runs),
        flaky=flaky,
        payload=payload,
        left=left,
        results=writer.sink.results,
        metrics=writer.sink.metrics,
        took_s=time.perf_counter() - begun,
    )


def _writer(
    database: Database,
    size: Size,
    chance: random.Random,
    now: datetime,
    payload: str,
    *,
    hostile: bool,
) -> Writer:
    sink = Sink(database)
    suite = Suite(size, chance, hostile=hostile)
    suite.store(database)
    for digest, body in suite.texts.items():
        sink.add(TextRow, digest=digest, body=body)
    series = Series(size, chance.randrange(2**31), hostile=hostile)
    return Writer(sink, size, suite, series, chance, now, payload, hostile=hostile)


def _keep_payload(context: Context) -> str:
    """Store a real archive, so that runs can be launched again; return its digest."""
    whole = archive(PAYLOAD, **{"demos/train.py": "print('well')\n"})
    digest, size = context.blobs.put([whole])
    context.stores.payloads.put(StoredPayload(digest, size, MANIFEST), at=context.clock.now())
    return digest


def main() -> int:
    """Fill the named database; return 2 if it is not empty."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=sorted(SIZES), default="large")
    parser.add_argument("--url", required=True, help="postgresql://... or sqlite:////file")
    parser.add_argument("--home", type=Path, help="gets the key that verdicts are signed with")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--hostile", action="store_true", help="names and texts mean harm")
    parser.add_argument("--now", type=datetime.fromisoformat, default=datetime.now(UTC))
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home = args.home or Path(folder)
        home.mkdir(parents=True, exist_ok=True)
        settings = Settings(home=home, database_url=SecretStr(args.url))
        parts = build(settings, runs_cells=False)
        try:
            return _fill_empty(parts, args)
        finally:
            parts.database.close()


def _fill_empty(parts: Parts, args: argparse.Namespace) -> int:
    if parts.database.stores.runs.find("latest"):
        print(f"{args.url} is not empty", file=sys.stderr)
        return 2
    now = args.now if args.now.tzinfo else args.now.replace(tzinfo=UTC)
    size = SIZES[args.size]
    filled = fill(parts, size, now=now, seed=args.seed, hostile=args.hostile, told=_tell)
    rate = (filled.results + filled.metrics) / filled.took_s
    print(
        f"{args.size}: {filled.results:,} results and {filled.metrics:,} metrics in"
        f" {filled.took_s:.0f} s ({rate:,.0f} rows/s)"
    )
    return 0


def _tell(done: int, whole: int) -> None:
    if sys.stderr.isatty():
        print(f"\r{done} of {whole} runs", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
