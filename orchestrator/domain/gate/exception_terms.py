"""Terms of exceptions, waivers and approvals, by version of the rules."""

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
    """The terms: which approvals count, and how long an exception may last."""

    person: Callable[[str], str]
    """Returns the key of a person's name; names with equal keys are one person."""
    name_fault: Callable[[str], str]
    """Returns why a name is not allowed; empty if it is allowed."""
    signed: bool
    """Whether only approvals with a person's own token count, not typed names."""

    ages: bool
    """Whether the policy's `exception_max_age` limits all kinds of exceptions."""
    approved: bool
    """Whether an exception by one person alone needs an approval if the policy has no rule on it.
    """
    explained: bool
    """Whether sentences name approvers who do not count, the command that approves, and the run in
    which a quarantined test failed."""
    bound: bool
    """Whether a waiver only excuses what failed when it was requested, and an exception only what
    it lists."""

    def age_fault(self, policy: GatePolicy, opened: date, today: date) -> str:
        """Return why an exception opened on that day does not count; empty if it counts."""
        if not self.ages:
            return ""
        if opened > today:
            return f"it is opened later, on {opened.isoformat()}"
        age, longest = today - opened, longest_exception(policy)
        if age <= longest:
            return ""
        return f"it is {counted(age.days, 'day')} old, and {_lasts(longest)}"

    def end_fault(self, policy: GatePolicy, expires: date, today: date) -> str:
        """Return why an exception lasts too long, by its last day alone; empty if it does not."""
        left, longest = expires - today, longest_exception(policy)
        if not self.ages or left <= longest:
            return ""
        return f"it ends in {counted(left.days, 'day')}, and {_lasts(longest)}"

    def is_same(self, one: str, other: str) -> bool:
        """Whether two names belong to the same person."""
        return self.person(one) == self.person(other)


def _trimmed(name: str) -> str:
    return name.strip().casefold()


def _unnamed(name: str) -> str:
    return "" if name.strip() else "must not be empty"


LONGEST_EXCEPTION = duration(LONGEST_EXCEPTION_TEXT)

"""The default of `exception_max_age`."""


def longest_exception(policy: GatePolicy) -> timedelta:
    """Return the maximum duration of exceptions of all kinds, by the policy."""
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
