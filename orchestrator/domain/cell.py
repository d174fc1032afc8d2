"""Runs, cells and attempts: states, outcomes and allowed transitions."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from enum import StrEnum

from orchestrator.domain.commit import Commit
from orchestrator.domain.machine import Endpoint, Extent, Place
from orchestrator.domain.manifest import Manifest
from orchestrator.domain.matrix import Matrix
from orchestrator.domain.outcome import Outcome, Reason
from orchestrator.domain.retests import RetestOptions


class CellState(StrEnum):
    """State of a cell."""

    QUEUED = "queued"
    PLACING = "placing"
    BOOTING = "booting"
    PREPARING = "preparing"
    RUNNING = "running"
    COLLECTING = "collecting"
    DIAGNOSING = "diagnosing"
    """Failed tests run again on the same machine."""
    RELEASING = "releasing"
    DONE = "done"


TRANSITIONS: dict[CellState, frozenset[CellState]] = {
    CellState.QUEUED: frozenset({CellState.PLACING, CellState.DONE}),
    CellState.PLACING: frozenset({CellState.BOOTING, CellState.RELEASING}),
    CellState.BOOTING: frozenset({CellState.PREPARING, CellState.RELEASING}),
    CellState.PREPARING: frozenset({CellState.RUNNING, CellState.RELEASING}),
    CellState.RUNNING: frozenset({CellState.COLLECTING}),
    CellState.COLLECTING: frozenset({CellState.DIAGNOSING, CellState.RELEASING}),
    CellState.DIAGNOSING: frozenset({CellState.RELEASING}),
    CellState.RELEASING: frozenset({CellState.QUEUED, CellState.DONE}),
    CellState.DONE: frozenset(),
}
"""The allowed transitions. A state that may hold a machine reaches DONE only through RELEASING."""

_ORDER = list(CellState)


class IllegalTransitionError(Exception):
    """The state transition is not in `TRANSITIONS`."""


@dataclass(frozen=True, slots=True)
class Cause:
    """Why an attempt or a job cannot pass any more."""

    outcome: Outcome
    reason: str
    """One of the glossary's reasons, such as capacity, quota, boot or lost."""
    detail: str = ""
    """An explanation for a person."""


RETRIED = frozenset(
    {
        Reason.CAPACITY,
        Reason.BOOT,
        Reason.SSH,
        Reason.HOST_KEY,
        Reason.AGENT,
        Reason.CONTROLLER,
        Reason.PREEMPTED,
        Reason.LOST,
        Reason.UNAVAILABLE,
        Reason.DISK_FULL,
        Reason.CLOUD_INIT,
        Reason.PACKAGES,
        Reason.DRIVER,
        Reason.TORCH_DEVICE,
        Reason.DEVICE_CHECK,
    }
)
"""Reasons of `errored` after which another attempt is made."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt at a cell."""

    id: str
    cell_id: str
    number: int
    """Counted from 1."""
    opened_at: datetime
    cause: Cause | None = None
    """The first fault outside of the jobs; None if there was none."""
    outcome: Outcome | None = None
    """The outcome of a closed attempt; None while the attempt is open."""
    closed_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Cell:
    """One platform x environment of one run."""

    id: str
    """The cell's id, unique across runs."""
    run_id: str
    name: str
    """The cell's name from the expanded matrix; the value of `--cell`."""
    position: int
    state: CellState = CellState.QUEUED
    entered_at: datetime | None = None
    """When the cell entered its state."""
    outcome: Outcome | None = None
    reason: str = ""
    detail: str = ""

    def to(self, state: CellState, *, at: datetime) -> Cell:
        """Return the cell in the new state.

        Raises IllegalTransitionError if the transition is not allowed.
        """
        if state not in TRANSITIONS[self.state]:
            raise IllegalTransitionError(f"{self.name}: {self.state} -> {state}")
        return replace(self, state=state, entered_at=at)

    def has_reached(self, state: CellState) -> bool:
        """Whether the present attempt of the cell is in the state `state` or a later one."""
        return _ORDER.index(self.state) >= _ORDER.index(state)


