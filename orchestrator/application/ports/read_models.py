"""What is read of many runs and cells at once, so that no page asks once for each of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from orchestrator.application.ports.evidence import Artifact
from orchestrator.domain.cell import Attempt, Cell, Lease, RunState, Transition
from orchestrator.domain.facts import CheckFact, JobFact, MetricFact, Notice
from orchestrator.domain.matrix import CellPlan
from orchestrator.domain.outcome import Counts, Outcome, TestOutcome


@dataclass(frozen=True, slots=True)
class CellLife:
    """A cell, what the matrix wants of it, and every step of its life."""

    cell: Cell
    plan: CellPlan
    attempts: Sequence[Attempt] = ()
    """In their order."""
    transitions: Sequence[Transition] = ()
    """In their order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellResults:
    """What is known of a cell, each in the order it was stated."""

    jobs: Mapping[str, JobFact] = field(default_factory=dict)
    counts: Mapping[str, Counts] = field(default_factory=dict)
    """By job: its tests, with those that a source counts without naming them."""
    checks: Sequence[CheckFact] = ()
    metrics: Sequence[MetricFact] = ()
    notices: Sequence[Notice] = ()
    artifacts: Sequence[Artifact] = ()
    """By name."""
    environment: Mapping[str, object] | None = None
    """Of the last attempt that reported one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsAsked:
    """Which runs are asked for; what is empty takes any."""

    outcome: Outcome | None = None
    state: RunState | None = None
    subject: str = ""
    version: str = ""
    """Its beginning."""
    matrix: str = ""


@dataclass(frozen=True, slots=True)
class RunNames:
    """What there is to choose from."""

    subjects: Sequence[str] = ()
    matrices: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Spending:
    """The money of a run's machines."""

    settled_usd: Decimal = Decimal(0)
    unsettled: Sequence[Lease] = ()
    """Leases whose cost is still growing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TestsAsked:
    """Which tests of a cell are asked for; what is empty takes any."""

    __test__ = False

    outcome: TestOutcome | None = None
    job: str = ""
    contains: str = ""
    """Of the node id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TestLine:
    """How one test went, without its long text."""

    __test__ = False

    test_id: int
    job: str
    nodeid: str
    outcome: TestOutcome
    """As it counts: one that is not final is missing, unless its job gave up."""
    duration_s: float = 0.0
    reason: str = ""
    message: str = ""
    signature: str = ""
    earlier: Sequence[TestOutcome] = ()
    """Outcomes of tries before the last one."""
    has_text: bool = False
    """There is a traceback."""


@dataclass(frozen=True, slots=True)
class TestLines:
    """Tests of a cell, the worst first."""

    __test__ = False

    lines: Sequence[TestLine] = ()
    next: str = ""
    """The cursor of those that follow; empty where none do."""
