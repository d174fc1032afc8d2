"""Skips: accepted reasons only, within the limit, and none of tests that ran on the baseline."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from orchestrator.domain.gate.policy import SkipRule, counted, like, some
from orchestrator.domain.gate.rule_context import PlatformEvidence, RuleContext, RuledJob, worst
from orchestrator.domain.gate.verdict import RuleOutcome, RuleResult

_MOST_LISTED = 20
_MEANT = {"fail": RuleOutcome.VIOLATED, "inconclusive": RuleOutcome.UNKNOWN}


@dataclass(frozen=True, slots=True)
class _Tally:
    """Skips of a platform."""

    reasons: Counter[str]
    """Counts by reason; empty for those without."""
    other: int
    """Counts whose reason is not accepted."""
    ran_before: list[str]
    """Of these, tests that ran on the baseline, by job and node id."""
    absent: Counter[str]
    """Of these, counts by reason for a missing module of the subject itself."""

    @property
    def limited(self) -> int:
        """Return the skips that `max` limits: those without a reason count both ways."""
        return self.reasons.total() - self.other + self.reasons[""]


def skips(case: RuleContext) -> Iterator[RuleResult]:
    """Yield a result per platform with skips, or with a skip rule; defaults apply without one."""
    return _by_platform(case, _for_want_of_the_subject)


def skips_v2(case: RuleContext) -> Iterator[RuleResult]:
    """Check skips as in version 2: missing modules of the subject are not special."""
    return _by_platform(case, _never)


_Judge = Callable[[RuledJob, str], bool]


def _by_platform(case: RuleContext, is_absent: _Judge) -> Iterator[RuleResult]:
    asked = case.policy.spec.skips
    rule = asked or SkipRule()
    for stand in case.stands:
        tally = _tally(rule, stand.counting, is_absent)
        if stand.ran and (asked is not None or tally.reasons or tally.ran_before):
            yield _skips(stand, rule, tally)


def skips_v1(case: RuleContext) -> Iterator[RuleResult]:
    """Check skips as in version 1: no result where the policy has no skip rule."""
    return skips_v2(case) if case.policy.spec.skips is not None else iter(())


_NOT_IMPORTED = re.compile(r"could not import '([\w.]+)'")
"""The message of `pytest.importorskip`."""


def _for_want_of_the_subject(ruled_job: RuledJob, reason: str) -> bool:
    """Whether a missing module bears a name of the subject."""
    found = _NOT_IMPORTED.match(reason)
    names = ruled_job.job.test_set.subject_names
    return found is not None and any(f"{found[1]}.".startswith(f"{name}.") for name in names)


def _never(ruled_job: RuledJob, _reason: str) -> bool:
    return False


def _findings(rule: SkipRule, tally: _Tally) -> Iterator[tuple[RuleOutcome, str]]:
    """Yield each finding about skips: its outcome and its words."""
    limited = tally.reasons.total() if rule.on_other == "counted" else tally.limited
    if rule.max is not None and limited > rule.max:
        yield RuleOutcome.VIOLATED, f"{limited} count, and {rule.max} may"
    if tally.other:
        is_free = rule.on_other == "counted" and rule.max is None
        limit = ", counted without a limit" if is_free else ""
        said = f"{tally.other} for reasons that the policy does not list{limit}"
        yield _MEANT.get(rule.on_other, RuleOutcome.OK), said
    regression = _MEANT.get(rule.on_regression, RuleOutcome.OK)
    if tally.ran_before:
        names = some(tally.ran_before, 3)
        yield regression, f"{len(tally.ran_before)} ran on the baseline: {names}"
    if tally.absent:
        why = some(sorted(tally.absent), 3)
        said = f"{tally.absent.total()} because the subject does not have what they import ({why})"
        yield regression, f"{said}; where that is right, `skips.allow_reasons` says so"


def _skips(stand: PlatformEvidence, rule: SkipRule, tally: _Tally) -> RuleResult:
    findings = list(_findings(rule, tally))
    skipped = f"{stand.rule.id} skipped {counted(tally.reasons.total(), 'test')}"
    rows = sorted(tally.reasons.items(), key=lambda row: (-row[1], row[0]))
    return RuleResult(
        id=f"skips/{stand.rule.id}",
        kind="skips",
        blocking=stand.rule.level == "blocking",
        outcome=worst((RuleOutcome.OK, *(outcome for outcome, _ in findings))),
        sentence="; ".join([skipped, *(said for _, said in findings)]) + ".",
        inputs={
            "skips": tally.reasons.total(),
            "other": tally.other,
            "max": -1 if rule.max is None else rule.max,
            "reasons": [
                {"reason": reason, "count": number} for reason, number in rows[:_MOST_LISTED]
            ],
            **({"ran_on_baseline": tally.ran_before[:_MOST_LISTED]} if tally.ran_before else {}),
            **(
                {"absent": dict(sorted(tally.absent.items())[:_MOST_LISTED])}
                if tally.absent
                else {}
            ),
        },
        failing={
            **{reason or "skips without a reason": n for reason, n in tally.reasons.items()},
            **dict.fromkeys(tally.ran_before, 1),
        },
    )


def _tally(rule: SkipRule, ruled_jobs: list[RuledJob], is_absent: _Judge) -> _Tally:
    reasons: Counter[str] = Counter()
    absent: Counter[str] = Counter()
    for one in ruled_jobs:
        for reason, number in one.job.skips.items():
            if number > 0 and is_absent(one, reason) and not _is_accepted(rule, reason):
                absent[reason] += number
        silent = one.job.counts.skipped - sum(one.job.skips.values())
        reasons.update({reason: number for reason, number in one.job.skips.items() if number > 0})
        reasons[""] += max(silent, 0)
    reasons = +reasons
    accepted = sum(n for reason, n in reasons.items() if _is_accepted(rule, reason))
    ran_before = [
        f"{one.name}: {nodeid}"
        for one in ruled_jobs
        for reason, nodeids in one.job.newly_skipped.items()
        for nodeid in nodeids
        if not _is_accepted(rule, reason)
    ]
    return _Tally(reasons, reasons.total() - accepted, sorted(ran_before), absent)


def _is_accepted(rule: SkipRule, reason: str) -> bool:
    return bool(reason) and any(like(pattern, reason) for pattern in rule.allow_reasons)
