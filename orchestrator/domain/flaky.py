"""Detection of flaky tests from their history of results."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from itertools import groupby, pairwise

from orchestrator.domain.failures import FailureClass
from orchestrator.domain.node_ids import KnownTestResponse
from orchestrator.domain.outcome import TestOutcome

IN_A_ROW = 3
"""Number of consecutive failures that are a regression, not flakiness."""
NOT_COUNTED = "without builds that never passed on a platform, and three failures in a row"
"""What `flaky_evidence` leaves out, for a person."""
_GOOD = frozenset({TestOutcome.PASSED, TestOutcome.XPASSED})
_BAD = frozenset({TestOutcome.FAILED, TestOutcome.ERROR})
_Z = 1.959963984540054
"""Quantile of the normal distribution for 95 %."""


@dataclass(frozen=True, slots=True)
class ResultPoint:
    """One result of a test."""

    run: str
    version: str
    """Version of the subject."""
    build: str
    """Digest of the tested build (`cell.tested_build`).

    Different results of one build prove that a test is flaky; those of two builds may be a
    break or its fix.
    """
    platform: str
    outcome: TestOutcome
    earlier: tuple[TestOutcome, ...] = ()
    """Outcomes of earlier tries of the test in the same cell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TestRun(ResultPoint):
    """One result of a test, with its cell and its message."""

    __test__ = False

    cell: str
    at: datetime
    """Launch time of the run; the stated time of ingested evidence."""
    test: int
    """Number of the test with its name at that time."""
    nodeid: str
    duration_s: float
    reason: str
    message: str
    signature: str


@dataclass(frozen=True, slots=True)
class FlakyEvidence:
    """Evidence of flakiness in the history of a test."""

    passed_on_retry: int
    """Number of results that failed and then passed in the same cell with nothing changed."""
    mixed_builds: int
    """Number of (build, platform) that have passes and failures."""
    flips: int
    """Number of changes between pass and failure, of one build on one platform.

    Lasting failures are left out.
    """
    chances: int
    """Number of changes that were possible."""
    results: int
    """Number of results that passed or failed, without lasting failures."""
    failures: int
    """Number of failures of builds that also passed, without lasting failures."""
    min_failure_rate: float
    """Lower bound (95 %) of the failure rate; suspects are ranked by it."""

    @property
    def is_certain(self) -> bool:
        """Whether the evidence is certain: a result passed on retry."""
        return self.passed_on_retry > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryResponse:
    """A test with its results and the evidence of flakiness."""

    test: KnownTestResponse
    """The test with its newest name."""
    older_names: tuple[KnownTestResponse, ...]
    items: tuple[TestRun, ...]
    """Results, newest first."""
    flaky: FlakyEvidence


def flaky_evidence(history: Iterable[ResultPoint]) -> FlakyEvidence:
    """Return the flakiness evidence of a test's history.

    Builds and platforms are evaluated separately: a build that never passed is broken, and the
    next build may have fixed it. Three or more failures in a row are left out. Skipped, missing
    and not-run results are ignored.

    Args:
        history: The results, oldest first.
    """
    goes = [go for go in history if go.outcome in _GOOD | _BAD]
    retried = sum(1 for go in goes if go.outcome in _GOOD and _BAD.intersection(go.earlier))
    mixed = flips = chances = judged = failures = 0
    for everything in _of_passing_builds(goes):
        mixed += not all(map(_is_good, everything))
        results = [_is_good(go) for go in _without_breaks(everything)]
        flips += sum(1 for one, other in pairwise(results) if one != other)
        chances += max(len(results) - 1, 0)
        judged += len(results)
        failures += results.count(False)
    rate = wilson_lower(failures + retried, judged)
    return FlakyEvidence(retried, mixed, flips, chances, judged, failures, rate)


def _place(go: ResultPoint) -> tuple[str, str]:
    return go.platform, go.build


def counted(history: Iterable[ResultPoint]) -> set[ResultPoint]:
    """Return the results that `flaky_evidence` counts."""
    goes = [go for go in history if go.outcome in _GOOD | _BAD]
    return {go for some in _of_passing_builds(goes) for go in _without_breaks(some)}


def _of_passing_builds(goes: Iterable[ResultPoint]) -> Iterator[list[ResultPoint]]:
    """Yield the results of each build and platform with a pass."""
    for _, some in groupby(sorted(goes, key=_place), key=_place):
        everything = list(some)
        if any(map(_is_good, everything)):
            yield everything


def _is_good(go: ResultPoint) -> bool:
    return go.outcome in _GOOD


