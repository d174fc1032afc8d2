"""Number of tests per second that the store takes in, on SQLite and on Postgres.

Each test is one final fact with the bytes of its three reports; a batch is one `append`. The
second figure includes reading and folding those reports. Run it as `python -m benchmarks.ingest`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from orchestrator.domain.event_facts import fold
from orchestrator.domain.evidence import read_events
from orchestrator.store.attempt_evidence import EvidencePosition
from orchestrator.store.database import Database, open_database
from tests.databases import NOW, attempt, create
from tests.postgres import PostgresMissingError, start_postgres

FLOOR_PER_S = 5_000
GOAL_PER_S = 20_000


def batch(round_: int, number: int, tests: int, *, new_names: bool) -> bytes:
    """Return the reports of `tests` tests, one in twenty of them failed."""
    lines, seq = [], number * tests * 3
    for index in range(number * tests, (number + 1) * tests):
        name = f"suites/test_{index % 40}.py::TestThing::test_case[{index}-cuda-float16]"
        nodeid = f"r{round_}/{name}" if new_names else name
        for when in ("setup", "call", "teardown"):
            seq += 1
            data = {"record": "report", "nodeid": nodeid, "when": when, "outcome": "passed"}
            data |= {"duration": 0.0123, "start": 1.5, "stop": 1.5123, "sections": []}
            if when == "call" and index % 20 == 0:
                trace = "".join(f"    line {n} of test {index}\n" for n in range(20))
                data |= {"outcome": "failed", "longrepr": trace + "E   assert 1 == 2"}
            event = {"v": 1, "seq": seq, "ts": 1.0, "kind": "test", "job": "unit", "data": data}
            lines.append(json.dumps(event))
    return "\n".join(lines).encode() + b"\n"


def measure(
    database: Database, args: argparse.Namespace, *, new_names: bool
) -> Iterator[tuple[float, float]]:
    """Yield tests per second of each round: stored only, and with reading and folding."""
    stores = database.stores
    for round_ in range(args.rounds):
        run_id = f"run-{new_names}-{round_}"
        attempt_id = attempt(stores, create(stores, run_id, platforms=1)[0])
        have, storing, reading = EvidencePosition(), 0.0, 0.0
        for number in range(args.batches):
            chunk = batch(round_, number, args.batch, new_names=new_names)
            begun = time.perf_counter()
            events, used = read_events(chunk, after_seq=have.seq)
            facts = fold(events)
            read = time.perf_counter()
            now = stores.evidence.append(attempt_id, have, at=NOW, events=chunk[:used], facts=facts)
            assert now is not None
            have = now
            storing += time.perf_counter() - read
            reading += read - begun
        tests = args.batches * args.batch
        yield tests / storing, tests / (storing + reading)


def told(name: str, database: Database, args: argparse.Namespace) -> tuple[float, float]:
    """Print one database's figures; return the medians for known tests."""
    medians = (0.0, 0.0)
    for new_names in (True, False):
        rounds = list(measure(database, args, new_names=new_names))
        kind = "tests never seen before" if new_names else "tests seen before"
        if not new_names:
            rounds = rounds[1:]  # the first one has yet to see them
        for what, column in (("stored", 0), ("read, folded and stored", 1)):
            rates = [r[column] for r in rounds]
            middle = statistics.median(rates)
            spread = f"{min(rates):,.0f} to {max(rates):,.0f}"
            print(f"{name}: {kind}, {what}: {middle:,.0f} tests/s ({spread}, {len(rates)} rounds)")
        medians = (statistics.median(r[0] for r in rounds), statistics.median(r[1] for r in rounds))
    return medians


def with_sqlite(work: Callable[[Database], tuple[float, float]]) -> tuple[float, float]:
    """Measure with a new SQLite file."""
    with tempfile.TemporaryDirectory() as folder:
        database = open_database(f"sqlite:///{Path(folder) / 'app.db'}", migrate=True)
        try:
            return work(database)
        finally:
            database.close()


def with_postgres(work: Callable[[Database], tuple[float, float]]) -> tuple[float, float]:
    """Measure with a Postgres server of its own, which syncs as in production."""
    server = start_postgres(fast=False)
    try:
        database = open_database(server.create("ingest"), migrate=True)
        try:
            return work(database)
        finally:
            database.close()
    finally:
        server.stop()


def main() -> int:
    """Measure both; return 1 if Postgres is below the floor."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--batches", type=int, default=10)
    parser.add_argument("--batch", type=int, default=2_000)
    args = parser.parse_args()
    sqlite = with_sqlite(lambda database: told("sqlite", database, args))
    try:
        postgres = with_postgres(lambda database: told("postgres", database, args))
    except PostgresMissingError as missing:
        print(f"postgres: not measured: {missing}")
        postgres = None
    figures = f"ingest tests/s: sqlite {sqlite[0]:.0f} (with folding {sqlite[1]:.0f})"
    if postgres is not None:
        figures += f", postgres {postgres[0]:.0f} (with folding {postgres[1]:.0f})"
    print(f"{figures}; goal {GOAL_PER_S}, floor {FLOOR_PER_S} on postgres")
    return 1 if postgres is not None and postgres[0] < FLOOR_PER_S else 0


if __name__ == "__main__":
    sys.exit(main())
