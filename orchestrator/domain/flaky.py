"""Is a test flaky, or broken? What its history says."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import groupby, pairwise

from orchestrator.domain.outcome import TestOutcome

IN_A_ROW = 3
"""So many failures one after the other are a break, not a flake."""
_GOOD = frozenset({TestOutcome.PASSED, TestOutcome.XPASSED})
_BAD = frozenset({TestOutcome.FAILED, TestOutcome.ERROR})
_Z = 1.959963984540054
"""Of the normal distribution, for 95 %."""


@dataclass(frozen=True, slots=True)
class ResultPoint:
    """One result of a test."""

    run: str
    version: str
    """The subject's."""
    platform: str
    outcome: TestOutcome
    earlier: tuple[TestOutcome, ...] = ()
    """Outcomes of its tries before the last one, in the same cell."""


@dataclass(frozen=True, slots=True)
class FlakyEvidence:
    """What the history of a test says of its reliability."""

    passed_on_retry: int
    """Results that failed and passed in the same cell: nothing else had changed. Certain."""
    mixed_versions: int
    """Times that it both failed and passed with one version on one platform."""
    flips: int
    """Changes between passing and failing, on one platform, of failures that did not last."""
    chances: int
    """How many there could have been."""
    results: int
    """Results that passed or failed, without lasting breaks."""
    failures: int
    """Of these, failures that did not last."""
    min_failure_rate: float
    """Lower bound of the rate of such failures, with 95 %: what tests are ranked by."""

    @property
    def is_certain(self) -> bool:
        """It passed on retry."""
        return self.passed_on_retry > 0

    @property
    def flip_rate(self) -> Fraction | None:
        """Changes by possible changes; None where there were none."""
        return Fraction(self.flips, self.chances) if self.chances else None


def flaky_evidence(history: Iterable[ResultPoint]) -> FlakyEvidence:
    """Weigh a test's history.

    Failures that come three or more in a row on a platform are a break and its mending: they are
    left out. Skips, missing and not run tests say nothing.

    Args:
        history: The oldest first.
    """
    goes = [go for go in history if go.outcome in _GOOD | _BAD]
    retried = sum(1 for go in goes if go.outcome in _GOOD and _BAD.intersection(go.earlier))
    flips = chances = judged = failures = 0
    for _, some in groupby(sorted(goes, key=_platform), key=_platform):
        results = _without_breaks([go.outcome in _GOOD for go in some])
        flips += sum(1 for one, other in pairwise(results) if one != other)
        chances += max(len(results) - 1, 0)
        judged += len(results)
        failures += results.count(False)
    rate = wilson_lower(failures + retried, judged)
    return FlakyEvidence(retried, _split(goes), flips, chances, judged, failures, rate)


def _platform(go: ResultPoint) -> str:
    return go.platform


def _split(goes: Sequence[ResultPoint]) -> int:
    """Pairs of version and platform with which it both passed and failed."""
    seen: dict[tuple[str, str], set[bool]] = {}
    for go in goes:
        seen.setdefault((go.version, go.platform), set()).add(go.outcome in _GOOD)
    return sum(1 for both in seen.values() if len(both) > 1)


def _without_breaks(results: Sequence[bool]) -> list[bool]:
    kept: list[bool] = []
    for is_good, some in groupby(results):
        row = list(some)
        if is_good or len(row) < IN_A_ROW:
            kept += row
    return kept


def wilson_lower(hits: int, of: int, z: float = _Z) -> float:
    """The lower bound of a rate, by Wilson's score interval; 0 of nothing."""
    if of <= 0 or hits <= 0:
        return 0.0
    rate = min(hits / of, 1.0)
    middle = rate + z * z / (2 * of)
    spread = z * math.sqrt(rate * (1 - rate) / of + z * z / (4 * of * of))
    return max((middle - spread) / (1 + z * z / of), 0.0)
