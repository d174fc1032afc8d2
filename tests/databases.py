"""Open databases of both kinds for tests, and a run to put into them.

A test that takes `database` is asked on SQLite and on Postgres.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Barrier

import pytest

from orchestrator.domain.cell import CellState, Lease, LeaseState, Run, RunSpec
from orchestrator.domain.event_facts import Facts, fold
from orchestrator.domain.evidence import read_events
from orchestrator.domain.manifest import Environment, Job, Manifest
from orchestrator.domain.matrix import (
    JobSelection,
    Limits,
    Matrix,
    Metadata,
    Platform,
    Subject,
    expand,
)
from orchestrator.store import sessions
from orchestrator.store.database import Database, migrate, open_database
from orchestrator.store.stores import Stores

NOW = datetime(2026, 3, 1, 12, 0, 0, 250_000, tzinfo=UTC)


def after(seconds: float) -> datetime:
    """A time so long after NOW."""
    return NOW + timedelta(seconds=seconds)


@cache
def _migrated() -> bytes:
    """The file of a migrated database without rows."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "app.db"
        migrate(f"sqlite:///{path}")
        return path.read_bytes()


def make_database(folder: Path) -> str:
    """A migrated file in a folder, unless it is there; its URL."""
    path = folder / "app.db"
    if not path.exists():
        path.write_bytes(_migrated())
    return f"sqlite:///{path}"


