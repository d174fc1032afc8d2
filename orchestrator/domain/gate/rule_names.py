"""Ids of rules: which a policy can give rise to, and which of them may be waived."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.domain.gate.policy import GatePolicy
from orchestrator.domain.gate.quantities import like
from orchestrator.domain.manifest import IDENTIFIER
from orchestrator.domain.problems import nearest

ALONE = ("new_failures", "cost")
_OF_PLATFORM = ("platform", "substitute", "skips")
_OF_CELL = ("missing", "subject_loaded")
_OF_JOB = (
    "job",
    "flaky",
    "nothing_passed",
    "degraded",
    "test_set",
    "selection",
    "changed_tests",
    "performance",
)
_NEVER = {
    "evidence": "nothing makes up for evidence that is not there",
    "subject": "a verdict is about one subject",
    "payload_level": "whoever read the payload says so: `seatrial gate review DIGEST`",
    "freshness": "nothing makes old evidence new: run it again",
    "attestation": "unattested evidence counts where `attestation` says so, and nowhere else",
    "hardware": "say in `platforms[].expect` what the platform's machines are",
    "approval": "people approve, or they do not",
    "flaky": "it only informs; the rule of the job is what fails, or `flaky/JOB@PLATFORM`",
    "known_issue": "it only informs",
    "quarantine": "it only informs",
}


def rule_fault(rule: str, policy: GatePolicy) -> str:
    """Why an exception or a waiver cannot be for this rule; empty where it can."""
    kind, _, rest = rule.partition("/")
    if kind in _NEVER and not (kind in _OF_JOB and rest):
        return f"nothing waives {rule!r}: {_NEVER[kind]}"
    platforms = [each.id for each in policy.spec.platforms]
    if rule in ALONE:
        return _alone_fault(rule, policy)
    if kind in (*_OF_PLATFORM, *_OF_CELL, *_OF_JOB) and rest:
        return _place_fault(kind, rest, platforms, policy)
    return f"there is no rule {rule!r}{nearest(rule, _examples(platforms))}"


def _alone_fault(rule: str, policy: GatePolicy) -> str:
    has = getattr(policy.spec, rule) is not None
    return "" if has else f"the policy has no rule {rule!r}"


def _place_fault(kind: str, rest: str, platforms: Sequence[str], policy: GatePolicy) -> str:
    what, at, place = rest.rpartition("@")
    if kind not in _OF_JOB:
        name = place.partition(".")[0] if kind in _OF_CELL else place
        return (
            ""
            if name in platforms
            else f"the policy names no platform {name!r}" + nearest(name, platforms)
        )
    if kind == "performance":
        return _performance_fault(what, at, place, platforms, policy)
    name = place.partition(".")[0]
    if not at or not IDENTIFIER.fullmatch(what.replace("*", "x")):
        return f"say of which job and platform: {kind}/JOB@{platforms[0] if platforms else 'ID'}"
    if name in platforms:
        return ""
    return f"the policy names no platform {name!r}{nearest(name, platforms)}"


def _performance_fault(
    what: str, at: str, place: str, platforms: Sequence[str], policy: GatePolicy
) -> str:
    rule = policy.spec.performance
    if rule is None:
        return "the policy has no rule of performance"
    if not at:
        matches = [budget.match for budget in rule.budgets]
        return "" if place in matches else f"there is no budget {place!r}{nearest(place, matches)}"
    name = place.partition(".")[0]
    if name not in platforms:
        return f"the policy names no platform {name!r}{nearest(name, platforms)}"
    jobs = [budget.match.partition("/")[0] for budget in rule.budgets]
    if any(like(job, what.partition("/")[0]) for job in jobs):
        return ""
    return f"no budget is for {what!r}"


def _examples(platforms: Sequence[str]) -> list[str]:
    kinds = (*_OF_PLATFORM, *_OF_CELL)
    return [*ALONE, *(f"{kind}/{name}" for kind in kinds for name in platforms)]
