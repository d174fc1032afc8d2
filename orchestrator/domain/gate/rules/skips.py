"""Skips: their reasons are accepted, and there are not too many of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from orchestrator.domain.gate.case import Case, JudgedJob, Stand
from orchestrator.domain.gate.policy import SkipRule
from orchestrator.domain.gate.quantities import counted, like
from orchestrator.domain.gate.rules.result import meant, worst
from orchestrator.domain.gate.verdict import RuleOutcome, RuleResult

_TOLD = 20


@dataclass(frozen=True, slots=True)
class _Tally:
    """The skips of a platform."""

    reasons: Counter[str]
    """Those without a reason under the empty one."""
    other: int
    """Whose reason is not accepted."""

    @property
    def limited(self) -> int:
        """What `max` is about: skips that say nothing count as accepted and as other ones."""
        return self.reasons.total() - self.other + self.reasons[""]


def skips(case: Case) -> Iterator[RuleResult]:
    """Per platform; jobs that only inform take no part."""
    rule = case.policy.spec.skips
    for stand in case.stands if rule is not None else ():
        if rule is not None and stand.ran:
            yield _skips(stand, rule)


def _skips(stand: Stand, rule: SkipRule) -> RuleResult:
    tally = _tally(rule, stand.counting)
    outcomes = [RuleOutcome.OK]
    said = [f"{stand.rule.id} skipped {counted(tally.reasons.total(), 'test')}"]
    if rule.max is not None and tally.limited > rule.max:
        outcomes.append(RuleOutcome.VIOLATED)
        said.append(f"{tally.limited} count, and {rule.max} may")
    if tally.other:
        if rule.on_other != "informing":
            outcomes.append(meant(rule.on_other))
        said.append(f"{tally.other} for a reason that the policy does not accept")
    rows = sorted(tally.reasons.items(), key=lambda row: (-row[1], row[0]))
    return RuleResult(
        id=f"skips/{stand.rule.id}",
        kind="skips",
        blocking=stand.rule.level == "blocking",
        outcome=worst(outcomes),
        sentence="; ".join(said) + ".",
        inputs={
            "skips": tally.reasons.total(),
            "other": tally.other,
            "max": -1 if rule.max is None else rule.max,
            "reasons": [{"reason": reason, "count": number} for reason, number in rows[:_TOLD]],
        },
    )


def _tally(rule: SkipRule, judged: list[JudgedJob]) -> _Tally:
    reasons: Counter[str] = Counter()
    for one in judged:
        silent = one.job.counts.skipped - sum(one.job.skips.values())
        reasons.update({reason: number for reason, number in one.job.skips.items() if number > 0})
        reasons[""] += max(silent, 0)
    reasons = +reasons
    accepted = sum(n for reason, n in reasons.items() if _is_accepted(rule, reason))
    return _Tally(reasons, reasons.total() - accepted)


def _is_accepted(rule: SkipRule, reason: str) -> bool:
    return bool(reason) and any(like(pattern, reason) for pattern in rule.allow_reasons)
