"""Rule on skips: only accepted reasons, within the limit, and no tests that ran on the baseline.

Expected failures are listed with their reasons; tests that passed on the baseline may not be among
them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from orchestrator.domain.gate.policy import SkipRule, counted, like, some
from orchestrator.domain.gate.rule_context import PlatformEvidence, RuleContext, RuledJob, worst
from orchestrator.domain.gate.snapshot import EXPECTED
from orchestrator.domain.gate.verdict import RuleOutcome, RuleResult

_MOST_LISTED = 20
_MEANT = {"fail": RuleOutcome.VIOLATED, "inconclusive": RuleOutcome.UNKNOWN}


@dataclass(frozen=True, slots=True)
class _Tally:
    """The skipped tests of a platform."""

    reasons: Counter[str]
    """Number of skips by reason; the reason may be empty."""
    other: int
    """Number of skips for reasons that are not accepted."""
    ran_before: list[str]
    """Skipped tests that ran on the baseline, as job and node id; without accepted reasons."""
    absent: Counter[str]
    """Number of skips by reason, if the reason is a missing module of the subject itself."""
    passed_before: Mapping[str, str] = field(default_factory=dict)
    """Tests of `ran_before` that are now expected to fail, with the reason."""
    expected: Counter[str] = field(default_factory=Counter)
    """Number of expected failures by reason; the reason may be empty."""

    @property
    def limited(self) -> int:
        """Number of skips that `max` limits: with an accepted reason, or without a reason."""
        return self.reasons.total() - self.other + self.reasons[""]


def skips(context: RuleContext) -> Iterator[RuleResult]:
    """Yield a result for each platform with skips or a skip rule; without one, defaults apply."""
    return _by_platform(context, _tally_with_expected)


def skips_v2(context: RuleContext) -> Iterator[RuleResult]:
    """Yield the results of version 2, without missing modules and expected failures."""
    return _by_platform(context, _tally_v2)


_Judge = Callable[[RuledJob, str], bool]


_Count = Callable[[SkipRule, list[RuledJob]], _Tally]


def _by_platform(context: RuleContext, count: _Count) -> Iterator[RuleResult]:
    asked = context.policy.spec.skips
    rule = asked or SkipRule()
    for platform in context.platforms:
        tally = count(rule, platform.counting)
        has_any = tally.reasons or tally.ran_before or tally.expected
        if platform.ran and (asked is not None or has_any):
            yield _skips(platform, rule, tally)


def skips_v1(context: RuleContext) -> Iterator[RuleResult]:
    """Yield the results of version 1; there are none if the policy has no skip rule."""
    return skips_v2(context) if context.policy.spec.skips is not None else iter(())


_NOT_IMPORTED = re.compile(r"could not import '([\w.]+)'")
"""Pattern of the message of `pytest.importorskip`."""


def _for_want_of_the_subject(ruled_job: RuledJob, reason: str) -> bool:
    """Whether the missing module is one of the subject's own."""
    found = _NOT_IMPORTED.match(reason)
    names = ruled_job.job.test_set.subject_names
    return found is not None and any(f"{found[1]}.".startswith(f"{name}.") for name in names)


def _never(ruled_job: RuledJob, _reason: str) -> bool:
    return False


def _findings(rule: SkipRule, tally: _Tally) -> Iterator[tuple[RuleOutcome, str]]:
    """Yield (outcome, words) of each finding about skips."""
    limited = tally.reasons.total() if rule.on_other == "counted" else tally.limited
    if rule.max is not None and limited > rule.max:
        yield RuleOutcome.VIOLATED, f"{limited} count, and {rule.max} may"
    if tally.other:
        is_free = rule.on_other == "counted" and rule.max is None
        limit = ", counted without a limit" if is_free else ""
        said = f"{tally.other} for reasons that the policy does not list{limit}"
        yield _MEANT.get(rule.on_other, RuleOutcome.OK), said
    regression = _MEANT.get(rule.on_regression, RuleOutcome.OK)
    skipped = [name for name in tally.ran_before if name not in tally.passed_before]
    if skipped:
        yield regression, f"{len(skipped)} ran on the baseline: {some(skipped, 3)}"
    if tally.passed_before:
        names = [f"{name} ({why or 'no reason'})" for name, why in tally.passed_before.items()]
        said = f"{len(names)} passed on the baseline and may fail now: {some(names, 3)}"
        yield regression, said
    if tally.absent:
        why = some(sorted(tally.absent), 3)
        said = f"{tally.absent.total()} because the subject does not have what they import ({why})"
        yield regression, f"{said}; where that is right, `skips.allow_reasons` says so"


def _skips(platform: PlatformEvidence, rule: SkipRule, tally: _Tally) -> RuleResult:
    findings = list(_findings(rule, tally))
    skipped = f"{platform.rule.id} skipped {counted(tally.reasons.total(), 'test')}"
    if tally.expected:
        whys = some([why or "no reason" for why in sorted(tally.expected)], 3)
        skipped += f"; {tally.expected.total()} failed as expected ({whys})"
    rows = sorted(tally.reasons.items(), key=lambda row: (-row[1], row[0]))
    return RuleResult(
        id=f"skips/{platform.rule.id}",
        kind="skips",
        blocking=platform.rule.level == "blocking",
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
            **(
                {"expected_failures": dict(sorted(tally.expected.items())[:_MOST_LISTED])}
                if tally.expected
                else {}
            ),
        },
        failing={
            **{reason or "skips without a reason": n for reason, n in tally.reasons.items()},
            **dict.fromkeys(tally.ran_before, 1),
        },
    )


def _tally_v2(rule: SkipRule, ruled_jobs: list[RuledJob]) -> _Tally:
    return _tally(rule, ruled_jobs, _never)


def _tally_with_expected(rule: SkipRule, ruled_jobs: list[RuledJob]) -> _Tally:
    tally = _tally(rule, ruled_jobs, _for_want_of_the_subject)
    expected: Counter[str] = Counter()
    for one in ruled_jobs:
        expected.update(one.job.expected_failures)
    passed_before = {
        f"{one.name}: {nodeid}": reason.removeprefix(EXPECTED)
        for one in ruled_jobs
        for reason, nodeids in one.job.newly_skipped.items()
        for nodeid in nodeids
        if reason.startswith(EXPECTED) and not _is_accepted(rule, reason)
    }
    return replace(tally, passed_before=dict(sorted(passed_before.items())), expected=expected)


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
