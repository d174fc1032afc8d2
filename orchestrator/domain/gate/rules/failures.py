"""Rules on failures: new ones, flaky ones, and those that are tolerated."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime

from orchestrator.domain.gate.policy import counted, like, some
from orchestrator.domain.gate.rule_context import (
    PlatformEvidence,
    RuleContext,
    RuledJob,
    is_unavailable,
)
from orchestrator.domain.gate.snapshot import NAMELESS, CellEvidence, FailedTest
from orchestrator.domain.gate.tolerance import FLAKY, ToleratedResult
from orchestrator.domain.gate.verdict import RuleOutcome, RuleResult
from orchestrator.domain.units import utc

_MOST_LISTED = 20


def new_failures(context: RuleContext) -> Iterator[RuleResult]:
    """Yield a result if the policy limits new failures.

    It is violated if more failures are new than the policy allows, and otherwise unknown if the
    failures cannot be compared or are incomplete. It counts all jobs on blocking platforms, also
    advisory jobs, because a new failure may stop a release where a known one does not. Tolerated
    failures are not counted.
    """
    rule = context.policy.spec.new_failures
    if rule is None:
        return
    here = [one for one in context.jobs if _is_on_blocking(context, one)]
    results = [
        result
        for one in here
        for result in _of(context, one)
        if result.left and not result.failing.is_of_wrong_subject
    ]
    named = [result.failing.test for result in results if result.failing.test]
    found = sorted({f"{test.job}: {test.nodeid}" for test in named if test.is_new})
    open_ = _incomparable(context, here, results)
    outcome = RuleOutcome.UNKNOWN if open_ else RuleOutcome.OK
    if len(found) > rule.max and context.snapshot.last_green:
        outcome = RuleOutcome.VIOLATED
    said = f"{counted(len(found), 'new failure')}, and {rule.max} allowed"
    yield RuleResult(
        id="new_failures",
        kind="new_failures",
        blocking=rule.level == "blocking",
        outcome=outcome,
        sentence="; ".join([said, *open_]) + ".",
        inputs={
            "new": len(found),
            "max": rule.max,
            "last_green": context.snapshot.last_green,
            "tests": found[:_MOST_LISTED],
            "signatures": sorted({test.signature for test in named if test.is_new})[:_MOST_LISTED],
        },
        failing=dict.fromkeys([*found, *open_], 1),
    )


def flaky(context: RuleContext) -> Iterator[RuleResult]:
    """Yield a result about the tests that failed and passed in a rerun.

    The rules on jobs evaluate the failures.
    """
    rule = context.policy.spec.flaky
    seen = [result for result in context.tolerance.results if result.failing.is_flaky]
    if not seen and not rule.reruns:
        return
    counts = rule.rerun_success == "flaky"
    open_ = [one for one in seen if one.left and one.failing.blocking]
    allowed = [one for one in seen if FLAKY in one.by and one.failing.blocking]
    outcome = RuleOutcome.TOLERATED if allowed else RuleOutcome.OK
    outcome = RuleOutcome.VIOLATED if counts and open_ else outcome
    said = f"{counted(len(seen), 'failed test')} passed when run again"
    more = f"{rule.max} may" if counts else "each stays a failure, as the policy has it"
    yield RuleResult(
        id=FLAKY,
        kind="flaky",
        blocking=False,
        outcome=outcome,
        sentence=f"{said}; {more}." if seen else "No failed test passed when run again.",
        inputs={
            "max": rule.max,
            "reruns": rule.reruns,
            "tests": [
                {
                    "name": f"{one.failing.cell.id} {one.failing.job.id}: {one.failing.name}",
                    "reruns": list(one.failing.test.reruns) if one.failing.test else [],
                    "by": sorted(one.by),
                }
                for one in seen[:_MOST_LISTED]
            ],
            "seen": len(seen),
        },
    )


def failed_first_v2(context: RuleContext) -> Iterator[RuleResult]:
    """Yield a result for each job with failures that do not occur in its last results.

    They occurred in other runs of its subject, or in this run before the suite ran the test again.
    Yield a result for each job, too, that failed in another run and is absent in the cell.
    """
    yield from _failed_in_others(context, lambda test: _test_text(test, test.nodeid))


def _failed_in_others(
    context: RuleContext, text_of: Callable[[FailedTest], str]
) -> Iterator[RuleResult]:
    for judged in context.jobs:
        found = context.tolerance.over_by_job.get((judged.cell.id, judged.job.id), ())
        if found or judged.job.passed_after:
            yield _failed_first(judged, found, text_of)
    for platform in context.platforms:
        for cell in platform.ran:
            yield from _left_out(platform, cell, is_blocking=platform.blocking(cell))


def failed_first(context: RuleContext) -> Iterator[RuleResult]:
    """Yield the results of `failed_first_v2`, also for unavailable platforms, with advice.

    The sentence has the command that approves a change of the payload or that requests a
    waiver.
    """
    gate = context.policy.metadata.name
    ways = (
        " If the test is unreliable: `seatrial quarantine add`. If not the subject but the setup of"
        " that run was wrong, another person approves a waiver that says so: `seatrial gate waive"
        f" {gate}"
    )
    remedy = (
        f" Whoever did not write the change approves it: `seatrial gate approve {gate}`; or test a"
        " new wheel."
    )
    lost = {f"{FLAKY}/{judged.name}" for judged in context.jobs if _has_lost(context, judged)}
    for result in _failed_in_others(context, lambda test: _test_text(test, _called(test))):
        is_asked = "passed_after" in result.inputs
        is_open = result.outcome is not RuleOutcome.TOLERATED
        more = [remedy] if is_asked else []
        more += [_GIVE_UP] if result.id in lost else []
        more += [f"{ways} {result.id}`."] if is_open else []
        yield replace(result, sentence="".join([result.sentence, *more]))
    for platform in context.platforms:
        for cell in platform.cells:
            if is_unavailable(cell):
                is_blocking = platform.rule.level == "blocking"
                yield from _left_out(platform, cell, is_blocking=is_blocking)


_GIVE_UP = (
    " A test that was removed for good, or that may be skipped, is given up by the policy, which"
    " names it in `evidence: {manifest: {removed_tests: [...]}}`."
)


def _has_lost(context: RuleContext, ruled_job: RuledJob) -> bool:
    """Whether a test that failed with another payload is absent or skipped, and not tolerated."""
    found = context.tolerance.over_by_job.get((ruled_job.cell.id, ruled_job.job.id), ())
    return any(one.left and one.failing.test and one.failing.test.payload for one in found)


_HOW_IT_FAILED = {
    "failed, and passed when the suite ran it again": True,
    "failed in another run of the same, and not in this": False,
}
"""How a result that passes here failed, and whether that was in the job's own run."""