@dataclass(frozen=True, slots=True)
class Transition:
    """A state transition of a cell; timelines, audits and bills are made of them."""

    at: datetime
    attempt: int
    from_state: str
    to_state: str
    reason: str = ""


class LeaseFact(StrEnum):
    """Keys of `Lease.facts` that the controller writes; properties of `Lease` parse them."""

    ASKED_AT = "asked_at"
    """When the machine was last requested or last seen."""
    ORDERED_AT = "ordered_at"
    """When the provider last reported that the machine was not granted yet."""
    SEEN_AT = "seen_at"
    """When the provider first listed the machine. If it is not listed any more, it is gone."""
    GRANTED_AT = "granted_at"
    ENDED_AT = "ended_at"
    """When billing ended, as `Machine.ended_at`."""
    UNHEARD = "unheard"
    """The last connection error of an unreachable machine; empty once it answers."""
    FINAL = "final"
    """Set if another attempt could only get the same answer from the same host."""
    AWAITED = "awaited"
    """What a reachable machine waits for before its jobs: its first boot, packages or drivers.

    Empty once it is ready.
    """
    REFUSAL_REASON = "refusal"
    REFUSAL_EXTENT = "refusal_extent"
    REFUSAL_CODE = "refusal_code"
    REFUSAL_DETAIL = "refusal_detail"


class LeaseState(StrEnum):
    """State of a lease."""

    RESERVED = "reserved"
    """Money and the place are reserved; the provider has not been called."""
    LAUNCHING = "launching"
    """The provider may have been called; a machine may exist."""
    ACTIVE = "active"
    """The machine's id is known."""
    RELEASING = "releasing"
    """The provider was asked to terminate the machine."""
    GONE = "gone"
    """The machine is verified as terminated, or was never created."""


@dataclass(frozen=True, slots=True)
class Lease:
    """The ledger's row of one machine, from before the launch call until it is verified gone."""

    id: str
    """The lease's id; also the idempotency token and the tag of the machine."""
    attempt_id: str
    provider: str
    place: str
    state: LeaseState
    reserved_usd: Decimal
    price_usd_per_hour: Decimal | None
    reserved_at: datetime
    machine_id: str = ""
    endpoint: Endpoint | None = None
    launched_at: datetime | None = None
    gone_at: datetime | None = None
    cost_usd: Decimal | None = None
    """Final cost in US dollars; None until the machine is gone."""
    refusal: str = ""
    """The provider's answer if it refused, such as ``capacity: ...``; otherwise empty."""
    offer: Place | None = None
    """The place with its prices at the time of the offer."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """Facts from the provider (instance, image, zone, market), and those of `LeaseFact`."""
    simulated: bool = False
    """Whether the provider is an emulation."""

    @property
    def unheard(self) -> str:
        """Why the machine is unreachable; empty if it answers or is gone."""
        return "" if self.state is LeaseState.GONE else self.facts.get(LeaseFact.UNHEARD, "")

    @property
    def is_final(self) -> bool:
        """Whether another attempt could only get the same answer from the same host."""
        return LeaseFact.FINAL in self.facts

    @property
    def awaited(self) -> str:
        """The preparation that must end before jobs can start; empty if there is none."""
        return self.facts.get(LeaseFact.AWAITED, "")

    @property
    def billed_from(self) -> datetime | None:
        """Start of billing: the launch call, or the last report that it was not granted yet."""
        return self._time(LeaseFact.ORDERED_AT) or self.launched_at

    @property
    def billed_until(self) -> datetime | None:
        """End of billing; None while it is not known.

        It is the earlier of the end that the provider reports and the time at which the machine was
        found gone.
        """
        known = (self._time(LeaseFact.ENDED_AT), self.gone_at)
        return min((at for at in known if at is not None), default=None)

    @property
    def granted_at(self) -> datetime | None:
        """When the provider granted the machine; None if it did not.

        This may be long after the launch call.
        """
        unplaced = self.launched_at if self.offer is None else None
        return self._time(LeaseFact.GRANTED_AT) or unplaced

    @property
    def asked_at(self) -> datetime:
        """When the machine was last requested.

        If the provider does not list the machine long after that, it does not exist.
        """
        return self._time(LeaseFact.ASKED_AT) or self.launched_at or self.reserved_at

    @property
    def is_seen(self) -> bool:
        """Whether the provider has listed the machine."""
        return LeaseFact.SEEN_AT in self.facts

    @property
    def instance_type(self) -> str:
        """Instance type of the machine, or of the offer; empty if both are unknown."""
        offered = self.offer.instance_type if self.offer else ""
        return self.facts.get("instance_type", "") or offered

    @property
    def image_id(self) -> str:
        """The image that the machine booted; empty if the provider does not report it."""
        return self.facts.get("image_id", "")

    @property
    def refusal_reason(self) -> str:
        """One word for why the place gave no machine; empty without a refusal."""
        return self.facts.get(LeaseFact.REFUSAL_REASON, "") or self.refusal.partition(":")[0]

    @property
    def refusal_extent(self) -> Extent | None:
        """The extent of the refusal; None without a refusal."""
        extent = self.facts.get(LeaseFact.REFUSAL_EXTENT)
        return Extent(extent) if extent is not None else None

    @property
    def refusal_code(self) -> str:
        """The provider's error code of the refusal; empty if there is none."""
        return self.facts.get(LeaseFact.REFUSAL_CODE, "")

    @property
    def refusal_detail(self) -> str:
        """The provider's error message of the refusal; empty if there is none."""
        return self.facts.get(LeaseFact.REFUSAL_DETAIL, "")

    def _time(self, fact: LeaseFact) -> datetime | None:
        text = self.facts.get(fact)
        return datetime.fromisoformat(text) if text else None


