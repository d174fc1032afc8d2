"""Test sets: a job is the same tests wherever the matrix sends it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from orchestrator.domain.gate.quantities import counted, some
from orchestrator.domain.gate.rule_context import JudgedJob, RuleContext
from orchestrator.domain.gate.verdict import RuleOutcome, RuleResult
from orchestrator.domain.outcome import Outcome

_TOLD = 20
_SAID = 3
_FINAL = (Outcome.PASSED, Outcome.FAILED, Outcome.TIMED_OUT)


def test_sets(case: RuleContext) -> Iterator[RuleResult]:
    """One result per job that lacks tests that it has elsewhere, or whose tests are unknown."""
    groups: dict[str, list[JudgedJob]] = {}
    for judged in case.jobs:
        if _is_compared(case, judged):
            groups.setdefault(judged.job.id, []).append(judged)
    for group in groups.values():
        if len(group) > 1:
            yield from _compared(group)


def _is_compared(case: RuleContext, judged: JudgedJob) -> bool:
    """Evidence from elsewhere may count tests without naming them, where it is allowed at all."""
    job = judged.job
    asked = judged.blocking and judged.rule.test_set == "same"
    allowed = case.policy.spec.evidence.attestation == "optional"
    told = bool(job.tests_digest) or not (judged.cell.ingested and allowed)
    return asked and told and job.outcome in _FINAL and bool(job.counts.collected)


def _compared(group: Sequence[JudgedJob]) -> Iterator[RuleResult]:
    known = [one for one in group if one.job.tests_digest]
    nowhere = set.intersection(*(set(one.job.tests_lacking) for one in known)) if known else set()
    for one in group:
        lacking = sorted(set(one.job.tests_lacking) - nowhere)
        if lacking or not one.job.tests_digest:
            yield _result(one, lacking, others=[o.cell.id for o in group if o is not one])


def _result(judged: JudgedJob, lacking: list[str], *, others: list[str]) -> RuleResult:
    job, where = judged.job, f"{judged.job.id} on {judged.cell.id}"
    outcome = RuleOutcome.VIOLATED
    sentence = (
        f"{where} is {counted(job.counts.collected, 'test')}, without {len(lacking)} of those on"
        f" {some(others)}: {some(lacking, _SAID)}."
    )
    if not job.tests_digest:
        outcome = RuleOutcome.UNKNOWN
        sentence = f"Which tests {where} is nobody knows; it is compared with {some(others)}."
    return RuleResult(
        id=f"test_set/{judged.name}",
        kind="test_set",
        blocking=judged.blocking,
        outcome=outcome,
        sentence=sentence,
        inputs={
            "collected": job.counts.collected,
            "digest": job.tests_digest,
            "lacking": len(lacking),
            "tests": lacking[:_TOLD],
            "others": others,
        },
    )