def _failed_first(
    ruled_job: RuledJob, tolerated: Sequence[ToleratedResult], text_of: Callable[[FailedTest], str]
) -> RuleResult:
    after = ruled_job.job.passed_after
    left = [one for one in tolerated if one.left]
    by = {name for one in tolerated for name in one.by}
    names = [text_of(one.failing.test) for one in tolerated if one.failing.test]
    passed = [text_of(one) for one in after]
    where, said = f"Of {ruled_job.job.id} on {ruled_job.cell.id}", []
    own = ruled_job.job.run or ruled_job.cell.run
    for how, is_own in _HOW_IT_FAILED.items():
        mine = [one for one in tolerated if (one.run == own) is is_own]
        rest = sum(one.left > 0 for one in mine)
        tests = sorted(text_of(one.failing.test) for one in mine if one.failing.test)
        by_mine = sorted({name for one in mine for name in one.by})
        end = f"{rest} not tolerated" if rest else f"tolerated by {some(by_mine)}"
        if mine:
            said.append(f"{where} {counted(len(mine), 'result')} {how}: {some(tests, 3)}; {end}.")
    if after:
        said.append(
            f"{where} {counted(len(after), 'result')} failed with another payload, and passed with"
            f" this one: {some(sorted(passed), 3)}. {_what_changed(after)}: see whether it was the"
            " test that was wrong."
        )
    return RuleResult(
        id=f"{FLAKY}/{ruled_job.name}",
        kind="failed_first",
        blocking=ruled_job.blocking,
        outcome=RuleOutcome.VIOLATED if left else RuleOutcome.TOLERATED,
        sentence=" ".join(said),
        inputs={
            "failed": len(tolerated),
            "intolerable": len(left),
            "tests": sorted(names)[:_MOST_LISTED],
            **({"passed_after": sorted(passed)[:_MOST_LISTED]} if passed else {}),
        },
        failing={one.failing.name: one.left for one in left},
        by=tuple(sorted(by | {f"payload {one.payload[:12]}" for one in after})),
    )


def _what_changed(after: Sequence[FailedTest]) -> str:
    if not any(one.is_by_version for one in after):
        return "Nothing of the subject changed"
    return (
        "Only one of the runs has a wheel or a commit, so it is not known whether the subject"
        " changed"
    )