class PlacementResult(StrEnum):
    """Result of considering a place for a machine."""

    CHOSEN = "chosen"
    REFUSED = "refused"
    """The provider was called and refused."""
    SKIPPED = "skipped"
    """The provider was not called, because of earlier refusals."""
    LAST = "last"
    """The provider was called after all other places, because of earlier refusals."""
    AGAIN = "again"
    """The same call is repeated, with the same token."""


@dataclass(frozen=True, slots=True)
class PlacementDecision:
    """The decision about one place, with its result and reason."""

    at: datetime
    place: str
    result: PlacementResult
    reason: str
    """One word, as in `Cause.reason`; empty for CHOSEN."""
    detail: str
    """The provider's answer or the earlier refusal, for a person."""
    attempt: int = 0
    """The attempt's number."""

    @property
    def term(self) -> str:
        """The code of the term for the result."""
        return f"place:{self.result}" if self.result is PlacementResult.SKIPPED else self.result

    @property
    def why(self) -> str:
        """Reason and detail in one text, for a person."""
        return ": ".join(part for part in (self.reason.replace("_", " "), self.detail) if part)


class RunState(StrEnum):
    """State of a run."""

    RUNNING = "running"
    INGESTING = "ingesting"
    """Uploaded evidence is being stored; there are no cells to run."""
    FINISHED = "finished"


@dataclass(frozen=True, slots=True)
class Run:
    """One launch of a matrix for a subject."""

    id: str
    matrix_name: str
    subject_name: str
    subject_version: str
    payload_digest: str
    created_at: datetime
    state: RunState = RunState.RUNNING
    outcome: Outcome | None = None
    finished_at: datetime | None = None
    cancel_requested_at: datetime | None = None
    rerun_of: str | None = None
    commit: Commit = field(default_factory=Commit)
    """The tested commit; empty if it is unknown."""
    untrusted: bool = False
    """Whether the code is untrusted, so that no gate accepts its results."""


