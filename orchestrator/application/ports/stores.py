"""Where runs, cells, leases and evidence are kept. Each method is one transaction.

Every method is idempotent, or says why it is not. None makes a network call of another kind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from orchestrator.application.ports.benchmark_series import SeriesStore
from orchestrator.application.ports.benchmarks import BenchmarkStore
from orchestrator.application.ports.controllers import ControllerStore
from orchestrator.application.ports.cost_aggregates import BillStore
from orchestrator.application.ports.differences import DifferenceStore
from orchestrator.application.ports.evidence import EvidenceStore, ResultStore
from orchestrator.application.ports.failure_groups import KindStore
from orchestrator.application.ports.gates import GateStore
from orchestrator.application.ports.grids import GridStore
from orchestrator.application.ports.history import (
    AliasStore,
    FailureStore,
    KnownIssueStore,
    TestStore,
)
from orchestrator.application.ports.ingests import IngestStore, StatementStore
from orchestrator.application.ports.ledger import LeaseStore, SightingStore
from orchestrator.application.ports.logs import LogStore
from orchestrator.application.ports.machine_list import RentedStore
from orchestrator.application.ports.operational_metrics import FigureStore
from orchestrator.application.ports.outbox import OutboxStore
from orchestrator.application.ports.quarantines import QuarantineStore
from orchestrator.application.ports.read_models import CellLife, RunNames, RunsAsked
from orchestrator.application.ports.release_board import ReleaseStore
from orchestrator.application.ports.retests import TrialStore
from orchestrator.application.ports.reuse_inputs import ProofStore
from orchestrator.application.ports.schedules import ScheduleStore
from orchestrator.domain.cell import Attempt, Cause, Cell, CellState, Run, Transition
from orchestrator.domain.machine import MachineBook
from orchestrator.domain.manifest import Manifest
from orchestrator.domain.matrix import CellPlan, Matrix
from orchestrator.domain.outcome import Outcome
from orchestrator.domain.prices import PriceBook
from orchestrator.domain.retests import TrialOrder


class StoreError(Exception):
    """The database refused or cannot be reached; nothing of the call was stored."""


class StoreUnusableError(StoreError):
    """The database cannot be used now: the same call may succeed later.

    Args:
        message: For the log: what the driver said, and where.
        advice: For anybody: what is wrong and what to do, without names, paths and values.
    """

    def __init__(self, message: str, advice: str = "the database cannot be used now") -> None:
        super().__init__(message)
        self.advice = advice


class DamagedError(StoreError):
    """What was stored cannot be read back; asking again does not help."""


@dataclass(frozen=True, slots=True)
class RunSpec:
    """What a run was launched with; never changes."""

    matrix: Matrix
    manifest: Manifest
    subject_digest: str | None = None
    """sha256 of the subject's wheel, where one was given."""
    only: Mapping[str, Sequence[str]] | None = None
    """Of a rerun: the jobs of each cell, by the cell's name; None means all."""
    hold_minutes: float = 0.0
    """How long the machine of a cell that did not pass is kept for a person to look at."""
    baseline_digest: str | None = None
    """sha256 of the baseline's wheel or payload, where one was given."""
    trials: TrialOrder | None = None
    """What is found out about failing tests while their machine is still there."""
    reuse_max_age_s: float | None = None
    """Jobs with evidence no older than this, of the very same, are not run; None runs all."""
    subject_contents: str = ""
    """Digest of what that wheel holds (`wheel_contents.py`)."""
    subject_built: str = ""
    """Where the subject's wheel was built, as whom and from what, where a controller did it."""


_ANY = RunsAsked()


class Claim(StrEnum):
    """What became of an idempotency key."""

    NEW = "new"
    REPLAY = "replay"
    OTHER_BODY = "other_body"
    IN_FLIGHT = "in_flight"


class RunStore(Protocol):
    """Runs and the keys they were launched with."""

    def claim_key(
        self, key: str, fingerprint: str, *, at: datetime, stale_before: datetime
    ) -> tuple[Claim, str | None]:
        """Take an idempotency key; REPLAY comes with the run's id.

        A claim without a run that is older than `stale_before` belongs to a dead request and is
        taken over.
        """
        ...

    def drop_key(self, key: str) -> None:
        """Give a claimed key back after a refusal, unless it has a run."""
        ...

    def create(
        self, run: Run, spec: RunSpec, cells: Sequence[tuple[str, CellPlan]], *, key: str | None
    ) -> None:
        """Store the run and its cells (id, plan) and bind the key."""
        ...

    def get(self, run_id: str) -> Run | None:
        """The run, or None."""
        ...

    def find(self, prefix: str) -> tuple[str, ...]:
        """Ids of runs that begin so, newest first, at most 10; `latest` is the newest run."""
        ...

    def spec(self, run_id: str) -> RunSpec:
        """What it was launched with."""
        ...

    def page(
        self, *, limit: int, before: str | None, asked: RunsAsked = _ANY
    ) -> tuple[list[Run], str | None]:
        """Those asked for, newest first, with the cursor of the next page."""
        ...

    def names(self) -> RunNames:
        """What runs are of, each name once."""
        ...

    def request_cancel(self, run_id: str, *, at: datetime) -> None:
        """Write the row that every look reads; a feed item tells the watchers."""
        ...

    def finish(
        self, run_id: str, outcome: Outcome, *, at: datetime, cells: int | None = None
    ) -> bool:
        """Finish it, once; True if this call did.

        With `cells`, how many were judged, only while the run has just these and all are done,
        decided under the run row's lock: it may have been opened for one more meanwhile.
        """
        ...

    def unfinished(self) -> tuple[str, ...]:
        """Ids of runs that are not finished."""
        ...


