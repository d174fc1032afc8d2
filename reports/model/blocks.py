"""The tables, texts and plots that reports are made of. Derived values name their formula."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from orchestrator.domain.event_facts import CheckFact
from reports.model.values import Absent, CheckTally, Rate, Status, Tally


@dataclass(frozen=True, slots=True)
class Plot:
    """Drawn from a model; a document links it or carries it."""

    name: str
    """Names its file: lower-case letters, digits and dashes."""
    title: str
    alt_text: str
    """A sentence that describes the plot, as its alternative text."""
    svg: str

    @property
    def path(self) -> str:
        """The plot's path, relative to the document."""
        return f"plots/{self.name}.svg"


@dataclass(frozen=True, slots=True)
class SuiteRow:
    """The results of one suite."""

    id: str
    title: str
    status: Status
    tally: Tally | Absent
    """Absent where the suite was never started."""
    duration_s: float | Absent


@dataclass(frozen=True, slots=True)
class SuiteTable:
    """Every suite of a cell."""

    rows: tuple[SuiteRow, ...]
    total: Tally | Absent
    """Derived: the sum of the rows that have a tally."""


@dataclass(frozen=True, slots=True)
class FailingTest:
    """One test that keeps its suite from passing."""

    __test__ = False

    nodeid: str
    outcome: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class SuiteProblems:
    """The tests of one suite that failed, erred, never reported or never ran."""

    suite: str
    title: str
    bad: int
    """Derived: ``failed + error + missing + not_run`` of the suite's row; while it runs, those of
    them that are certain, ``failed + error``."""
    shown: tuple[FailingTest, ...]
    hidden: int
    """Derived: ``bad - len(shown)``."""
    log: str | Absent
    """The file that has the rest."""


@dataclass(frozen=True, slots=True)
class SkipGroup:
    """Tests skipped for one reason."""

    reason: str
    tests: int


@dataclass(frozen=True, slots=True)
class SuiteSkips:
    """The skipped tests of one suite, by reason."""

    suite: str
    title: str
    skipped: int
    groups: tuple[SkipGroup, ...]
    hidden: int
    """Derived: tests of the groups that are not shown."""


@dataclass(frozen=True, slots=True)
class SlowTest:
    """A test that took long."""

    suite: str
    nodeid: str
    duration_s: float


@dataclass(frozen=True, slots=True)
class CommandRow:
    """One demo, use case or benchmark."""

    id: str
    title: str
    status: Status
    checks: CheckTally | Absent
    """Absent where the job made no statement."""
    lines: tuple[CheckFact, ...]
    hidden: int
    """Derived: checks that are not among the lines."""
    duration_s: float | Absent

    @property
    def notable(self) -> tuple[CheckFact, ...]:
        """Lines with more information than a passed check."""
        return tuple(x for x in self.lines if x.outcome != "passed" or x.value or x.reason)


@dataclass(frozen=True, slots=True)
class CommandTable:
    """Every job of one kind that is not a suite."""

    kind: str
    rows: tuple[CommandRow, ...]
    checks: CheckTally | Absent
    """Derived: the sum of the rows."""
    jobs: Rate
    """Derived: passed jobs of all jobs."""


@dataclass(frozen=True, slots=True)
class ProbedDevice:
    """An accelerator, as it was probed on the machine."""

    name: str
    uuid: str | Absent
    memory_bytes: int | Absent
    compute_capability: str | Absent
    architecture: str | Absent
    """Derived from the compute capability."""
    driver: str | Absent


@dataclass(frozen=True, slots=True)
class Hardware:
    """The machine and its software, as measured."""

    devices: tuple[ProbedDevice, ...]
    accelerator: str | Absent
    """Derived: the devices in a few words."""
    is_accelerator_evidence: bool
    why: str
    """Why it is, or is not."""
    cpu: str | Absent
    cpus: int | Absent
    memory_bytes: int | Absent
    disk_free_bytes: int | Absent
    os: str | Absent
    kernel: str | Absent
    python: str | Absent
    torch: str | Absent
    runtime_name: str
    """``CUDA``, ``ROCm`` or ``XLA``."""
    runtime: str | Absent
    separated_user: str | Absent
    packages: tuple[tuple[str, str], ...]
    """The important ones."""
    package_count: int | Absent

    @property
    def stack(self) -> tuple[str, str, str]:
        """Return the versions that are equal in a comparison of hardware alone."""
        parts = (self.torch, self.runtime)
        torch, runtime = ("unknown" if isinstance(p, Absent) else p for p in parts)
        return torch, self.runtime_name, runtime


@dataclass(frozen=True, slots=True)
class TimelineRow:
    """One step of the cell's life."""

    at: datetime
    attempt: int
    origin: str
    target: str
    reason: str
    until: datetime | Absent
    duration_s: float | Absent
    """Derived: ``until - at``, the time spent in ``target``."""


@dataclass(frozen=True, slots=True)
class AttemptLine:
    """One try at the cell."""

    number: int
    id: str
    opened_at: datetime
    closed_at: datetime | Absent
    status: Status
    detail: str


@dataclass(frozen=True, slots=True)
class FileRow:
    """A raw file of the cell."""

    name: str
    size_bytes: int
    sha256: str
    what: str


@dataclass(frozen=True, slots=True)
class NoticeLine:
    """A notice of the agent."""

    at: datetime | Absent
    """By the machine's clock."""
    job: str
    level: str
    message: str
