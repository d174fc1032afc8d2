"""How it shows that a test is unsteady, and what proves it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from orchestrator.domain.failures import FailureClass
from orchestrator.domain.flaky import (
    DatedResult,
    FailureOrigin,
    FlakySignal,
    ResultPoint,
    failure_origin,
    flaky_evidence,
    flaky_signal,
    pair_of,
    suspects,
)
from orchestrator.domain.outcome import TestOutcome

BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
LETTERS = {"p": TestOutcome.PASSED, "f": TestOutcome.FAILED, "s": TestOutcome.SKIPPED}


def history(letters: str, *, builds: str = "", place: str = "a.image") -> list[DatedResult]:
    """One result a day of one version: p, f, s, or r for a pass on retry; a build is one letter."""
    goes = []
    for day, letter in enumerate(letters):
        earlier = (TestOutcome.FAILED,) if letter == "r" else ()
        outcome = LETTERS.get(letter, TestOutcome.PASSED)
        build = builds[day] if builds else str(day)
        go = ResultPoint(f"run-{day}", "1.0", build, place, outcome, earlier)
        goes.append(DatedResult(go, place.partition(".")[0], BEGIN + timedelta(days=day)))
    return goes


def shows(goes: list[DatedResult]) -> FlakySignal | None:
    return flaky_signal(flaky_evidence(one.go for one in goes))


@pytest.mark.parametrize(
    ("letters", "builds", "expected"),
    [
        ("pppp", "", None), ("pprp", "", FlakySignal.RETRIED), ("pfpp", "1122", FlakySignal.SPLIT),
        ("pfpp", "", None), ("pfpfp", "", None), ("pfffp", "", None),
        ("ffff", "1111", None),
    ],
)  # fmt: skip
def test_how_it_shows(letters: str, builds: str, expected: FlakySignal | None) -> None:
    assert shows(history(letters, builds=builds)) is expected


def test_the_newest_retry_proves_itself() -> None:
    pair = pair_of(history("rprpf"))
    assert pair is not None
    assert pair.bad is pair.good
    assert pair.bad.go.run == "run-2"


def test_two_results_with_one_build_prove_most() -> None:
    pair = pair_of(history("pfpfp", builds="11234"))
    assert pair is not None
    assert (pair.bad.go.run, pair.good.go.run) == ("run-1", "run-0")


def test_results_of_two_builds_prove_nothing() -> None:
    assert pair_of(history("pfpps")) is None
    assert pair_of(history("pppp")) is None
    assert pair_of([]) is None


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        ({}, FailureOrigin.UNKNOWN),
        ({FailureClass.UNKNOWN: 3}, FailureOrigin.UNKNOWN),
        ({FailureClass.INFRA: 1, FailureClass.ENVIRONMENT: 1}, FailureOrigin.INFRA),
        ({FailureClass.PRODUCT: 1, FailureClass.TEST: 1}, FailureOrigin.TEST),
        ({FailureClass.PRODUCT: 1, FailureClass.INFRA: 1}, FailureOrigin.BOTH),
    ],
)
def test_whose_they_are(kinds: dict[FailureClass, int], expected: FailureOrigin) -> None:
    assert failure_origin(kinds) is expected


def suspected(
    *failing: tuple[int, str, int], retried: tuple[int, ...] = (), most: int = 9
) -> object:
    return suspects(retried, failing, {"a": "123456", "b": "112233"}, most=most)


def test_suspects_are_few() -> None:
    broken = [(1, "a", day) for day in range(6)]
    mended = [(2, "a", day) for day in (2, 3, 4)]
    once = [(3, "a", 2)]
    other_builds = [(4, "a", 1), (4, "a", 4)]
    split = [(5, "b", 0)]
    always = [(6, "b", 0), (6, "b", 1)]
    everything = (*broken, *mended, *once, *other_builds, *split, *always)
    assert suspected(*everything) == ([5], 1)
    assert suspected(*everything, retried=(7, 7, 7, 8)) == ([7, 5, 8], 3)
    assert suspected(*everything, retried=(7, 7, 7, 8), most=2) == ([7, 5], 3)
    assert suspected() == ([], 0)