class CellStore(Protocol):
    """Cells, their attempts and the steps of their lives."""

    def get(self, cell_id: str) -> Cell:
        """The cell."""
        ...

    def of_run(self, run_id: str) -> list[Cell]:
        """In matrix order."""
        ...

    def of_runs(self, run_ids: Sequence[str]) -> dict[str, list[Cell]]:
        """By run, in matrix order; a run without cells is left out."""
        ...

    def lives(self, cell_ids: Sequence[str]) -> dict[str, CellLife]:
        """By cell id; those that are not there are left out."""
        ...

    def plan(self, cell_id: str) -> CellPlan:
        """What the matrix wants of it."""
        ...

    def unfinished(self) -> tuple[str, ...]:
        """Ids of cells that are not done."""
        ...

    def untold(self) -> tuple[str, ...]:
        """Ids of done cells whose run is not finished, though none of its cells is at work."""
        ...

    def admit(self, cell_id: str, attempt_id: str, *, max_parallel: int, at: datetime) -> bool:
        """Open an attempt and go to PLACING, if the run has room; True if it is open.

        There is room while fewer than `max_parallel` of its cells are between PLACING and
        RELEASING, decided under the run row's lock. An attempt that is open already is True.
        """
        ...

    def reach(self, cell_id: str, state: CellState, *, at: datetime, reason: str = "") -> Cell:
        """Move to the state, with a transition row and a feed item; nothing when there or past."""
        ...

    def requeue(self, attempt_id: str, outcome: Cause, *, at: datetime) -> None:
        """Close the attempt and go from RELEASING to QUEUED."""
        ...

    def conclude(self, cell_id: str, outcome: Cause, *, at: datetime) -> None:
        """Close the open attempt, if any, set the cell's outcome and go to DONE.

        The cell's roll-up is written in the same transaction.
        """
        ...

    def attempt(self, attempt_id: str) -> Attempt:
        """The attempt."""
        ...

    def attempts(self, cell_id: str) -> list[Attempt]:
        """In their order."""
        ...

    def blame(self, attempt_id: str, cause: Cause) -> None:
        """Write what went wrong outside the jobs; the first cause stands."""
        ...

    def transitions(self, cell_id: str) -> list[Transition]:
        """In their order."""
        ...


@dataclass(frozen=True, slots=True)
class FeedItem:
    """A pointer to something new in a run."""

    number: int
    """From 1, without a gap, in the order of commits."""
    kind: str
    """``cell``, ``evidence``, ``log``, ``run`` or ``report``."""
    cell: str
    """The cell's name, or empty."""
    data: Mapping[str, object] = field(default_factory=dict)


class FeedStore(Protocol):
    """What watchers follow, numbered per run under the run row's lock."""

    def after(self, run_id: str, number: int, *, limit: int = 500) -> list[FeedItem]:
        """The items that follow a number."""
        ...

    def last(self, run_id: str) -> int:
        """The number of the newest item; 0 where there is none."""
        ...

    def add(self, run_id: str, kind: str, data: Mapping[str, object]) -> None:
        """Append one; not idempotent."""
        ...


@dataclass(frozen=True, slots=True)
class StoredPayload:
    """An uploaded payload."""

    digest: str
    size_bytes: int
    manifest: Manifest


class PayloadStore(Protocol):
    """Uploaded payloads by digest; their bytes are blobs."""

    def put(self, payload: StoredPayload, *, at: datetime) -> None:
        """Store it; the same digest is stored once."""
        ...

    def get(self, digest: str) -> StoredPayload | None:
        """The payload, or None."""
        ...


class Scope(StrEnum):
    """What a token may do; each includes the ones before it."""

    READ = "read"
    RUN = "run"
    GATE = "gate"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Token:
    """An API token; its secret is not kept."""

    id: str
    name: str
    """Its owner's: tokens whose names are one person's (`person_key`) are that person's."""
    scope: Scope
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None = None
    revoked_at: datetime | None = None


class TokenStore(Protocol):
    """Tokens by the sha256 of their secret."""

    def add(self, token: Token, secret_sha256: str) -> None:
        """Store it."""
        ...

    def find(self, secret_sha256: str) -> Token | None:
        """The token of a secret, revoked or not."""
        ...

    def used(self, token_id: str, *, at: datetime) -> None:
        """Note that it was used."""
        ...

    def list(self) -> list[Token]:
        """Every token, revoked ones too."""
        ...

    def revoke(self, token_id: str, *, at: datetime) -> bool:
        """End it; False if there is none, or it is revoked already."""
        ...


class BrowserSessionStore(Protocol):
    """Browsers that are signed in, by the sha256 of their session's secret."""

    def add(self, secret_sha256: str, token_id: str, *, at: datetime, expires_at: datetime) -> None:
        """Begin one, and forget those that are over by then."""
        ...

    def token_of(self, secret_sha256: str, *, at: datetime) -> Token | None:
        """The token of a session that lasts still, revoked or not; None where there is none."""
        ...

    def end(self, secret_sha256: str) -> None:
        """End it; again changes nothing."""
        ...


@dataclass(frozen=True, slots=True)
class Stores:
    """Every store of one database."""

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
    machines: MachineBook
    sightings: SightingStore
    prices: PriceBook
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
