"""The input of rules: platforms with their cells, helpers for results, and trust in evidence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from orchestrator.domain.cell import CellState
from orchestrator.domain.document_problems import nearest
from orchestrator.domain.gate.exception_terms import ExemptionTerms
from orchestrator.domain.gate.performance import Statistics
from orchestrator.domain.gate.policy import (
    GatePolicy,
    JobRule,
    OnTrouble,
    PlatformRule,
    counted,
    duration,
    like,
)
from orchestrator.domain.gate.snapshot import CellEvidence, JobEvidence, Snapshot
from orchestrator.domain.gate.tolerance import (
    FailingResult,
    Tolerance,
    failing_results,
    failures_over,
    tolerate,
)
from orchestrator.domain.gate.verdict import RuleOutcome, RuleResult
from orchestrator.domain.manifest import IDENTIFIER
from orchestrator.domain.outcome import Outcome

_SEVERITY = (
    RuleOutcome.OK,
    RuleOutcome.TOLERATED,
    RuleOutcome.WAIVED,
    RuleOutcome.UNKNOWN,
    RuleOutcome.VIOLATED,
)


def policy_outcome(word: OnTrouble) -> RuleOutcome:
    """Return the rule outcome of a policy's word; with `advisory`, callers must not block."""
    return RuleOutcome.UNKNOWN if word == "inconclusive" else RuleOutcome.VIOLATED


def worst(outcomes: Iterable[RuleOutcome]) -> RuleOutcome:
    """Return the most severe outcome; OK for none."""
    return max(outcomes, key=_SEVERITY.index, default=RuleOutcome.OK)


def is_bad(result: RuleResult) -> bool:
    """Whether the outcome prevents a pass if the rule is blocking."""
    return result.outcome in (RuleOutcome.VIOLATED, RuleOutcome.UNKNOWN)


ALONE = ("new_failures", "cost")
"""Kinds of rules that exceptions and waivers name alone; they name other kinds with a place."""
_OF_PLATFORM = ("platform", "substitute", "skips")
_OF_CELL = ("missing", "subject_loaded", "undeclared_requirements")
_OF_JOB = (
    "job",
    "flaky",
    "nothing_passed",
    "degraded",
    "test_set",
    "selection",
    "changed_tests",
    "performance",
)
_NEVER = {
    "evidence": "missing evidence cannot be waived: run it",
    "subject": "a verdict is about one subject",
    "payload_level": "review the payload instead: `seatrial gate review DIGEST`",
    "freshness": "stale evidence cannot be waived: run it again",
    "attestation": "set `evidence.attestation` of the policy to accept unattested evidence",
    "hardware": "state the platform's machines in `platforms[].expect`",
    "approval": "an approval cannot be waived",
    "flaky": "informational only; the rule that fails is that of the job, or `flaky/JOB@PLATFORM`",
    "known_issue": "informational only",
    "quarantine": "informational only",
    "own_environment": "informational only",
    "lost_attempts": "informational only",
    "untested": "informational only",
}
"""Kinds of rules that cannot be waived, with advice."""


def rule_fault(rule: str, policy: GatePolicy) -> str:
    """Return why no exception or waiver can apply to a rule; empty if one can."""
    kind, _, rest = rule.partition("/")
    if kind in _NEVER and not (kind in _OF_JOB and rest):
        return f"nothing waives {rule!r}: {_NEVER[kind]}"
    platforms = [each.id for each in policy.spec.platforms]
    if rule in ALONE:
        return _alone_fault(rule, policy)
    if kind in (*_OF_PLATFORM, *_OF_CELL, *_OF_JOB) and rest:
        return _place_fault(kind, rest, platforms, policy)
    return f"there is no rule {rule!r}{nearest(rule, _examples(platforms))}"


def _alone_fault(rule: str, policy: GatePolicy) -> str:
    has = getattr(policy.spec, rule) is not None
    return "" if has else f"the policy has no rule {rule!r}"


def _place_fault(kind: str, rest: str, platforms: Sequence[str], policy: GatePolicy) -> str:
    what, at, place = rest.rpartition("@")
    if kind not in _OF_JOB:
        name = place.partition(".")[0] if kind in _OF_CELL else place
        return (
            ""
            if name in platforms
            else f"the policy names no platform {name!r}" + nearest(name, platforms)
        )
    if kind == "performance":
        return _performance_fault(what, at, place, platforms, policy)
    name = place.partition(".")[0]
    words = what.replace("*", "x").split(".")  # a job, or JOB.ENVIRONMENT of a job that is gone
    if not at or len(words) > 2 or not all(map(IDENTIFIER.fullmatch, words)):
        return f"say of which job and platform: {kind}/JOB@{platforms[0] if platforms else 'ID'}"
    if name in platforms:
        return ""
    return f"the policy names no platform {name!r}{nearest(name, platforms)}"


