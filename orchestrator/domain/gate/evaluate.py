"""The decision of a gate.

It is a pure function: the same policy and evidence always give the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime

from orchestrator.domain.gate.exception_terms import TERMS_BY_VERSION
from orchestrator.domain.gate.exceptions import (
    Exemption,
    apply_exemptions,
    exemptions,
    with_failing,
)
from orchestrator.domain.gate.performance import Statistics
from orchestrator.domain.gate.policy import GatePolicy, counted, some
from orchestrator.domain.gate.policy_checks import warnings
from orchestrator.domain.gate.rule_context import RuleContext, is_bad, rule_context
from orchestrator.domain.gate.rules.approvals import approvals
from orchestrator.domain.gate.rules.changed_tests import changed_tests, changed_tests_v2
from orchestrator.domain.gate.rules.completeness import missing
from orchestrator.domain.gate.rules.credibility import (
    attestation,
    attestation_v2,
    evidence,
    evidence_v2,
    freshness,
    lost_attempts,
    nothing_passed,
    own_environment,
    untested,
)
from orchestrator.domain.gate.rules.failures import (
    failed_first,
    failed_first_v2,
    flaky,
    known_issues,
    known_issues_v2,
    new_failures,
)
from orchestrator.domain.gate.rules.jobs import cost, cost_v2, degraded, jobs, jobs_v2
from orchestrator.domain.gate.rules.payload_level import payload_level
from orchestrator.domain.gate.rules.performance import measured_again, performance, performance_v2
from orchestrator.domain.gate.rules.platforms import (
    hardware,
    hardware_v2,
    platforms,
    platforms_v2,
)
from orchestrator.domain.gate.rules.same_tests import selection, selection_v2, test_sets
from orchestrator.domain.gate.rules.skips import skips, skips_v1, skips_v2
from orchestrator.domain.gate.rules.subject import (
    subject,
    subject_loaded,
    subject_v1,
    undeclared_requirements,
)
from orchestrator.domain.gate.snapshot import Snapshot
from orchestrator.domain.gate.verdict import Decision, RuleOutcome, RuleResult, Verdict

Rule = Callable[[RuleContext], Iterator[RuleResult]]
_FIRST: tuple[Rule, ...] = (
    evidence_v2,
    subject_v1,
    platforms_v2,
    freshness,
    attestation_v2,
    jobs_v2,
    degraded,
    missing,
    skips_v1,
    new_failures,
    flaky,
    known_issues_v2,
    performance_v2,
    cost_v2,
)
_SECOND: tuple[Rule, ...] = (
    evidence_v2,
    subject,
    payload_level,
    platforms_v2,
    freshness,
    attestation_v2,
    hardware_v2,
    jobs_v2,
    nothing_passed,
    subject_loaded,
    degraded,
    missing,
    test_sets,
    selection_v2,
    changed_tests_v2,
    skips_v2,
    new_failures,
    failed_first_v2,
    flaky,
    known_issues_v2,
    performance_v2,
    cost_v2,
)
_LATER: Mapping[Rule, Rule] = {
    evidence_v2: evidence,
    attestation_v2: attestation,
    hardware_v2: hardware,
    platforms_v2: platforms,
    jobs_v2: jobs,
    changed_tests_v2: changed_tests,
    skips_v2: skips,
    failed_first_v2: failed_first,
    known_issues_v2: known_issues,
    cost_v2: cost,
    performance_v2: performance,
    selection_v2: selection,
}
"""Rules of version 2 that were replaced, with their current versions."""
_THIRD = (
    *(_LATER.get(rule, rule) for rule in _SECOND),
    own_environment,
    lost_attempts,
    untested,
    undeclared_requirements,
    measured_again,
)
RULES_BY_VERSION: Mapping[int, tuple[Rule, ...]] = {1: _FIRST, 2: _SECOND, 3: _THIRD}
"""Rules in the order of a verdict's results; none depends on another. A stored verdict is replayed
by the rules that made it, so a rule with other results needs a new version. Version 3 is not
released: until it is, its rules and terms change in place, and tests/golden/verdicts/rules-3
changes with them.
"""
RULES_VERSION = max(RULES_BY_VERSION)
"""Version of the rules that decide new verdicts."""


def evaluate(
    policy: GatePolicy,
    snapshot: Snapshot,
    now: datetime,
    *,
    statistics: Statistics,
    policy_digest: str,
    evidence_digest: str,
    tool: str,
    rules_version: int = RULES_VERSION,
) -> Verdict:
    """Evaluate a policy against evidence.

    Args:
        policy: A policy without problems (`check_policy`).
        snapshot: The frozen evidence.
        now: The time for ages and expiries.
        statistics: Statistical tests on samples.
        policy_digest: Digest of the policy; only stored in the verdict.
        evidence_digest: Digest of the evidence without waivers and approvals, which refer to it.
        tool: The deciding program; only stored in the verdict.
        rules_version: Version of the rules; to replay a stored verdict, its own version.

    Raises KeyError if the program does not know the version.
    """
    context = rule_context(
        policy,
        snapshot,
        now,
        statistics=statistics,
        evidence_digest=evidence_digest,
        terms=TERMS_BY_VERSION[rules_version],
    )
    rules = RULES_BY_VERSION[rules_version]
    found = [with_failing(one, context.terms) for rule in rules for one in rule(context)]
    known = exemptions(context)
    judged = list(apply_exemptions(found, known))
    judged += approvals(context, decision_of(judged), judged, _concerned(known, found))
    decision = decision_of(judged)
    return Verdict(
        gate=policy.metadata.name,
        product=policy.metadata.product,
        decision=decision,
        at=now,
        subject=dict(sorted(snapshot.subject.items())),
        policy_digest=policy_digest,
        evidence_digest=evidence_digest,
        rules=tuple(judged),
        warnings=warnings(context, judged, known),
        summary=summary_of(decision, judged),
        tool=tool,
        rules_version=rules_version,
    )


def _concerned(known: Sequence[Exemption], rule_results: Sequence[RuleResult]) -> list[Exemption]:
    """Return the exceptions and waivers of bad blocking rules, whether they count or not."""
    wrong = {one.id for one in rule_results if one.blocking and is_bad(one)}
    return [one for one in known if one.rule in wrong]


def decision_of(results: Sequence[RuleResult]) -> Decision:
    """Return the decision: that of the worst blocking result. Advisory results do not count."""
    outcomes = {result.outcome for result in results if result.blocking}
    if RuleOutcome.VIOLATED in outcomes:
        return Decision.FAIL
    if RuleOutcome.UNKNOWN in outcomes or not outcomes:
        return Decision.INCONCLUSIVE
    if outcomes - {RuleOutcome.OK}:
        return Decision.PASS_WITH_EXCEPTIONS
    return Decision.PASS


_HANGS_ON = {
    Decision.FAIL: (RuleOutcome.VIOLATED, "violated"),
    Decision.INCONCLUSIVE: (RuleOutcome.UNKNOWN, "open"),
    Decision.PASS_WITH_EXCEPTIONS: (RuleOutcome.TOLERATED, "excused"),
    Decision.PASS: (RuleOutcome.OK, "kept"),
}


def summary_of(decision: Decision, results: Sequence[RuleResult]) -> str:
    """Return one sentence with the decision and its deciding rules."""
    blocking = [result for result in results if result.blocking]
    if decision is Decision.PASS:
        return f"PASS: all {counted(len(blocking), 'blocking rule')} are kept."
    outcome, word = _HANGS_ON[decision]
    wanted = {outcome, RuleOutcome.WAIVED} if outcome is RuleOutcome.TOLERATED else {outcome}
    ids = [result.id for result in blocking if result.outcome in wanted]
    verb = "is" if len(ids) == 1 else "are"
    return f"{decision.value}: {counted(len(ids), 'blocking rule')} {verb} {word}: {some(ids)}."
