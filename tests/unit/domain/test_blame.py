"""Who broke it, and when nobody can say."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.domain.blame import (
    Attribution,
    AttributionContext,
    ConfirmationResult,
    RootCause,
    attribute_failure,
)
from orchestrator.domain.retests import Options, TrialAsk, TrialKind, TrialOrder, trials_of
from tests.unit.domain.test_retests import A, lived

PACKAGES = (("dep", "1.0", "2.0"),)
DRIVER = (("device driver", "550", "570"),)
ABOUT = AttributionContext(
    baseline="widget 1.0", last_green="r1", packages=PACKAGES, same_tests=True
)
BOTH = Options(baseline="widget 1.0", last_green="the packages of run r1 (dep 1.0)")
FAILS = {kind: ["failed"] for kind in TrialKind}


def judged(
    told: dict[TrialKind, list[str]], about: AttributionContext = ABOUT, options: Options = BOTH
) -> Attribution:
    """The answer where trials of each kind end so, over and over."""

    def tell(ask: TrialAsk, key: str, time: int) -> str:
        words = told[ask.kind]
        return words[time % len(words)]

    sittings = lived(TrialOrder(diagnose=True), (A,), options, tell)
    [found] = attribute_failure((A,), trials_of(sittings), about)
    return found


def second(*words: str, differs=()) -> ConfirmationResult:
    return ConfirmationResult(name="blue:22", run="r3", outcomes={A: words}, differs=differs)


def with_second(*words: str, **more) -> AttributionContext:
    return replace(ABOUT, second=second(*words), **more)


@pytest.mark.parametrize(
    ("told", "about", "answer"),
    [
        ({TrialKind.BASELINE: ["passed"]}, ABOUT, "ours"),
        ({TrialKind.LAST_GREEN: ["passed"]}, ABOUT, "dependency"),
        ({TrialKind.RERUN: ["failed", "passed"]}, ABOUT, "flaky"),
        ({TrialKind.RERUN: ["error", "passed"]}, ABOUT, "flaky"),
        ({}, with_second(*["passed"] * 5), "machine"),
        ({}, ABOUT, "unknown"),
        ({}, with_second(*["passed"] * 3), "unknown"),
        ({}, with_second(*["failed"] * 5), "unknown"),
        ({}, with_second(*["failed"] * 5, surroundings=DRIVER), "image_or_driver"),
        ({}, with_second(*["failed"] * 5, surroundings=DRIVER, same_tests=False), "unknown"),
        ({}, replace(ABOUT, surroundings=DRIVER), "unknown"),
        ({TrialKind.BASELINE: ["passed"]}, with_second(*["passed"] * 5), "unknown"),
        ({TrialKind.LAST_GREEN: ["passed"]}, with_second(*["passed"] * 5), "unknown"),
        ({TrialKind.BASELINE: ["passed", "failed"]}, ABOUT, "unknown"),
        ({TrialKind.BASELINE: ["absent"]}, ABOUT, "unknown"),
        ({TrialKind.BASELINE: ["skipped"], TrialKind.RERUN: ["skipped"]}, ABOUT, "unknown"),
    ],
)
def test_the_answer(told, about, answer):
    found = judged({**FAILS, **told}, about)
    assert found.answer == answer
    assert found.evidence


def test_a_second_machine_with_another_environment_proves_nothing():
    there = second(*["passed"] * 5, differs=DRIVER)
    found = judged(FAILS, replace(ABOUT, second=there))
    assert found.answer is RootCause.UNKNOWN
    assert "That machine differs: device driver 550 -> 570." in found.evidence


def test_the_evidence_names_what_differs():
    found = judged({**FAILS, TrialKind.LAST_GREEN: ["passed"]})
    assert "What differs: dep 1.0 -> 2.0." in found.evidence
    assert "With the baseline widget 1.0 it failed 4 of 4 times." in found.evidence
    assert found.as_text()["nodeid"] == "a.py::test_a"


def test_a_test_that_depends_on_those_before_it_is_not_called_flaky():
    def tell(ask: TrialAsk, key: str, time: int) -> str:
        return "failed" if ask.whole else "passed"

    sittings = lived(TrialOrder(diagnose=True), (A,), BOTH, tell)
    [found] = attribute_failure((A,), trials_of(sittings), ABOUT)
    assert found.answer is RootCause.UNKNOWN
    assert "it depends on what runs before it" in found.evidence[-1]


def test_trouble_that_has_gone_by_meanwhile_is_not_ours():
    """An outage ends while the baseline runs: with the subject again, it passes too."""
    asked = []

    def tell(ask: TrialAsk, key: str, time: int) -> str:
        asked.append(ask.kind)
        return "failed" if TrialKind.BASELINE not in asked else "passed"

    sittings = lived(TrialOrder(diagnose=True), (A,), BOTH, tell)
    [found] = attribute_failure((A,), trials_of(sittings), ABOUT)
    assert found.answer is RootCause.FLAKY


def test_two_reruns_do_not_make_anybody_guilty():
    sittings = lived(TrialOrder(reruns=2), (A,), BOTH, lambda *_: "failed")
    [found] = attribute_failure((A,), trials_of(sittings), ABOUT)
    assert found.answer is RootCause.UNKNOWN
    assert "4 failures in a row are needed" in found.evidence[0]


def test_without_any_trial_nobody_is_blamed():
    [found] = attribute_failure((A,), (), ABOUT)
    assert found.answer is RootCause.UNKNOWN


@given(
    st.lists(st.sampled_from(("failed", "passed", "skipped", "absent")), min_size=1, max_size=30)
)
def test_nobody_is_blamed_unless_every_trial_agrees(words):
    """Whatever a test does, `ours` and `dependency` need trials without a single exception."""
    told = iter(words * 30)
    seen: dict[TrialKind, Counter] = {kind: Counter() for kind in TrialKind}

    def tell(ask: TrialAsk, key: str, time: int) -> str:
        word = next(told)
        seen[ask.kind][word] += 1
        return word

    sittings = lived(TrialOrder(diagnose=True), (A,), BOTH, tell)
    [found] = attribute_failure((A,), trials_of(sittings), ABOUT)
    cure = {RootCause.OURS: TrialKind.BASELINE, RootCause.DEPENDENCY: TrialKind.LAST_GREEN}
    if found.answer in cure:
        assert set(seen[TrialKind.RERUN]) == {"failed"}
        assert set(seen[cure[found.answer]]) == {"passed"}


@pytest.mark.parametrize("chance", [0.3, 0.6, 0.9])
def test_a_flaky_test_is_hardly_ever_blamed_on_somebody(chance):
    """A thousand flaky tests of each kind, seeds fixed; ADR 0014 has the sum."""
    dice = random.Random(f"flaky {chance}")

    def tell(ask: TrialAsk, key: str, time: int) -> str:
        return "failed" if dice.random() < chance else "passed"

    answers: Counter[RootCause] = Counter()
    for _ in range(1_000):
        sittings = lived(TrialOrder(diagnose=True), (A,), BOTH, tell)
        [found] = attribute_failure((A,), trials_of(sittings), ABOUT)
        answers[found.answer] += 1
    wrong = 1_000 - answers[RootCause.FLAKY] - answers[RootCause.UNKNOWN]
    assert wrong <= 3, answers