@dataclass(frozen=True, slots=True)
class RunEvent:
    """A numbered record of a change in a run."""

    number: int
    """Counted from 1 in the order of database commits; without gaps until the logs are pruned."""
    kind: str
    """``cell``, ``evidence``, ``log``, ``run`` or ``report``."""
    cell: str
    """The cell's name; empty for an event of the whole run."""
    data: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunSpec:
    """The parameters that a run was launched with; immutable."""

    matrix: Matrix
    manifest: Manifest
    subject_digest: str | None = None
    """sha256 of the subject's uploaded wheel; None without one."""
    only: Mapping[str, Sequence[str]] | None = None
    """Jobs to run, by cell name; None runs all jobs."""
    hold_minutes: float = 0.0
    """Minutes for which the machine of a cell that did not pass is held for a person."""
    baseline_digest: str | None = None
    """sha256 of the baseline's uploaded wheel or payload; None without one."""
    retests: RetestOptions | None = None
    """Options of the retests of failing tests on the same machine; None without retests."""
    reuse_max_age_s: float | None = None
    """Maximum age in seconds of evidence that is reused for jobs with equal inputs.

    None reuses none.
    """
    subject_contents: str = ""
    """Digest of the content of the subject's wheel (`launch_run.py`); empty without a wheel."""
    subject_built: str = ""
    """Place, account and source of the build, if the controller built the subject's wheel."""
    baseline_contents: str = ""
    """Digest of the content of the baseline's wheel; empty without a wheel."""


def run_outcome(cells: list[tuple[Outcome, bool]]) -> Outcome:
    """Return the worst outcome of a run's cells.

    Args:
        cells: Each cell's outcome, and whether its platform is optional. An optional platform
            that is not available is ignored, unless all cells are such.
    """
    counted = [o for o, optional in cells if not (optional and o is Outcome.NOT_AVAILABLE)]
    if not counted:
        return Outcome.NOT_AVAILABLE
    ranked = sorted(counted, key=list(Outcome).index)
    return ranked[-1]


@dataclass(frozen=True, slots=True)
class SubjectBuild:
    """Name, version and wheel of a run's subject."""

    name: str = ""
    version: str = ""
    wheel: str = ""
    """sha256 of the wheel; empty if the subject is in the payload or comes from an index."""
    contents: str = ""
    """Digest of the wheel's content; wheels that were only zipped again have the same."""

    @classmethod
    def from_run(cls, run: Run, spec: RunSpec) -> SubjectBuild:
        """Return the subject's build of a run."""
        wheel = spec.subject_digest or ""
        return cls(run.subject_name, run.subject_version, wheel, spec.subject_contents)


def is_own_baseline(payload: str, spec: RunSpec) -> bool:
    """Whether subject and baseline of paired benchmarks are the same: wheel, payload or package.

    Args:
        payload: Digest of the run's payload.
        spec: The run's parameters.
    """
    subject, baseline = spec.matrix.subject, spec.matrix.baseline
    if baseline is None:
        return False
    if baseline.source == "payload":
        return spec.baseline_digest == payload
    if baseline.source == "package":
        return subject.package is not None and subject.package == baseline.package
    digests = {spec.baseline_digest, spec.subject_digest}
    contents = {spec.baseline_contents, spec.subject_contents}
    return any(len(same) == 1 and all(same) for same in (digests, contents))


def tested_build(run: Run, spec: RunSpec) -> str:
    """Return a digest of the payload and the subject that a run tested.

    The payload and the subject's wheel are identified by their content. Without a
    payload, as in ingested results, the commit is used in place of it.
    """
    wheel = spec.subject_contents or spec.subject_digest or ""
    known = (run.subject_name, run.subject_version, run.payload_digest, wheel)
    commit = "" if run.payload_digest else run.commit.sha
    return hashlib.sha256("\0".join((*known, commit)).encode()).hexdigest()


def build_difference(before: SubjectBuild, after: SubjectBuild) -> str:
    """Return how two builds of one name and version differ; empty if no difference is known.

    A wheel that was only zipped again does not differ.
    """
    if (before.name, before.version) != (after.name, after.version) or before.wheel == after.wheel:
        return ""
    if not (before.wheel and after.wheel):
        return "The subject differs: only one of the runs had a wheel of it."
    if not (before.contents and after.contents):
        return (
            "The subject may differ although its version does not: its wheels are different files."
        )
    if before.contents == after.contents:
        return ""
    return "The subject differs although its version does not: its wheels hold different files."
