"""The tests had the subject in hand: somewhere on each platform a suite imported it."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.domain.gate.quantities import some
from orchestrator.domain.gate.rule_context import RuleContext
from orchestrator.domain.gate.verdict import RuleOutcome, RuleResult


def subject_loaded(case: RuleContext) -> Iterator[RuleResult]:
    """One result per cell in which suites ran, and no process of theirs imported the subject."""
    policy = case.policy.spec.evidence.subject_not_loaded
    for stand in case.stands:
        for cell in stand.ran:
            suites = {
                job.id: job.test_set.subject_modules for job in cell.jobs if job.kind == "suite"
            }
            if not suites or any(number != 0 for number in suites.values()):
                continue
            yield RuleResult(
                id=f"subject_loaded/{cell.id}",
                kind="subject_loaded",
                blocking=stand.blocking(cell) and policy == "inconclusive",
                outcome=RuleOutcome.UNKNOWN,
                sentence=(
                    f"No test process of {some(sorted(suites))} on {cell.id} imported anything of"
                    " the subject: what passed there says nothing about it. Where tests use it in"
                    " other processes alone, the policy may say"
                    " `evidence.subject_not_loaded: accepted`."
                ),
                inputs={"suites": sorted(suites), "policy": policy},
            )
