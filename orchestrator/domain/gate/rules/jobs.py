"""Rules on jobs (required jobs passed, failures are excused) and on the cost limit."""

from __future__ import annotations

import math
import re
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from difflib import get_close_matches

from orchestrator.domain.cell import Cause
from orchestrator.domain.gate.policy import (
    all_counts,
    counted,
    expected_failures,
    is_pattern,
    like,
    some,
)
from orchestrator.domain.gate.rule_context import (
    PlatformEvidence,
    RuleContext,
    RuledJob,
    is_bad,
    is_over,
    policy_outcome,
)
from orchestrator.domain.gate.snapshot import CellEvidence, JobEvidence
from orchestrator.domain.gate.tolerance import FailingResult, ToleratedResult
from orchestrator.domain.gate.verdict import RuleOutcome, RuleResult
from orchestrator.domain.outcome import Counts, Outcome
from orchestrator.domain.units import price


def cost(context: RuleContext) -> Iterator[RuleResult]:
    """Yield a result about the cost of all machines of the evaluated runs."""
    yield from _cost(context, lambda amount: price(amount).removeprefix("$"))


def cost_v2(context: RuleContext) -> Iterator[RuleResult]:
    """Yield the result of versions 1 and 2, whose amounts are rounded to cents."""
    yield from _cost(context, "{:.2f}".format)


def _cost(context: RuleContext, amount: Callable[[Decimal], str]) -> Iterator[RuleResult]:
    rule = context.policy.spec.cost
    if rule is None:
        return
    spent = context.snapshot.cost_usd
    unpriced = context.snapshot.unpriced
    limit = f"the {amount(rule.max_usd)} USD that the policy allows"
    outcome, failing = RuleOutcome.OK, {"USD": math.ceil(spent)}
    sentence = f"The machines cost {amount(spent)} USD, not more than {limit}."
    if spent > rule.max_usd:
        outcome = policy_outcome(rule.on_exceed)
        sentence = f"The machines cost {amount(spent)} USD, more than {limit}."
    elif unpriced:
        outcome, failing = RuleOutcome.UNKNOWN, dict.fromkeys(unpriced, 1)
        sentence = (
            f"Nobody states what {some([*unpriced])} cost: whether it is more than {limit} is"
            f" unknown; the other machines cost {amount(spent)} USD."
        )
    yield RuleResult(
        id="cost",
        kind="cost",
        blocking=rule.on_exceed != "advisory",
        outcome=outcome,
        sentence=sentence,
        inputs={"usd": str(spent), "max_usd": str(rule.max_usd)},
        failing=failing,
    )


MOST_LISTED = 20
"""Maximum number of failing results of a job that a verdict lists; others are only counted."""
MOST_NAMED = 3
"""Maximum number of failing results that a sentence names."""
_FINAL = (Outcome.PASSED, Outcome.FAILED, Outcome.TIMED_OUT)


def jobs(context: RuleContext) -> Iterator[RuleResult]:
    """Yield a result for each job of every cell, and for each required job that is absent."""
    return _jobs(context, _sentence)


def jobs_v2(context: RuleContext) -> Iterator[RuleResult]:
    """Yield the results of versions 1 and 2, whose sentences only name the failures."""
    return _jobs(context, _sentence_v2)


_Sentence = Callable[[RuledJob, Sequence[ToleratedResult], RuleResult], str]


def _jobs(context: RuleContext, sentence: _Sentence) -> Iterator[RuleResult]:
    for platform in context.platforms:
        for judged in platform.jobs:
            found = context.tolerance.by_job.get((judged.cell.id, judged.job.id), ())
            one = _job(judged, found)
            yield replace(one, sentence=sentence(judged, found, one))
        for cell in platform.ran:
            yield from _absent(platform, cell)


def degraded(context: RuleContext) -> Iterator[RuleResult]:
    """Yield a result for each job that passed with a fallback."""
    for judged in context.jobs:
        if judged.job.degraded:
            where, why = f"{judged.job.id} on {judged.cell.id}", judged.job.degraded.rstrip(". ")
            yield RuleResult(
                id=f"degraded/{judged.name}",
                kind="degraded",
                blocking=judged.blocking and judged.rule.degraded == "forbid",
                outcome=RuleOutcome.VIOLATED,
                sentence=f"{where} fell back: {why}.",
                inputs={"degraded": judged.job.degraded, "policy": judged.rule.degraded},
                failing={judged.job.degraded: 1},
            )


