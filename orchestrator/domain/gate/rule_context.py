"""What the rules look at: the policy's platforms with their cells, and jobs with their rules."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from orchestrator.domain.cell import CellState
from orchestrator.domain.gate.excuse_terms import ExcuseTerms
from orchestrator.domain.gate.performance import Statistics
from orchestrator.domain.gate.policy import GatePolicy, JobRule, PlatformRule
from orchestrator.domain.gate.quantities import like
from orchestrator.domain.gate.snapshot import CellEvidence, JobEvidence, Snapshot
from orchestrator.domain.gate.tolerance import (
    FailingResult,
    Tolerance,
    failing_results,
    failures_over,
    tolerate,
)
from orchestrator.domain.outcome import Outcome


@dataclass(frozen=True, slots=True)
class JudgedJob:
    """A job of a cell, and the rule that it falls under."""

    cell: CellEvidence
    job: JobEvidence
    rule: JobRule
    blocking: bool

    @property
    def name(self) -> str:
        """``moe@gcp-l4``."""
        return f"{self.job.id}@{self.cell.id}"


@dataclass(frozen=True, slots=True)
class PlatformEvidence:
    """A platform of the policy with the evidence that there is of it."""

    rule: PlatformRule
    cells: tuple[CellEvidence, ...]
    """One per environment, by its name."""
    rules: tuple[JobRule, ...]
    """Those of its jobs; of a job the first that fits counts."""

    def blocking(self, cell: CellEvidence) -> bool:
        """Whether what is wrong with a cell can stop a release."""
        if is_unavailable(cell) and self.rule.when_unavailable.verdict == "advisory":
            return False
        return self.rule.level == "blocking"

    @property
    def ran(self) -> tuple[CellEvidence, ...]:
        """The cells that a machine was had for."""
        return tuple(cell for cell in self.cells if not is_unavailable(cell))

    @property
    def jobs(self) -> Iterator[JudgedJob]:
        """Every job of the cells that ran, by its id."""
        for cell in self.ran:
            for job in sorted(cell.jobs, key=lambda job: job.id):
                rule = next(rule for rule in self.rules if like(rule.id, job.id))
                yield JudgedJob(cell, job, rule, self.blocking(cell) and rule.level == "blocking")

    @property
    def counting(self) -> list[JudgedJob]:
        """Those of them that count: on a blocking platform, jobs that only inform do not."""
        advisory = self.rule.level == "advisory"
        return [judged for judged in self.jobs if judged.blocking or advisory]


@dataclass(frozen=True, slots=True)
class RuleContext:
    """Everything that a verdict is made from."""

    policy: GatePolicy
    snapshot: Snapshot
    now: datetime
    statistics: Statistics
    evidence_digest: str
    stands: tuple[PlatformEvidence, ...]
    """In the policy's order."""
    tolerance: Tolerance
    """Which failing results are tolerated, and by what."""
    terms: ExcuseTerms
    """What exceptions and approvals must be to count."""

    @property
    def jobs(self) -> Iterator[JudgedJob]:
        """Every job of every platform that the policy names."""
        for stand in self.stands:
            yield from stand.jobs

    @property
    def cells(self) -> Iterator[tuple[PlatformEvidence, CellEvidence]]:
        """Every cell of every platform that the policy names."""
        for stand in self.stands:
            for cell in stand.cells:
                yield stand, cell


def is_unavailable(cell: CellEvidence) -> bool:
    """Whether its provider did not give it."""
    return cell.outcome is Outcome.NOT_AVAILABLE


def is_over(cell: CellEvidence) -> bool:
    """Whether nothing more comes."""
    return cell.state == CellState.DONE.value and cell.outcome is not None


def rule_context(
    policy: GatePolicy,
    snapshot: Snapshot,
    now: datetime,
    *,
    statistics: Statistics,
    evidence_digest: str,
    terms: ExcuseTerms,
) -> RuleContext:
    """Sort the evidence by what the policy says of it."""
    stands = tuple(platform_evidence(rule, policy, snapshot) for rule in policy.spec.platforms)
    failing = [result for stand in stands for job in stand.jobs for result in _failing(job)]
    tolerance = tolerate(failing, policy, snapshot, now, terms)
    return RuleContext(policy, snapshot, now, statistics, evidence_digest, stands, tolerance, terms)


def platform_evidence(
    rule: PlatformRule, policy: GatePolicy, snapshot: Snapshot
) -> PlatformEvidence:
    """A platform with its newest cell of each environment. A job that no rule names must pass."""
    order = {run: number for number, run in enumerate(snapshot.runs)}
    mine = [cell for cell in snapshot.cells if cell.platform == rule.id]
    mine.sort(key=lambda cell: (order.get(cell.run, -1), cell.run, cell.id))
    newest = {cell.environment: cell for cell in mine}
    asked = [each for each in policy.spec.jobs if each.on == "all" or rule.id in each.on]
    rest = JobRule(id="*", on=(rule.id,), level=rule.level)
    return PlatformEvidence(rule, tuple(newest[name] for name in sorted(newest)), (*asked, rest))


def _failing(judged: JudgedJob) -> Iterator[FailingResult]:
    yield from failing_results(judged.cell, judged.job, blocking=judged.blocking)
    yield from failures_over(judged.cell, judged.job, blocking=judged.blocking)