def _performance_fault(
    what: str, at: str, place: str, platforms: Sequence[str], policy: GatePolicy
) -> str:
    rule = policy.spec.performance
    if rule is None:
        return "the policy has no rule of performance"
    if not at:
        matches = [budget.match for budget in rule.budgets]
        return "" if place in matches else f"there is no budget {place!r}{nearest(place, matches)}"
    name = place.partition(".")[0]
    if name not in platforms:
        return f"the policy names no platform {name!r}{nearest(name, platforms)}"
    jobs = [budget.match.partition("/")[0] for budget in rule.budgets]
    if any(like(job, what.partition("/")[0]) for job in jobs):
        return ""
    return f"no budget is for {what!r}"


def _examples(platforms: Sequence[str]) -> list[str]:
    kinds = (*_OF_PLATFORM, *_OF_CELL)
    return [*ALONE, *(f"{kind}/{name}" for kind in kinds for name in platforms)]


@dataclass(frozen=True, slots=True)
class RuledJob:
    """A job of a cell with the policy's rule for it."""

    cell: CellEvidence
    job: JobEvidence
    rule: JobRule
    blocking: bool

    @property
    def name(self) -> str:
        """Name of job and cell, such as ``moe@gcp-l4``."""
        return f"{self.job.id}@{self.cell.id}"


@dataclass(frozen=True, slots=True)
class PlatformEvidence:
    """A platform of the policy with its evidence."""

    rule: PlatformRule
    cells: tuple[CellEvidence, ...]
    """One cell for each environment, sorted by the environment's name."""
    rules: tuple[JobRule, ...]
    """Rules for jobs; the first one that matches a job applies."""

    def blocking(self, cell: CellEvidence) -> bool:
        """Whether a violation in the cell can block a release."""
        if is_unavailable(cell) and self.rule.when_unavailable.verdict == "advisory":
            return False
        return self.rule.level == "blocking"

    @property
    def ran(self) -> tuple[CellEvidence, ...]:
        """The cells that had a machine."""
        return tuple(cell for cell in self.cells if not is_unavailable(cell))

    @property
    def jobs(self) -> Iterator[RuledJob]:
        """Yield every job of the cells that ran, sorted by id within each cell."""
        for cell in self.ran:
            for job in sorted(cell.jobs, key=lambda job: job.id):
                rule = next(rule for rule in self.rules if like(rule.id, job.id))
                yield RuledJob(cell, job, rule, self.blocking(cell) and rule.level == "blocking")

    @property
    def counting(self) -> list[RuledJob]:
        """The jobs that count; on a blocking platform, these are the blocking ones."""
        advisory = self.rule.level == "advisory"
        return [judged for judged in self.jobs if judged.blocking or advisory]


@dataclass(frozen=True, slots=True)
class RuleContext:
    """The evidence and the policy, which are the input of rules."""

    policy: GatePolicy
    snapshot: Snapshot
    now: datetime
    statistics: Statistics
    evidence_digest: str
    platforms: tuple[PlatformEvidence, ...]
    """The platforms in the order of the policy."""
    tolerance: Tolerance
    """The failing results, with what tolerates them."""
    terms: ExemptionTerms
    """The terms of exceptions and approvals."""

    @property
    def jobs(self) -> Iterator[RuledJob]:
        """Yield every job of every platform of the policy."""
        for platform in self.platforms:
            yield from platform.jobs

    @property
    def cells(self) -> Iterator[tuple[PlatformEvidence, CellEvidence]]:
        """Yield every cell of every platform of the policy."""
        for platform in self.platforms:
            for cell in platform.cells:
                yield platform, cell


def is_unavailable(cell: CellEvidence) -> bool:
    """Whether the provider refused the machine of the cell."""
    return cell.outcome is Outcome.NOT_AVAILABLE


def is_over(cell: CellEvidence) -> bool:
    """Whether the cell is finished."""
    return cell.state == CellState.DONE.value and cell.outcome is not None


def rule_context(
    policy: GatePolicy,
    snapshot: Snapshot,
    now: datetime,
    *,
    statistics: Statistics,
    evidence_digest: str,
    terms: ExemptionTerms,
) -> RuleContext:
    """Return the input of rules: the evidence by the policy's platforms and jobs."""
    platforms = tuple(platform_evidence(rule, policy, snapshot) for rule in policy.spec.platforms)
    failing = [
        result for platform in platforms for job in platform.jobs for result in _failing(job)
    ]
    tolerance = tolerate(failing, policy, snapshot, now, terms)
    return RuleContext(
        policy, snapshot, now, statistics, evidence_digest, platforms, tolerance, terms
    )