@pytest.fixture(scope="session", autouse=True)
def synced_pragmas() -> Iterator[Callable[[sessions.Access], Iterable[str]]]:
    """Nothing is synced, as on the tests' Postgres: no test outlives a loss of power.

    What connections are set up with otherwise.
    """
    real = sessions._pragmas

    def fast(access: sessions.Access) -> Iterator[str]:
        yield from real(access)
        yield "synchronous=OFF"

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sessions, "_pragmas", fast)
        yield real


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated file to copy."""
    folder = tmp_path_factory.mktemp("sqlite")
    make_database(folder)
    return folder / "app.db"


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """A fresh migrated file."""
    return make_database(tmp_path)


@pytest.fixture(
    params=["sqlite", pytest.param("postgres", marks=pytest.mark.needs_postgres)],
)
def database_url(request: pytest.FixtureRequest) -> str:
    """A fresh migrated database of each kind."""
    url = request.getfixturevalue(f"{request.param}_url")
    assert isinstance(url, str)
    return url


ON_SQLITE = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
"""For what is decided above the stores, by statements that other tests ask of both databases."""


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    """The same, open."""
    opened = open_database(database_url)
    yield opened
    opened.close()


@pytest.fixture
def stores(database: Database) -> Stores:
    """Its stores."""
    return database.stores


MANIFEST = Manifest(
    name="proof",
    version="1.10",
    env={"zeta": Environment(pip=("a", "b")), "alpha": Environment(variables={"X": "1"})},
    job=(
        Job(id="unit", kind="suite", pytest=("tests",)),
        Job(id="demo", kind="demo", command=("{python}", "demo.py"), env={"B": "2", "A": "1"}),
    ),
)


def matrix(platforms: int = 2) -> Matrix:
    """A matrix of so many platforms."""
    return Matrix(
        metadata=Metadata(name="nightly"),
        subject=Subject(name="lib", version="1.10"),
        platforms=tuple(Platform(id=f"p{i}", provider="fake") for i in range(platforms)),
        jobs=(JobSelection(select="*"),),
        limits=Limits(max_usd=Decimal("4.10"), max_parallel=3),
        secrets={"TOKEN": {"from": "env"}},
    )


def a_run(run_id: str = "run-1", seconds: float = 0) -> Run:
    """A run that begins so long after NOW."""
    return Run(run_id, "nightly", "lib", "1.10", "d" * 64, after(seconds), rerun_of=None)


def create(
    stores: Stores, run_id: str = "run-1", *, platforms: int = 2, untrusted: bool = False
) -> list[str]:
    """Store a run; returns the ids of its cells."""
    asked = matrix(platforms)
    cells = [(f"{run_id}.{plan.id}", plan) for plan in expand(asked, MANIFEST)]
    manifest = MANIFEST.as_untrusted() if untrusted else MANIFEST
    stores.runs.create(a_run(run_id), RunSpec(asked, manifest), cells, key=None)
    return [cell_id for cell_id, _ in cells]


def attempt(stores: Stores, cell_id: str, number: int = 1) -> str:
    """Open an attempt; returns its id."""
    attempt_id = f"{cell_id}-{number}"
    assert stores.cells.admit(cell_id, attempt_id, max_parallel=1000, at=NOW)
    return attempt_id


def advance(stores: Stores, cell_id: str, state: CellState) -> None:
    """Bring an admitted cell to a state, step by step."""
    way = list(CellState)[2 : list(CellState).index(state) + 1]
    for step in way:
        stores.cells.enter(cell_id, step, at=NOW)


def lease(lease_id: str, attempt_id: str, *, place: str = "local", usd: str = "1") -> Lease:
    """A lease to reserve."""
    return Lease(
        id=lease_id,
        attempt_id=attempt_id,
        provider="fake",
        place=place,
        state=LeaseState.RESERVED,
        reserved_usd=Decimal(usd),
        price_usd_per_hour=Decimal("0.7000"),
        reserved_at=NOW,
    )


@dataclass
class Agent:
    """Writes the events of one attempt, as an agent would, and delivers them."""

    stores: Stores
    attempt_id: str
    seq: int = 0
    sent: bytes = b""

    def line(self, kind: str, job: str | None = None, **data: object) -> bytes:
        """The next event."""
        self.seq += 1
        event = {"v": 1, "seq": self.seq, "ts": 1.0 + self.seq, "kind": kind, "job": job}
        return json.dumps(event | {"data": data}).encode() + b"\n"

    def test(
        self, nodeid: str, outcome: str = "passed", *, job: str = "unit", **more: object
    ) -> bytes:
        """The three reports of one test, whose call had the outcome."""
        reports = []
        for when in ("setup", "call", "teardown"):
            said = {"record": "report", "nodeid": nodeid, "when": when, "duration": 0.25}
            said["outcome"] = outcome if when == "call" else "passed"
            reports.append(self.line("test", job, **said, **(more if when == "call" else {})))
        return b"".join(reports)

    def manifest(self, *nodeids: str, job: str = "unit") -> bytes:
        """What was collected."""
        return self.line("manifest", job, tests=list(nodeids), process=1)

    def send(self, *lines: bytes) -> bool:
        """Deliver the lines as one chunk, once."""
        chunk = b"".join(lines)
        stored = deliver(self.stores, self.attempt_id, chunk, offset=len(self.sent))
        self.sent += chunk
        return stored


def deliver(stores: Stores, attempt_id: str, chunk: bytes, *, offset: int) -> bool:
    """Append a chunk, with the facts that it states."""
    position = stores.evidence.position(attempt_id)
    facts = read(chunk, after_seq=position.seq)
    have = replace(position, events_bytes=offset)
    return stores.evidence.append(attempt_id, have, at=NOW, events=chunk, facts=facts) is not None


def write_log(stores: Stores, attempt_id: str, chunk: bytes, *, offset: int | None = None) -> bool:
    """Append to the attempt's log, where it ends by default."""
    have = stores.evidence.position(attempt_id)
    if offset is not None:
        have = replace(have, log_bytes=offset)
    return stores.evidence.append(attempt_id, have, at=NOW, log=chunk) is not None


def read(chunk: bytes, *, after_seq: int = 0) -> Facts:
    """The facts of whole lines."""
    events, used = read_events(chunk, after_seq=after_seq)
    assert used == len(chunk)
    return fold(events)


def together(work: Iterable[Callable[[], object]]) -> list[object]:
    """Do all of it at once, each in a thread of its own; what each answered, or raised."""
    jobs = list(work)
    barrier = Barrier(len(jobs))

    def do(job: Callable[[], object]) -> object:
        barrier.wait()
        return job()

    with ThreadPoolExecutor(len(jobs)) as pool:
        return [future.result() for future in [pool.submit(do, job) for job in jobs]]


def outcomes(stores: Stores, cell_id: str) -> Mapping[str, str]:
    """How each test went, by its node id."""
    return {fact.nodeid: fact.outcome.word for fact in stores.results.tests(cell_id)}