def _job(ruled_job: RuledJob, tolerated: Sequence[ToleratedResult]) -> RuleResult:
    job, left = ruled_job.job, sum(result.left for result in tolerated)
    by = sorted({name for result in tolerated for name in result.by})
    open_ = job.counts.missing + job.counts.not_run
    if any(result.left and not result.failing.is_of_wrong_subject for result in tolerated):
        outcome = RuleOutcome.VIOLATED
    elif left or job.outcome not in _FINAL or open_ or not _came_to_its_end(job):
        outcome = RuleOutcome.UNKNOWN
    else:
        outcome = RuleOutcome.TOLERATED if by else RuleOutcome.OK
    return RuleResult(
        id=f"job/{ruled_job.name}",
        kind="job",
        blocking=ruled_job.blocking,
        outcome=outcome,
        sentence="",
        inputs=_inputs(ruled_job, tolerated, left),
        failing=_failing(job, tolerated),
        by=tuple(by),
    )


def _sentence(ruled_job: RuledJob, tolerated: Sequence[ToleratedResult], result: RuleResult) -> str:
    """Return a sentence about the job, its failures that are not tolerated, and where to look."""
    said = [f"{ruled_job.job.id} on {ruled_job.cell.id} {_went(ruled_job, _passed)}"]
    if not is_bad(result):
        return "; ".join([*said, *_failures(tolerated), *_rest(ruled_job)]) + "."
    said += _failures(tolerated, label=_cause)
    said += _rest(
        ruled_job, is_end_stated=any(one.left and one.failing.is_end for one in tolerated)
    )
    run = ruled_job.job.run or ruled_job.cell.run
    return f"{'; '.join(said)}. See `seatrial show {run}`."


_SIGNAL = re.compile(r"signal (\d+)")


def _cause(one: FailingResult) -> str:
    """Return a failure in words.

    Examples are ``t.py::one crashed (SIGSEGV)`` and ``self-report: it printed 'FAILED'``.
    """
    if one.name.startswith("("):
        return _SIGNAL.sub(_signal, one.words.rstrip(": ")) or one.name.strip("()")
    how = one.test.exception if one.test else ""
    if how in ("crashed", "hung"):
        number = _SIGNAL.search(one.job.ending.detail) if one.job.ending else None
        why = f" ({_signal(number)})" if number and how == "crashed" else ""
        return f"{one.name} {how}{why}"
    reason = "" if one.test else one.job.check_reasons.get(one.name, "")
    return f"{one.name}: {reason}" if reason else one.name


def _signal(match: re.Match[str]) -> str:
    known = {int(one): one.name for one in signal.Signals}
    return known.get(int(match[1]), match[0])


def _failing(job: JobEvidence, tolerated: Sequence[ToleratedResult]) -> Mapping[str, int]:
    """Return the failures that are not tolerated, by name; the end of a job has its reason, too."""
    failing: Counter[str] = Counter()
    for result in tolerated:
        one = result.failing
        ended = one.name.startswith("(")
        name = f"{one.name} {one.words}" if ended else one.name or "results without a name"
        failing[name] += result.left
    failing["tests that never reported"] += job.counts.missing + job.counts.not_run
    if job.outcome not in _FINAL:
        failing[f"{job.outcome or 'not over'}: {job.reason}"] += 1
    if not _came_to_its_end(job) and job.ending is not None:
        failing[f"{job.ending.outcome}: {job.ending.reason}"] += 1
    return +failing


def _came_to_its_end(job: JobEvidence) -> bool:
    """Whether the job was not ended from outside, for example by a lost machine."""
    return job.ending is None or job.ending.outcome in _FINAL


def _sentence_v2(
    ruled_job: RuledJob, tolerated: Sequence[ToleratedResult], _result: RuleResult
) -> str:
    said = [f"{ruled_job.job.id} on {ruled_job.cell.id} {_went(ruled_job, _passed_counted)}"]
    return "; ".join([*said, *_failures(tolerated), *_rest(ruled_job)]) + "."


def _rest(ruled_job: RuledJob, *, is_end_stated: bool = False) -> Iterator[str]:
    job = ruled_job.job
    open_ = job.counts.missing + job.counts.not_run
    if job.ending is not None and job.ending.reason != job.reason and not is_end_stated:
        yield f"its tests do not explain its end: {_why(job.ending)}"
    if open_:
        yield f"{counted(open_, 'test')} never reported"
    answers = Counter(row["answer"] for row in _blame(ruled_job))
    if answers:
        told = (f"{answer.replace('_', ' ')} ({n})" for answer, n in sorted(answers.items()))
        yield "root cause: " + ", ".join(told)


def _why(ending: Cause) -> str:
    return f"{ending.reason} ({ending.detail})" if ending.detail else ending.reason


def _name(one: FailingResult) -> str:
    return one.name


def _failures(
    tolerated: Sequence[ToleratedResult], *, label: Callable[[FailingResult], str] = _name
) -> Iterator[str]:
    """Yield the failures, what tolerates them, and the known issues that are used up, in words."""
    left = sum(result.left for result in tolerated)
    used = [f"{number} tolerated by {name}" for name, number in _tolerated(tolerated).items()]
    if left:
        used.append(f"{left} not tolerated" + _named(tolerated, label))
    if used:
        yield f"{sum(result.failing.count for result in tolerated)} failed: {', '.join(used)}"
    exhausted = sorted({name for result in tolerated if result.left for name in result.exhausted})
    if exhausted:
        yield f"{some(exhausted)} would fit, and allows no more"