def platform_evidence(
    rule: PlatformRule, policy: GatePolicy, snapshot: Snapshot
) -> PlatformEvidence:
    """Return a platform with the newest cell of each environment. Jobs without a rule must pass."""
    order = {run: number for number, run in enumerate(snapshot.runs)}
    mine = [cell for cell in snapshot.cells if cell.platform == rule.id]
    mine.sort(key=lambda cell: (order.get(cell.run, -1), cell.run, cell.id))
    newest = {cell.environment: cell for cell in mine}
    asked = [each for each in policy.spec.jobs if each.on == "all" or rule.id in each.on]
    rest = JobRule(id="*", on=(rule.id,), level=rule.level)
    return PlatformEvidence(rule, tuple(newest[name] for name in sorted(newest)), (*asked, rest))


def _failing(ruled_job: RuledJob) -> Iterator[FailingResult]:
    yield from failing_results(ruled_job.cell, ruled_job.job, blocking=ruled_job.blocking)
    yield from failures_over(ruled_job.cell, ruled_job.job, blocking=ruled_job.blocking)


AHEAD = timedelta(days=1)
"""Maximum time that evidence may be dated ahead, because a date has no time zone."""


def doubts(context: RuleContext, platform: PlatformEvidence, cell: CellEvidence) -> Iterator[str]:
    """Yield sentences about why the cell's evidence does not count; none if it counts."""
    yield from age_doubts(context, cell)
    yield from identity_doubts(context, platform, cell)


def age_doubts(context: RuleContext, cell: CellEvidence) -> Iterator[str]:
    """Yield sentences about the age of evidence; none if it is as new as the policy requires.

    It may be unfinished, stale, dated ahead, undated, or reused against the policy.
    """
    if not is_over(cell):
        yield f"{cell.id} is not over"
        return
    limit = duration(context.policy.spec.evidence.max_age)
    yield from _age(cell.id, cell.ended_at, context.now, limit)
    for job in sorted(cell.jobs, key=lambda job: job.id):
        if job.reused_from:
            yield from _age(f"{job.id}, reused from {job.reused_from},", job.at, context.now, limit)
            if context.policy.spec.evidence.reuse == "refused":
                yield f"{job.id} is reused from {job.reused_from}, and fresh runs are asked for"


def identity_doubts(
    context: RuleContext, platform: PlatformEvidence, cell: CellEvidence
) -> Iterator[str]:
    """Yield sentences about the origin of evidence.

    It may be simulated, not attested, of another machine or subject, or from Seatrial's own
    environment.
    """
    if cell.simulated:
        yield f"{cell.id} is simulated"
    if cell.mismatch:
        yield f"{cell.id} is not what was asked for: {cell.mismatch}"
    if cell.other_subject:
        name, version = cell.subject.get("name", ""), cell.subject.get("version", "")
        yield (
            f"{cell.id} had {name} {cell.other_subject} installed, while the payload itself is the"
            f" subject, {name} {version}: its jobs may have imported either; take {name} out of the"
            " interpreter, or name a wheel in the matrix (`subject.wheel`)"
        )
    if cell.own_environment and context.policy.spec.evidence.own_environment == "refused":
        yield f"{cell.id} ran among Seatrial's own packages, and an environment of its own is asked"
    allowed = context.policy.spec.evidence.attestation == "optional"
    told = cell.attested or (is_unavailable(cell) and not cell.ingested)
    if not told and not (cell.ingested and allowed):
        who = "others produced it" if cell.ingested else "nothing proves what it ran on"
        yield f"{cell.id} is not attested: {who}"
    if not is_unavailable(cell):
        yield from _instance(platform, cell, allowed=cell.ingested and allowed)


def _instance(platform: PlatformEvidence, cell: CellEvidence, *, allowed: bool) -> Iterator[str]:
    wanted, found = platform.rule.instance, cell.instance_type
    if wanted and found != wanted and (found or not allowed):
        yield f"{cell.id} ran on {found or 'an unknown instance type'}, not on {wanted}"


def _age(what: str, at: datetime | None, now: datetime, limit: timedelta) -> Iterator[str]:
    if at is None:
        yield f"{what} has no time"
    elif now - at > limit:
        yield f"{what} is {age_sentence(now - at)} old"
    elif at - now > AHEAD:
        yield f"{what} is dated {age_sentence(at - now)} ahead"


def age_sentence(age: timedelta) -> str:
    """Return an age in words: ``36 hours``, ``12 days``."""
    hours = int(age.total_seconds() // 3600)
    return counted(hours, "hour") if hours <= 72 else counted(hours // 24, "day")
