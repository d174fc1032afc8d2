"""Warnings: exceptions that are over or not needed, and what else a person should tidy up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from orchestrator.domain.gate.exceptions import Excuse
from orchestrator.domain.gate.quantities import counted, some
from orchestrator.domain.gate.rule_context import JudgedJob, RuleContext
from orchestrator.domain.gate.rules.rule_results import is_bad
from orchestrator.domain.gate.snapshot import Quarantine
from orchestrator.domain.gate.verdict import RuleOutcome, RuleResult
from orchestrator.domain.known_issue import IssueState, IssueUse, Ran, uses
from orchestrator.domain.outcome import Outcome


def warnings(
    case: RuleContext, results: Sequence[RuleResult], known: Sequence[Excuse]
) -> tuple[str, ...]:
    """In a fixed order, each once."""
    found = (
        *_issues(case),
        *_quarantines(case),
        *_excuses(case, {result.id: result for result in results}, known),
        *_unnamed_platforms(case),
    )
    return tuple(dict.fromkeys(found))


def _issues(case: RuleContext) -> Iterator[str]:
    """Known issues that are over, and those whose failures are gone."""
    used = case.tolerance.used
    failing = [one.failing for one in case.tolerance.results]
    failures = [one.failure(case.now) for one in failing if one.test]
    ran = [one for stand in case.stands for one in _ran(list(stand.jobs))]
    mine = {one.id for one in case.policy.spec.known_issues}
    for use in uses(case.tolerance.issues, failures, ran, on=case.now.date()):
        fault = case.terms.age_fault(case.policy, use.issue.opened, case.now.date())
        if fault and use.state is not IssueState.EXPIRED:
            if use.issue.id in mine or use.count:
                yield f"{use.issue.id} ({use.issue.title}) does not count: {fault}."
        elif use.state is IssueState.EXPIRED and (use.issue.id in mine or use.count):
            yield _expired(use)
        elif use.state is IssueState.STALE and not used.get(use.issue.id):
            yield (
                f"{use.issue.id} ({use.issue.title}) is a stale exception: what it is about ran, "
                "and nothing failed so. Delete it."
            )


def _expired(use: IssueUse) -> str:
    issue, fitting = use.issue, counted(use.count, "failing result")
    if issue.ended_at is not None:
        return f"{issue.id} was ended by {issue.ended_by or 'a person'}; {fitting} would fit it."
    days = counted(use.expired_days, "day")
    return (
        f"{issue.id} ({issue.title}) expired {days} ago, on {issue.expires}; {fitting} would fit."
    )


def _ran(jobs: list[JudgedJob]) -> Iterator[Ran]:
    for cell in {id(one.cell): one.cell for one in jobs}.values():
        names = tuple(one.job.id for one in jobs if one.cell is cell and _has_run(one))
        version = cell.subject.get("version", "")
        yield Ran(cell.id, cell.platform, version, names, cell.packages)


def _has_run(judged: JudgedJob) -> bool:
    counts = judged.job.counts
    ended = judged.job.outcome in (Outcome.PASSED, Outcome.FAILED, Outcome.TIMED_OUT)
    only = counts.collected == counts.skipped + counts.missing + counts.not_run
    return ended and not (counts.collected and only)


def _quarantines(case: RuleContext) -> Iterator[str]:
    """Those that are over, and whose tests fail."""
    named = {one.failing.test.quarantine for one in case.tolerance.results if one.failing.test}
    for one in sorted(case.snapshot.quarantines, key=lambda one: one.id):
        if one.id in named and one.ended_at is not None:
            yield f"{one.nodeid} fails; its quarantine {one.id} ended: {one.ended_by or 'by hand'}."
        elif one.id in named and case.now >= one.expires:
            days = counted((case.now - one.expires).days, "day")
            yield f"{one.nodeid} fails; its quarantine {one.id} expired {days} ago."
        elif one.id in named and (fault := _age_fault(case, one)):
            yield f"{one.nodeid} fails; its quarantine {one.id} does not count: {fault}."


def _age_fault(case: RuleContext, one: Quarantine) -> str:
    return case.terms.age_fault(case.policy, one.opened.date(), case.now.date())


def _excuses(
    case: RuleContext, results: Mapping[str, RuleResult], known: Sequence[Excuse]
) -> Iterator[str]:
    """Exceptions that do nothing, and waivers that would be needed and do not count."""
    written = {one.id for one in case.policy.spec.exceptions}
    for one in known:
        result = results.get(one.rule)
        needed = result is not None and (is_bad(result) or result.outcome is RuleOutcome.WAIVED)
        if one.fault and (needed or one.id in written):
            yield f"{one.id} does not count: {one.fault}."
        elif needed and result is not None and not result.waivable:
            yield f"{one.id} does not count: nothing can waive {one.rule}."
        elif not needed and one.id in written:
            yield f"{one.id} is not needed: {one.rule} {'is ok' if result else 'says nothing'}."


def _unnamed_platforms(case: RuleContext) -> Iterator[str]:
    named = {rule.id for rule in case.policy.spec.platforms}
    named |= {
        rule.when_unavailable.substitute.platform
        for rule in case.policy.spec.platforms
        if rule.when_unavailable.substitute
    }
    others = sorted({cell.platform for cell in case.snapshot.cells} - named)
    if others:
        yield f"The policy does not name {some(others)}: what ran there is not looked at."
