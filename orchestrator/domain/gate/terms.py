"""What an exception, a waiver or an approval must be to count, by the version of the rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from orchestrator.domain.person import name_fault, person_key


@dataclass(frozen=True, slots=True)
class Terms:
    """Whose word counts."""

    person: Callable[[str], str]
    """What tells one person from another."""
    name_fault: Callable[[str], str]
    """Why nobody can be called so; empty where somebody can."""
    signed: bool
    """Only what somebody said with a token of their own counts, not a name that was typed."""

    def is_same(self, one: str, other: str) -> bool:
        """Whether two names are the same person's."""
        return self.person(one) == self.person(other)


def _trimmed(name: str) -> str:
    return name.strip().casefold()


def _unnamed(name: str) -> str:
    return "" if name.strip() else "must not be empty"


TERMS_BY_VERSION: Mapping[int, Terms] = {
    1: Terms(person=_trimmed, name_fault=_unnamed, signed=False),
    2: Terms(person=person_key, name_fault=name_fault, signed=True),
}
"""A stored verdict is replayed by those that it was made with."""
