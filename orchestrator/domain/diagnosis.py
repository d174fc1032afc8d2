"""Diagnosed tests: failing tests that ran again, with root cause and retests."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from orchestrator.domain.extend_record import filled
from orchestrator.domain.retests import Retest, RetestKind, Tally, key_of, tally_words
from orchestrator.domain.root_cause import Attribution, RootCause

_TOLD = (RetestKind.RERUN, RetestKind.BASELINE, RetestKind.LAST_GREEN)
"""A bisection reports its own steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetestTally:
    """Outcomes of a test's retests with the same change."""

    kind: RetestKind
    changed: str
    """The change, for a person; empty without one."""
    whole: bool
    """Whether its whole job ran again."""
    outcomes: tuple[str, ...]

    def __str__(self) -> str:
        return f"{_went(tally_words(self.outcomes))} {self._how}"

    @property
    def _how(self) -> str:
        if self.kind is RetestKind.BASELINE:
            return f"with the baseline {self.changed}"
        if self.kind is RetestKind.LAST_GREEN:
            return "with the packages of the last green run"
        return "in its whole job again" if self.whole else "again"


@dataclass(frozen=True, slots=True, kw_only=True)
class DiagnosedTest:
    """One failing test of a cell with its root cause."""

    cell: str
    job: str
    nodeid: str
    """Empty for a command job."""
    answer: RootCause
    sentence: str
    """The deciding evidence."""
    evidence: tuple[str, ...]
    """All evidence."""
    again: tuple[RetestTally, ...]

    @property
    def tried(self) -> str:
        """``failed 4 of 4 again; passed 4 of 4 with the baseline torchbridge 0.4.5``."""
        return "; ".join(map(str, self.again))


def diagnosed_of(
    cell: str, blames: Iterable[Attribution], retests: Iterable[Retest]
) -> tuple[DiagnosedTest, ...]:
    """Return the tests of a cell that were retested at least once."""
    told = [retest for retest in retests if retest.kind in _TOLD]
    found = (
        filled(DiagnosedTest, one, cell=cell, again=_again(key_of(one.job, one.nodeid), told))
        for one in blames
    )
    return tuple(one for one in found if one.again)


def _again(key: str, retests: Iterable[Retest]) -> tuple[RetestTally, ...]:
    """Group retests by their change, in the order of the first retest."""
    words: dict[tuple[RetestKind, bool, str], list[str]] = {}
    for retest in retests:
        if key in retest.outcomes:
            kind = (retest.kind, retest.whole, retest.changed)
            words.setdefault(kind, []).append(retest.outcomes[key])
    return tuple(
        RetestTally(kind=kind, changed=changed, whole=whole, outcomes=tuple(each))
        for (kind, whole, changed), each in words.items()
    )


def _went(found: Tally) -> str:
    if found.passed == found.total:
        return f"passed {found.passed} of {found.total}"
    said = f"failed {found.failed} of {found.total}"
    return f"{said} (not run in {found.other})" if found.other else said
