"""Conditions under which exceptions, waivers and approvals count, by rules version."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import date, timedelta

from orchestrator.domain.caller_identity import name_fault, person_key
from orchestrator.domain.gate.policy import (
    LONGEST_EXCEPTION_TEXT,
    GatePolicy,
    counted,
    duration,
)


@dataclass(frozen=True, slots=True)
class ExemptionTerms:
    """Which approvals count, and for how long an exception may last."""

    person: Callable[[str], str]
    """Return the identity that distinguishes persons."""
    name_fault: Callable[[str], str]
    """Return why a name is not acceptable; empty if it is."""
    signed: bool
    """Whether only signatures by a person's own token count, not typed names."""

    ages: bool
    """Whether the policy's `exception_max_age` limits everything."""
    approved: bool
    """Whether an excuse by one person alone needs an approval, where the policy does not say."""
    explained: bool
    """Whether sentences name approvers who do not count and the command that approves; and, for a
    quarantined test without evidence, the run in which it failed.
    """
    bound: bool
    """Whether a waiver excuses only what failed when it was requested, and an exception only what
    it lists.
    """

    def age_fault(self, policy: GatePolicy, opened: date, today: date) -> str:
        """Return why an excuse opened that day does not count today; empty if the excuse counts."""
        if not self.ages:
            return ""
        if opened > today:
            return f"it is opened later, on {opened.isoformat()}"
        age, longest = today - opened, longest_exception(policy)
        if age <= longest:
            return ""
        return f"it is {counted(age.days, 'day')} old, and {_lasts(longest)}"

    def end_fault(self, policy: GatePolicy, expires: date, today: date) -> str:
        """Return why an excuse that ends that day lasts too long, its start being unknown."""
        left, longest = expires - today, longest_exception(policy)
        if not self.ages or left <= longest:
            return ""
        return f"it ends in {counted(left.days, 'day')}, and {_lasts(longest)}"

    def is_same(self, one: str, other: str) -> bool:
        """Whether two names belong to one person."""
        return self.person(one) == self.person(other)


def _trimmed(name: str) -> str:
    return name.strip().casefold()


def _unnamed(name: str) -> str:
    return "" if name.strip() else "must not be empty"


LONGEST_EXCEPTION = duration(LONGEST_EXCEPTION_TEXT)

"""The default limit."""


def longest_exception(policy: GatePolicy) -> timedelta:
    """Return the longest duration that the policy allows for exceptions of any kind."""
    return duration(policy.spec.exception_max_age)


def _lasts(longest: timedelta) -> str:
    return f"the policy lets exceptions last {counted(longest.days, 'day')} (`exception_max_age`)"


_SECOND = ExemptionTerms(
    person=person_key,
    name_fault=name_fault,
    signed=True,
    ages=True,
    approved=True,
    explained=False,
    bound=False,
)

TERMS_BY_VERSION: Mapping[int, ExemptionTerms] = {
    1: ExemptionTerms(
        person=_trimmed,
        name_fault=_unnamed,
        signed=False,
        ages=False,
        approved=False,
        explained=False,
        bound=False,
    ),
    2: _SECOND,
    3: replace(_SECOND, explained=True, bound=True),
}

"""Terms by rules version. A stored verdict is replayed with its own; version 3 changes until it is
released, as `RULES_BY_VERSION` says.
"""
