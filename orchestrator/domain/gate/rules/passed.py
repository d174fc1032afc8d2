"""Something passed in every job: what was skipped says nothing."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.domain.gate.quantities import counted
from orchestrator.domain.gate.rule_context import JudgedJob, RuleContext
from orchestrator.domain.gate.verdict import RuleOutcome, RuleResult


def nothing_passed(case: RuleContext) -> Iterator[RuleResult]:
    """One result per job that was had, in which nothing passed and something was passed over."""
    for judged in case.jobs:
        passed, passed_over = _told(judged)
        if passed or not passed_over:
            continue
        what = ", ".join(f"{counted(n, one)} {word}" for (one, word), n in passed_over.items())
        yield RuleResult(
            id=f"nothing_passed/{judged.name}",
            kind="nothing_passed",
            blocking=judged.blocking and judged.rule.nothing_passed == "inconclusive",
            outcome=RuleOutcome.UNKNOWN,
            sentence=f"Nothing of {judged.job.id} passed on {judged.cell.id}: {what}.",
            inputs={
                "tests": {name: n for name, n in judged.job.counts.as_dict().items() if n},
                "checks": dict(judged.job.checks),
                "policy": judged.rule.nothing_passed,
            },
        )


def _told(judged: JudgedJob) -> tuple[int, dict[tuple[str, str], int]]:
    """How much passed, and what was neither passed nor failed."""
    counts, checks = judged.job.counts, judged.job.checks
    passed_over = {
        ("test", "skipped"): counts.skipped,
        ("test", "expected to fail"): counts.xfailed,
        ("test", "passed unexpectedly"): counts.xpassed,
        ("check", "skipped"): checks.get("skipped", 0),
    }
    passed = counts.passed + checks.get("passed", 0)
    return passed, {words: number for words, number in passed_over.items() if number}
