"""Platforms: each that the policy names was tried, and its run is over."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.domain.gate.evidence_trust import doubts
from orchestrator.domain.gate.policy import PlatformRule, Substitute
from orchestrator.domain.gate.quantities import counted, some
from orchestrator.domain.gate.rule_context import (
    PlatformEvidence,
    RuleContext,
    is_over,
    is_unavailable,
    platform_evidence,
)
from orchestrator.domain.gate.rules.rule_results import worst
from orchestrator.domain.gate.snapshot import CellEvidence
from orchestrator.domain.gate.verdict import RuleOutcome, RuleResult
from orchestrator.domain.outcome import Counts, Outcome

_UNAVAILABLE = {
    "fail": RuleOutcome.VIOLATED,
    "exception": RuleOutcome.VIOLATED,
    "inconclusive": RuleOutcome.UNKNOWN,
    "advisory": RuleOutcome.UNKNOWN,
}
_WRONG = (Outcome.FAILED, Outcome.TIMED_OUT)


def platforms(case: RuleContext) -> Iterator[RuleResult]:
    """One result per platform, and one per substitute that is needed."""
    for stand in case.stands:
        yield _platform(stand)
        unavailable = any(is_unavailable(cell) for cell in stand.cells)
        substitute = stand.rule.when_unavailable.substitute
        if unavailable and substitute is not None:
            yield _substitute(case, stand, substitute)


def _platform(stand: PlatformEvidence) -> RuleResult:
    rule = stand.rule
    if not stand.cells:
        return RuleResult(
            id=f"platform/{rule.id}",
            kind="platform",
            blocking=rule.level == "blocking",
            outcome=RuleOutcome.UNKNOWN,
            sentence=f"There is no evidence of {rule.id}: no run was asked for it.",
            inputs={"cells": []},
            waivable=False,
        )
    told = [_cell(stand, cell) for cell in stand.cells]
    return RuleResult(
        id=f"platform/{rule.id}",
        kind="platform",
        blocking=any(stand.blocking(cell) for cell in stand.cells),
        outcome=worst(outcome for outcome, _ in told),
        sentence=" ".join(sentence for _, sentence in told),
        inputs={"cells": [_inputs(cell) for cell in stand.cells]},
    )


def _cell(stand: PlatformEvidence, cell: CellEvidence) -> tuple[RuleOutcome, str]:
    why = ": ".join(word for word in (cell.reason, cell.detail) if word) or "no reason is recorded"
    if not is_over(cell):
        return RuleOutcome.UNKNOWN, f"{cell.id} is not over: it is {cell.state}."
    if is_unavailable(cell):
        outcome = _UNAVAILABLE[stand.rule.when_unavailable.verdict]
        return outcome, f"{cell.id} was not available ({why})."
    if cell.outcome in (Outcome.ERRORED, Outcome.CANCELLED, Outcome.NOT_RUN):
        word = cell.outcome.value if cell.outcome else ""
        return (
            RuleOutcome.UNKNOWN,
            f"{cell.id} ended {word} ({why}): the subject was not tested to the end.",
        )
    if not _is_explained(cell):
        sentence = f"{cell.id} is {cell.outcome} ({why}), and none of its jobs says so."
        return RuleOutcome.VIOLATED, sentence
    return _in_a_row(stand, cell)


def _is_explained(cell: CellEvidence) -> bool:
    """Whether the jobs, which are judged by themselves, show what the cell says."""
    return cell.outcome not in _WRONG or any(job.outcome in _WRONG for job in cell.jobs)


def _in_a_row(stand: PlatformEvidence, cell: CellEvidence) -> tuple[RuleOutcome, str]:
    wanted, found = stand.rule.consecutive_green, cell.green_streak + 1
    ran = f"{cell.id} ran: {_tests(cell.counts)} in {counted(len(cell.jobs), 'job')}"
    if not cell.jobs:
        return RuleOutcome.UNKNOWN, f"{cell.id} ran no job."
    if wanted > found:
        sentence = f"{ran}; {wanted} green runs in a row are asked for, and this is number {found}."
        return RuleOutcome.UNKNOWN, sentence
    return RuleOutcome.OK, f"{ran}."


def _tests(counts: Counts) -> str:
    judged = counts.passed + counts.failed + counts.error
    return f"{counts.passed} of {counted(judged, 'test')} passed"


def _inputs(cell: CellEvidence) -> dict[str, object]:
    return {
        "cell": cell.id,
        "run": cell.run,
        "state": cell.state,
        "outcome": cell.outcome.value if cell.outcome else "",
        "reason": cell.reason,
        "detail": cell.detail,
        "green_streak": cell.green_streak,
        "tests": {name: number for name, number in cell.counts.as_dict().items() if number},
    }


def _substitute(case: RuleContext, stand: PlatformEvidence, substitute: Substitute) -> RuleResult:
    """It never counts as the platform; but where it is promised, it must have passed."""
    other = platform_evidence(PlatformRule(id=substitute.platform), case.policy, case.snapshot)
    found = {job.id: job.outcome for cell in other.ran for job in cell.jobs}
    names = sorted(substitute.jobs or found)
    failed = [name for name in names if found.get(name) in _WRONG]
    passed = [name for name in names if found.get(name) is Outcome.PASSED]
    doubted = [doubt for cell in other.cells for doubt in doubts(case, other, cell)]
    outcome, said = RuleOutcome.OK, f"{some(names)} passed on {other.rule.id} instead"
    if failed:
        outcome, said = RuleOutcome.VIOLATED, f"{some(failed)} failed on {other.rule.id}"
    elif doubted:
        outcome, said = RuleOutcome.UNKNOWN, some(doubted)
    elif not names or len(passed) < len(names):
        open_ = sorted(set(names) - set(passed))
        outcome = RuleOutcome.UNKNOWN
        said = f"there is no pass of {some(open_) or 'any job'} on {other.rule.id}"
    return RuleResult(
        id=f"substitute/{stand.rule.id}",
        kind="platform",
        blocking=any(stand.blocking(cell) for cell in stand.cells),
        outcome=outcome,
        sentence=f"Where {stand.rule.id} cannot be had: {said}.",
        inputs={"platform": other.rule.id, "jobs": names, "passed": passed, "failed": failed},
    )
