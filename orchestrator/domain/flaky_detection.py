"""Tests that cannot make up their minds: how that shows, and the two results that prove it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from orchestrator.domain.failures import FailureClass
from orchestrator.domain.flaky import IN_A_ROW, FlakyEvidence, ResultPoint, flaky_evidence
from orchestrator.domain.outcome import TestOutcome

FLIPS = 4
"""So many changes between passing and failing in one place are no break and its mending."""
_GOOD = frozenset({TestOutcome.PASSED, TestOutcome.XPASSED})
_BAD = frozenset({TestOutcome.FAILED, TestOutcome.ERROR})


class FlakySignal(StrEnum):
    """How it shows, the surest first."""

    RETRIED = "retried"
    """It failed and passed in one cell: nothing else had changed."""
    SPLIT = "split"
    """It failed and passed with one version on one platform."""
    FLIPS = "flips"
    """It keeps changing, with versions that change too."""


class FailureOrigin(StrEnum):
    """Whose its failures probably are."""

    INFRA = "infra"
    """The machine's, or what is installed on it."""
    TEST = "test"
    """The test's or the product's."""
    BOTH = "both"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class DatedResult:
    """A result of a test, and where to find it."""

    go: ResultPoint
    """Its platform is the cell's name: a platform with its environment, where it has several."""
    platform: str
    """The platform's id."""
    at: datetime

    @property
    def is_bad(self) -> bool:
        """Whether it failed."""
        return self.go.outcome in _BAD

    @property
    def is_retried(self) -> bool:
        """Whether it failed first, and passed then."""
        return self.go.outcome in _GOOD and bool(_BAD.intersection(self.go.earlier))


@dataclass(frozen=True, slots=True)
class ResultPair:
    """The newest two results that show it; they are the same one where it passed on retry."""

    bad: DatedResult
    good: DatedResult


def flaky_signal(history: Sequence[DatedResult], evidence: FlakyEvidence) -> FlakySignal | None:
    """How it shows that a test is unsteady; None where it does not.

    Args:
        history: The oldest first.
        evidence: What it comes to.
    """
    if evidence.is_certain:
        return FlakySignal.RETRIED
    if evidence.mixed_versions:
        return FlakySignal.SPLIT
    if evidence.flips < FLIPS:
        return None
    # A short break on many platforms is still one break.
    places: dict[str, list[ResultPoint]] = {}
    for one in history:
        places.setdefault(one.go.platform, []).append(one.go)
    most = max(flaky_evidence(goes).flips for goes in places.values())
    return FlakySignal.FLIPS if most >= FLIPS else None


def failure_origin(kinds: Mapping[FailureClass, int]) -> FailureOrigin:
    """Whose the failures of these classes probably are."""
    machine = kinds.get(FailureClass.INFRA, 0) + kinds.get(FailureClass.ENVIRONMENT, 0)
    code = kinds.get(FailureClass.PRODUCT, 0) + kinds.get(FailureClass.TEST, 0)
    if machine and code:
        return FailureOrigin.BOTH
    if machine or code:
        return FailureOrigin.INFRA if machine else FailureOrigin.TEST
    return FailureOrigin.UNKNOWN


def pair_of(history: Sequence[DatedResult]) -> ResultPair | None:
    """The newest two results that show it best.

    Args:
        history: The oldest first.
    """
    newest = [one for one in reversed(history) if one.is_bad or one.go.outcome in _GOOD]
    retried = next((one for one in newest if one.is_retried), None)
    if retried is not None:
        return ResultPair(retried, retried)
    return _closest(newest, with_version=True) or _closest(newest, with_version=False)


def _closest(newest: Sequence[DatedResult], *, with_version: bool) -> ResultPair | None:
    def key(one: DatedResult) -> tuple[str, str]:
        return one.go.platform, one.go.version if with_version else ""

    good: dict[tuple[str, str], DatedResult] = {}
    bad: dict[tuple[str, str], DatedResult] = {}
    for one in newest:
        mine, others = (bad, good) if one.is_bad else (good, bad)
        mine[key(one)] = one
        if key(one) in others:
            other = others[key(one)]
            return ResultPair(one, other) if one.is_bad else ResultPair(other, one)
    return None


def suspects(
    retried: Iterable[int],
    failing: Iterable[tuple[int, str, int]],
    ran: Mapping[str, Sequence[str]],
    *,
    most: int,
) -> tuple[list[int], int]:
    """Tests whose history is worth weighing, the likeliest first, and how many there are.

    Only what failed is looked at, so that histories are read for few: a test that broke and was
    mended is none of them.

    Args:
        retried: Tests that passed on retry, once for each time.
        failing: Test, place, and which of the place's cells it failed in.
        ran: By place, the version of each of its cells, the oldest first.
        most: So many at most.
    """
    scores = Counter(retried)
    versions = {place: Counter(some) for place, some in ran.items()}
    failures: dict[tuple[int, str], list[int]] = {}
    for test, place, position in failing:
        failures.setdefault((test, place), []).append(position)
    for (test, place), positions in failures.items():
        scores[test] += _short(sorted(set(positions)), ran[place], versions[place])
    likely = sorted((-score, test) for test, score in scores.items() if score)
    return [test for _, test in likely[:most]], len(likely)


def _short(positions: Sequence[int], ran: Sequence[str], versions: Counter[str]) -> int:
    """Failures that did not last, where they came again, or where it may have passed as well."""
    episodes: list[list[int]] = []
    for position in positions:
        if episodes and position == episodes[-1][-1] + 1:
            episodes[-1].append(position)
        else:
            episodes.append([position])
    short = [one for one in episodes if len(one) < IN_A_ROW]
    if len(short) > 1:
        return sum(map(len, short))
    failed = Counter(ran[position] for position in positions)
    return sum(many for version, many in failed.items() if many < versions[version])