def _named(tolerated: Sequence[ToleratedResult], label: Callable[[FailingResult], str]) -> str:
    """Return the names of the first failures that are not tolerated, in parentheses."""
    names = sorted({label(r.failing) for r in tolerated if r.left and r.failing.name})
    return f" ({some(names, MOST_NAMED)})" if names else ""


def _passed(counts: Counts) -> str:
    """Return a pass in words: ``passed 5 tests``; with all counts if not every test passed."""
    if counts.passed == counts.collected:
        return f"passed {counted(counts.passed, 'test')}" if counts.passed else "passed"
    return f"passed: {all_counts(counts)}"


def _passed_counted(counts: Counts) -> str:
    judged = counts.passed + counts.failed + counts.error
    went = f"passed {counted(judged, 'test')}" if judged else "passed"
    return went + expected_failures(counts)


def _went(ruled_job: RuledJob, passed: Callable[[Counts], str]) -> str:
    job = ruled_job.job
    if job.outcome is None:
        return "is not over"
    told = job.outcome.value.replace("_", " ")
    went = f"ended {told}" + (f" ({job.reason})" if job.reason else "")
    if job.outcome is Outcome.PASSED:
        went = passed(job.counts)
    reused = f", in run {job.reused_from}, reused" if job.reused_from else ""
    return went + (f", in run {job.run}" if job.run else "") + reused


def _tolerated(tolerated: Sequence[ToleratedResult]) -> Mapping[str, int]:
    total: Counter[str] = Counter()
    for result in tolerated:
        total.update(result.by)
    return dict(sorted(total.items()))


def _inputs(
    ruled_job: RuledJob, tolerated: Sequence[ToleratedResult], left: int
) -> dict[str, object]:
    job = ruled_job.job
    rows = [_row(result) for result in tolerated]
    blame: list[object] = [dict(sorted(row.items())) for row in _blame(ruled_job)[:MOST_LISTED]]
    return {
        "outcome": job.outcome.value if job.outcome else "",
        "reason": job.reason,
        "reused_from": job.reused_from,
        **({"run": job.run} if job.run else {}),
        "tests": {name: number for name, number in job.counts.as_dict().items() if number},
        "failing": sum(result.failing.count for result in tolerated),
        "intolerable": left,
        "tolerated": dict(_tolerated(tolerated)),
        "results": sorted(rows, key=lambda row: (not row["intolerable"], row["name"]))[
            :MOST_LISTED
        ],
        "blame": blame,
    }


def _row(result: ToleratedResult) -> dict[str, object]:
    test = result.failing.test
    return {
        "name": result.failing.name,
        "count": result.failing.count,
        "intolerable": result.left,
        "signature": test.signature if test else "",
        "message": test.message if test else result.failing.words,
        "by": sorted(result.by),
    }


def _blame(ruled_job: RuledJob) -> list[Mapping[str, str]]:
    """Return the root causes of the job's failing tests, or of the command itself."""
    tests, job = {test.nodeid for test in ruled_job.job.failed}, ruled_job.job.id
    rows = [
        row
        for row in ruled_job.cell.blame
        if row.get("job", job if row.get("nodeid") else "") == job
        and (row.get("nodeid") in tests or not row.get("nodeid"))
    ]
    return sorted(rows, key=lambda row: (row.get("nodeid", ""), row.get("answer", "")))


def _absent(platform: PlatformEvidence, cell: CellEvidence) -> Iterator[RuleResult]:
    """Yield a result for each required job that is absent in the cell."""
    seen: set[str] = set()
    for rule in platform.rules[:-1]:
        found = any(like(rule.id, job.id) for job in cell.jobs)
        if found or rule.require == "pass_if_run" or rule.id in seen:
            continue
        seen.add(rule.id)
        what = "no job that fits" if is_pattern(rule.id) else "no evidence of"
        yield RuleResult(
            id=f"job/{rule.id}@{cell.id}",
            kind="job",
            blocking=platform.blocking(cell) and rule.level == "blocking",
            outcome=RuleOutcome.UNKNOWN,
            sentence=(
                f"There is {what} {rule.id} on {cell.id}{'' if is_over(cell) else ' yet'}."
                f"{_near(rule.id, cell)}"
            ),
            inputs={"outcome": "", "jobs": sorted(job.id for job in cell.jobs)},
            waivable=False,
        )


def _near(name: str, cell: CellEvidence) -> str:
    """Return a question that names the most similar job of the cell; empty for a pattern."""
    jobs = [] if is_pattern(name) else [job.id for job in cell.jobs]
    close = get_close_matches(name, sorted(jobs), n=1, cutoff=0.5)
    return f" Is its job {close[0]} meant?" if close else ""