def _without_breaks(results: Sequence[ResultPoint]) -> list[ResultPoint]:
    kept: list[ResultPoint] = []
    for is_good, some in groupby(results, key=_is_good):
        row = list(some)
        if is_good or len(row) < IN_A_ROW:
            kept += row
    return kept


def wilson_lower(hits: int, of: int, z: float = _Z) -> float:
    """Return the lower bound of the rate `hits / of`, by Wilson's score interval.

    The bound is 0 without trials.
    """
    if of <= 0 or hits <= 0:
        return 0.0
    rate = min(hits / of, 1.0)
    middle = rate + z * z / (2 * of)
    spread = z * math.sqrt(rate * (1 - rate) / of + z * z / (4 * of * of))
    return max((middle - spread) / (1 + z * z / of), 0.0)


class FlakySignal(StrEnum):
    """The strongest evidence of a flaky test."""

    RETRIED = "retried"
    """The test failed and passed in one cell with nothing changed."""
    SPLIT = "split"
    """The test failed and passed with one build on one platform."""


class FailureOrigin(StrEnum):
    """Probable origin of the failures of a flaky test."""

    INFRA = "infra"
    """The machine, or the software that is installed on it."""
    TEST = "test"
    """The test or the product."""
    BOTH = "both"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class DatedResult:
    """A result of a test, with its run and time."""

    go: ResultPoint
    """The result.

    Its platform is the name of the cell, which includes the environment if there are several.
    """
    platform: str
    """The platform's id."""
    at: datetime

    @property
    def is_bad(self) -> bool:
        """Whether the result is a failure."""
        return self.go.outcome in _BAD

    @property
    def is_retried(self) -> bool:
        """Whether the test failed first and then passed in the same cell."""
        return self.go.outcome in _GOOD and bool(_BAD.intersection(self.go.earlier))


@dataclass(frozen=True, slots=True)
class ResultPair:
    """The newest failure and pass that prove flakiness; the same result if it passed on retry."""

    bad: DatedResult
    good: DatedResult


def flaky_signal(evidence: FlakyEvidence) -> FlakySignal | None:
    """Return the strongest evidence that a test is flaky; None if there is none."""
    if evidence.is_certain:
        return FlakySignal.RETRIED
    return FlakySignal.SPLIT if evidence.mixed_builds else None


def failure_origin(kinds: Mapping[FailureClass, int]) -> FailureOrigin:
    """Return the probable origin of failures, from their numbers by class."""
    machine = kinds.get(FailureClass.INFRA, 0) + kinds.get(FailureClass.ENVIRONMENT, 0)
    code = kinds.get(FailureClass.PRODUCT, 0) + kinds.get(FailureClass.TEST, 0)
    if machine and code:
        return FailureOrigin.BOTH
    if machine or code:
        return FailureOrigin.INFRA if machine else FailureOrigin.TEST
    return FailureOrigin.UNKNOWN


def pair_of(history: Sequence[DatedResult]) -> ResultPair | None:
    """Return the newest results that prove flakiness, a retry first; None if there are none.

    Args:
        history: The results, oldest first.
    """
    newest = [one for one in reversed(history) if one.is_bad or one.go.outcome in _GOOD]
    retried = next((one for one in newest if one.is_retried), None)
    if retried is not None:
        return ResultPair(retried, retried)
    good: dict[tuple[str, str], DatedResult] = {}
    bad: dict[tuple[str, str], DatedResult] = {}
    for one in newest:
        mine, others = (bad, good) if one.is_bad else (good, bad)
        mine[_place(one.go)] = one
        other = others.get(_place(one.go))
        if other is not None:
            return ResultPair(one, other) if one.is_bad else ResultPair(other, one)
    return None


def suspects(
    retried: Iterable[int],
    failing: Iterable[tuple[int, str, int]],
    ran: Mapping[str, Sequence[str]],
    *,
    most: int,
) -> tuple[list[int], int]:
    """Return tests that may be flaky by their history, most likely first, and their number.

    Only tests that failed or passed on retry are examined, so that few histories are read. A test
    that broke and was fixed by another build is not returned.

    Args:
        retried: Tests that passed on retry, one entry for each time.
        failing: Failing results: test, place, and position of the cell in `ran[place]`.
        ran: The build of each cell, by place.
        most: Maximum number of returned tests.
    """
    scores = Counter(retried)
    cells = Counter((place, build) for place, some in ran.items() for build in some)
    failed = Counter(
        (test, (place, ran[place][position])) for test, place, position in set(failing)
    )
    for (test, build), many in failed.items():
        scores[test] += many if many < cells[build] else 0
    likely = sorted((-score, test) for test, score in scores.items() if score)
    return [test for _, test in likely[:most]], len(likely)