def _test_text(test: FailedTest, name: str) -> str:
    gone = f" (payload {test.payload[:12]})" if test.payload else ""
    return f"{name} in {test.run}{gone}"


def _called(test: FailedTest) -> str:
    """Return the test's name; for a result without a name, a description of the result."""
    if test.signature or not test.nodeid.startswith("("):
        return test.nodeid
    return "a result without a name" if test.nodeid == NAMELESS else f"the job itself {test.nodeid}"


def _left_out(
    platform: PlatformEvidence, cell: CellEvidence, *, is_blocking: bool
) -> Iterator[RuleResult]:
    """Yield a result for each job that failed in another run and is absent in the cell.

    Left out are jobs that the policy names itself and jobs that need not run.
    """
    for name, run in sorted(cell.jobs_failed.items()):
        asked = next(each for each in platform.rules if like(each.id, name))
        is_told = asked.id == name and asked is not platform.rules[-1]
        if is_told or asked.require == "pass_if_run":
            continue
        yield RuleResult(
            id=f"{FLAKY}/{name}@{cell.id}",
            kind="failed_first",
            blocking=is_blocking and asked.level == "blocking",
            outcome=RuleOutcome.UNKNOWN,
            sentence=(
                f"{name} failed on {cell.id} in {run} (same subject), and this run has no result"
                " of it."
            ),
            inputs={"run": run},
            failing={name: 1},
        )


def known_issues(context: RuleContext) -> Iterator[RuleResult]:
    """Yield a result for each known issue and quarantine that tolerates failures.

    The rules on jobs evaluate the failures.
    """
    yield from _known_issues(context, utc)


def known_issues_v2(context: RuleContext) -> Iterator[RuleResult]:
    """Yield the results of versions 1 and 2, whose sentences have times in ISO format."""
    yield from _known_issues(context, datetime.isoformat)


def _known_issues(context: RuleContext, time: Callable[[datetime], str]) -> Iterator[RuleResult]:
    used = context.tolerance.used
    for issue in context.tolerance.issues:
        if used.get(issue.id):
            limit = "any number" if issue.max_failures is None else str(issue.max_failures)
            yield RuleResult(
                id=f"known_issue/{issue.id}",
                kind="known_issue",
                blocking=False,
                outcome=RuleOutcome.TOLERATED,
                sentence=(
                    f"{issue.id} ({issue.title}, {issue.owner}) tolerates {used[issue.id]} of "
                    f"{limit}, until {issue.expires}."
                ),
                inputs={
                    "count": used[issue.id],
                    "max": -1 if issue.max_failures is None else issue.max_failures,
                    "owner": issue.owner,
                    "expires": issue.expires.isoformat(),
                    "url": issue.url,
                },
                by=(issue.id,),
            )
    for one in sorted(context.snapshot.quarantines, key=lambda one: one.id):
        if used.get(one.id):
            yield RuleResult(
                id=f"quarantine/{one.id}",
                kind="flaky",
                blocking=False,
                outcome=RuleOutcome.TOLERATED,
                sentence=(
                    f"{one.nodeid} is in quarantine {one.id} ({one.reason}, {one.owner}), "
                    f"until {time(one.expires)}."
                ),
                inputs={"count": used[one.id], "expires": one.expires.isoformat()},
                by=(one.id,),
            )


def _is_on_blocking(context: RuleContext, ruled_job: RuledJob) -> bool:
    levels = {platform.rule.id: platform.rule.level for platform in context.platforms}
    return levels[ruled_job.cell.platform] == "blocking"


def _of(context: RuleContext, ruled_job: RuledJob) -> tuple[ToleratedResult, ...]:
    return tuple(context.tolerance.by_job.get((ruled_job.cell.id, ruled_job.job.id), ()))


def _incomparable(
    context: RuleContext, here: list[RuledJob], results: list[ToleratedResult]
) -> list[str]:
    """Return why the number of new failures is not known, in words."""
    why = []
    if results and not context.snapshot.last_green:
        why.append("there is no green run to compare with")
    unnamed = sum(result.left for result in results if result.failing.test is None)
    if unnamed:
        why.append(f"{counted(unnamed, 'failure')} without a signature cannot be compared")
    gaps = [one.name for one in here if one.job.counts.missing or one.job.counts.not_run]
    never = [one.name for one in here if one.job.outcome is None or _never_ended(one)]
    if gaps or never:
        told = some(sorted({*gaps, *never}))
        why.append(f"not all of {told} is known")
    return why


def _never_ended(ruled_job: RuledJob) -> bool:
    outcome = ruled_job.job.outcome
    return outcome is not None and outcome.value in ("errored", "cancelled", "not_run")
