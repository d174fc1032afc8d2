"""Rules on test sets: a job has the same tests on all platforms, and none was deselected."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Sized
from dataclasses import replace

from orchestrator.domain.collected_tests import Deselection, SkippedPath
from orchestrator.domain.gate.policy import SkipRule, counted, like, some
from orchestrator.domain.gate.rule_context import RuleContext, RuledJob
from orchestrator.domain.gate.snapshot import JobEvidence
from orchestrator.domain.gate.verdict import RuleOutcome, RuleResult
from orchestrator.domain.outcome import Outcome


def selection(context: RuleContext) -> Iterator[RuleResult]:
    """Yield a result for each job that left out tests, or whose outcomes hooks can change."""
    for judged in context.jobs:
        told = judged.job.test_set
        if told.deselected or told.modules or told.ignored or told.hooks:
            yield _selection(judged, context.policy.spec.skips)


def selection_v2(context: RuleContext) -> Iterator[RuleResult]:
    """Yield the results of version 2, without the numbers of items that are not listed."""
    for result in selection(context):
        inputs = {k: v for k, v in result.inputs.items() if not k.startswith("more_")}
        yield replace(result, inputs=inputs)


def _selection(ruled_job: RuledJob, skips: SkipRule | None) -> RuleResult:
    job = ruled_job.job
    told = job.test_set
    lost = [place for place in _lost(job) if not _is_accepted(place, job, skips)]
    asked = [one for one in told.deselected if one.asked]
    said = [
        *(f"{_deselected(one)}, and the job's arguments do not say so" for one in told.unasked),
        *(f"{_deselected(one)}, as the job's arguments say" for one in asked),
        *(_left_out(place, job) for place in (*told.modules, *told.ignored)),
        *(one.sentence for one in told.hooks),
    ]
    outcome = RuleOutcome.VIOLATED if told.unasked or lost else RuleOutcome.OK
    return RuleResult(
        id=f"selection/{ruled_job.name}",
        kind="selection",
        blocking=ruled_job.blocking,
        outcome=outcome,
        sentence=f"{job.id} on {ruled_job.cell.id}: {some(said)}.",
        inputs={
            "digest": told.digest,
            "collected": told.collected,
            "unasked": sum(one.count for one in told.unasked),
            "asked": sum(one.count for one in asked),
            "lost": sum(job.known_tests.get(place.path, 0) for place in lost),
            "deselected": [_row(one) for one in told.deselected],
            "modules": [{"path": one.path, "why": one.why} for one in told.modules[:_MOST_LISTED]],
            "hooks": [{"name": one.name, "file": one.file} for one in told.hooks[:_MOST_LISTED]],
            "ignored": [{"path": one.path, "why": one.why} for one in told.ignored[:_MOST_LISTED]],
            **_more(modules=told.modules, hooks=told.hooks, ignored=told.ignored),
        },
        failing={
            **{name: 1 for one in told.unasked for name in one.tests},
            **{f"deselected by {one.by}": one.count for one in told.unasked},
            **{place.path: job.known_tests.get(place.path, 0) for place in lost},
        },
    )


def _more(**lists: Sized) -> dict[str, int]:
    """Return the number of items that are not listed, by name, such as ``more_hooks``."""
    left = {name: len(every) - _MOST_LISTED for name, every in lists.items()}
    return {f"more_{name}": many for name, many in left.items() if many > 0}


def _lost(job: JobEvidence) -> list[SkippedPath]:
    """Return the skipped and ignored paths in which the last green run had tests."""
    places = (*job.test_set.modules, *job.test_set.ignored)
    return [place for place in places if job.known_tests.get(place.path, 0)]


def _is_accepted(place: SkippedPath, job: JobEvidence, skips: SkipRule | None) -> bool:
    """Whether the module skipped itself for an accepted reason."""
    patterns = skips.allow_reasons if skips is not None and place in job.test_set.modules else ()
    return any(like(pattern, place.why) for pattern in patterns)


def _deselected(one: Deselection) -> str:
    names = f" ({some(list(one.tests))})" if one.tests else ""
    return f"{one.by} deselected {counted(one.count, 'test')}{names}"


def _left_out(place: SkippedPath, job: JobEvidence) -> str:
    known = job.known_tests.get(place.path, 0)
    before = f", of which the last green run had {counted(known, 'test')}" if known else ""
    if place in job.test_set.modules:
        return f"{place.path} skipped itself as a whole ({place.why}){before}"
    return f"{place.path} was not looked into ({place.why}){before}"


def _row(one: Deselection) -> dict[str, object]:
    tests = list(one.tests[:_MOST_LISTED])
    return {"by": one.by, "count": one.count, "asked": one.asked, "tests": tests}


_MOST_LISTED = 20
_MOST_NAMED = 3
_FINAL = (Outcome.PASSED, Outcome.FAILED, Outcome.TIMED_OUT)


def test_sets(context: RuleContext) -> Iterator[RuleResult]:
    """Yield a result for each job that lacks other platforms' tests or has unknown ones."""
    groups: dict[str, list[RuledJob]] = {}
    for judged in context.jobs:
        if _is_compared(context, judged):
            groups.setdefault(judged.job.id, []).append(judged)
    for group in groups.values():
        if len(group) > 1:
            yield from _compared(group)


def _is_compared(context: RuleContext, ruled_job: RuledJob) -> bool:
    """Whether tests are compared: ingested evidence may count tests without naming them."""
    job = ruled_job.job
    asked = ruled_job.blocking and ruled_job.rule.test_set == "same"
    allowed = context.policy.spec.evidence.attestation == "optional"
    told = bool(job.tests_digest) or not (ruled_job.cell.ingested and allowed)
    return asked and told and job.outcome in _FINAL and bool(job.counts.collected)


def _compared(group: Sequence[RuledJob]) -> Iterator[RuleResult]:
    known = [one for one in group if one.job.tests_digest]
    nowhere = set.intersection(*(set(one.job.tests_lacking) for one in known)) if known else set()
    for one in group:
        lacking = sorted(set(one.job.tests_lacking) - nowhere)
        if lacking or not one.job.tests_digest:
            yield _result(one, lacking, others=[o.cell.id for o in group if o is not one])


def _result(ruled_job: RuledJob, lacking: list[str], *, others: list[str]) -> RuleResult:
    job, where = ruled_job.job, f"{ruled_job.job.id} on {ruled_job.cell.id}"
    outcome = RuleOutcome.VIOLATED
    sentence = (
        f"{where} is {counted(job.counts.collected, 'test')}, without {len(lacking)} of those on"
        f" {some(others)}: {some(lacking, _MOST_NAMED)}."
    )
    if not job.tests_digest:
        outcome = RuleOutcome.UNKNOWN
        sentence = f"Which tests {where} is nobody knows; it is compared with {some(others)}."
    return RuleResult(
        id=f"test_set/{ruled_job.name}",
        kind="test_set",
        blocking=ruled_job.blocking,
        outcome=outcome,
        sentence=sentence,
        inputs={
            "collected": job.counts.collected,
            "digest": job.tests_digest,
            "lacking": len(lacking),
            "tests": lacking[:_MOST_LISTED],
            "others": others,
        },
        failing=dict.fromkeys(lacking if job.tests_digest else ["tests without names"], 1),
    )
