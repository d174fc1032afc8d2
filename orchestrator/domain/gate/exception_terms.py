"""What an exception, a waiver or an approval must be to count, by the version of the rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import date, timedelta

from orchestrator.domain.caller_identity import name_fault, person_key
from orchestrator.domain.gate.policy import LONGEST_EXCEPTION_TEXT, GatePolicy
from orchestrator.domain.gate.policy_values import counted, duration


@dataclass(frozen=True, slots=True)
class ExcuseTerms:
    """Whose word counts, and for how long."""

    person: Callable[[str], str]
    """What tells one person from another."""
    name_fault: Callable[[str], str]
    """Why nobody can be called so; empty where somebody can."""
    signed: bool
    """Only what somebody said with a token of their own counts, not a name that was typed."""

    ages: bool
    """Nothing counts for longer than the policy's `exception_max_age`."""
    approved: bool
    """What one person alone excused needs an approval, where the policy says nothing of any."""
    explained: bool
    """Sentences name the approvers who do not count and the command that approves. For a test in
    quarantine that the evidence lacks, they name the run in which it failed."""
    bound: bool
    """A waiver excuses only what failed when it was requested; an exception only what it names."""

    def age_fault(self, policy: GatePolicy, opened: date, today: date) -> str:
        """Why what was opened on that day does not count today; empty where it does."""
        if not self.ages:
            return ""
        if opened > today:
            return f"it is opened later, on {opened.isoformat()}"
        age, longest = today - opened, longest_exception(policy)
        if age <= longest:
            return ""
        return f"it is {counted(age.days, 'day')} old, and {_lasts(longest)}"

    def end_fault(self, policy: GatePolicy, expires: date, today: date) -> str:
        """Why what ends on that day lasts too long; its beginning is not known."""
        left, longest = expires - today, longest_exception(policy)
        if not self.ages or left <= longest:
            return ""
        return f"it ends in {counted(left.days, 'day')}, and {_lasts(longest)}"

    def is_same(self, one: str, other: str) -> bool:
        """Whether two names are the same person's."""
        return self.person(one) == self.person(other)


def _trimmed(name: str) -> str:
    return name.strip().casefold()


def _unnamed(name: str) -> str:
    return "" if name.strip() else "must not be empty"


LONGEST_EXCEPTION = duration(LONGEST_EXCEPTION_TEXT)
"""Where no policy says otherwise."""


def longest_exception(policy: GatePolicy) -> timedelta:
    """How long the policy lets an exception of any kind last."""
    return duration(policy.spec.exception_max_age)


def _lasts(longest: timedelta) -> str:
    return f"the policy lets exceptions last {counted(longest.days, 'day')} (`exception_max_age`)"


_SECOND = ExcuseTerms(
    person=person_key,
    name_fault=name_fault,
    signed=True,
    ages=True,
    approved=True,
    explained=False,
    bound=False,
)
TERMS_BY_VERSION: Mapping[int, ExcuseTerms] = {
    1: ExcuseTerms(
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
"""A stored verdict is replayed by those that it was made with; version 3 still changes until it is
released, as `RULES_BY_VERSION` says."""
