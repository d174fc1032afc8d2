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


def history(letters: str, *, versions: str = "", place: str = "a.image") -> list[DatedResult]:
    """One result a day: p, f, s, or r for a pass on retry; a version is one letter."""
    goes = []
    for day, letter in enumerate(letters):
        earlier = (TestOutcome.FAILED,) if letter == "r" else ()
        outcome = LETTERS.get(letter, TestOutcome.PASSED)
        version = versions[day] if versions else str(day)
        go = ResultPoint(f"run-{day}", version, place, outcome, earlier)
        goes.append(DatedResult(go, place.partition(".")[0], BEGIN + timedelta(days=day)))
    return goes


def shows(goes: list[DatedResult]) -> FlakySignal | None:
    return flaky_signal(goes, flaky_evidence(one.go for one in goes))


@pytest.mark.parametrize(
    ("letters", "versions", "expected"),
    [
        ("pppp", "", None), ("pprp", "", FlakySignal.RETRIED), ("pfpp", "1122", FlakySignal.SPLIT),
        ("pfpp", "", None), ("pfpfp", "", FlakySignal.FLIPS), ("pfffp", "", None),
        ("ffff", "1111", None),
    ],
)  # fmt: skip
def test_how_it_shows(letters: str, versions: str, expected: FlakySignal | None) -> None:
    assert shows(history(letters, versions=versions)) is expected


def test_a_short_break_on_many_platforms_is_one_break() -> None:
    goes = [one for place in "abcdef" for one in history("ppffpp", place=place)]
    assert flaky_evidence(one.go for one in goes).flips == 12
    assert shows(goes) is None


def test_the_newest_retry_proves_itself() -> None:
    pair = pair_of(history("rprpf"))
    assert pair is not None
    assert pair.bad is pair.good
    assert pair.bad.go.run == "run-2"


def test_two_results_with_one_version_prove_most() -> None:
    pair = pair_of(history("pfpfp", versions="11234"))
    assert pair is not None
    assert (pair.bad.go.run, pair.good.go.run) == ("run-1", "run-0")


def test_else_the_newest_two_that_differ() -> None:
    pair = pair_of(history("pfpps"))
    assert pair is not None
    assert (pair.bad.go.run, pair.good.go.run) == ("run-1", "run-2")
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
    again = [(4, "a", 1), (4, "a", 4)]
    split = [(5, "b", 0)]
    always = [(6, "b", 0), (6, "b", 1)]
    everything = (*broken, *mended, *once, *again, *split, *always)
    assert suspected(*everything) == ([4, 5], 2)
    assert suspected(*everything, retried=(7, 7, 7, 8)) == ([7, 4, 5, 8], 4)
    assert suspected(*everything, retried=(7, 7, 7, 8), most=2) == ([7, 4], 4)
    assert suspected() == ([], 0)
