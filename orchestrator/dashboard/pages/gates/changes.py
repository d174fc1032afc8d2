"""What changed from one verdict of a line to the next."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from orchestrator.domain.gate.quantities import some
from orchestrator.domain.gate.verdict import RuleOutcome


class Ruled(Protocol):
    """A rule with its outcome."""

    @property
    def id(self) -> str:
        """Its id."""
        ...

    @property
    def blocking(self) -> bool:
        """Whether it can stop a release."""
        ...

    @property
    def outcome(self) -> RuleOutcome:
        """What it came to."""
        ...


_BADNESS = (
    RuleOutcome.OK,
    RuleOutcome.TOLERATED,
    RuleOutcome.WAIVED,
    RuleOutcome.UNKNOWN,
    RuleOutcome.VIOLATED,
)


@dataclass(frozen=True, slots=True)
class Change:
    """A blocking rule that says something else than before."""

    rule: str
    before: RuleOutcome | None
    """None where it did not block."""
    now: RuleOutcome | None
    was_there: bool = True
    is_there: bool = True
    """Whether there is such a rule at all: one that only informs blocks nothing."""

    @property
    def before_words(self) -> str:
        """For where it did not block."""
        return "only informed" if self.was_there else "was not there"

    @property
    def now_words(self) -> str:
        """For where it does not block."""
        return "only informs" if self.is_there else "is gone"

    @property
    def is_worse(self) -> bool:
        """Whether a release is further away by it."""
        return _badness(self.now) > _badness(self.before)


def changes(before: Sequence[Ruled], now: Sequence[Ruled]) -> list[Change]:
    """Blocking rules with another outcome, the worse ones first."""
    old, new = _blocking(before), _blocking(now)
    were, are = {rule.id for rule in before}, {rule.id for rule in now}
    found = [
        Change(rule, old.get(rule), new.get(rule), rule in were, rule in are)
        for rule in sorted({*old, *new})
        if old.get(rule) is not new.get(rule)
    ]
    return sorted(found, key=lambda one: (not one.is_worse, one.rule))


def in_words(found: Sequence[Change]) -> str:
    """``2 worse: job/a, job/b; 1 better: cost``."""
    worse = [one.rule for one in found if one.is_worse]
    better = [one.rule for one in found if not one.is_worse]
    told = [f"{len(worse)} worse: {some(worse, 2)}"] if worse else []
    told += [f"{len(better)} better: {some(better, 2)}"] if better else []
    return "; ".join(told) or "no blocking rule changed"


def _blocking(rules: Iterable[Ruled]) -> Mapping[str, RuleOutcome]:
    return {rule.id: rule.outcome for rule in rules if rule.blocking}


def _badness(outcome: RuleOutcome | None) -> int:
    return 0 if outcome is None else _BADNESS.index(outcome)
