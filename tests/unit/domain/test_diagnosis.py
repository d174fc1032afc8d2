"""What people are told of tests that ran again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.domain.retests import Retest, RetestKind
from orchestrator.domain.root_cause import (
    Attribution,
    RetestTally,
    RootCause,
    attribute_failure,
    diagnosed_of,
)
from tests.unit.domain.test_root_cause import ABOUT, DRIVER, FAILS, judged, second

BLAME = Attribution(
    job="moe", nodeid="t.py::a", answer=RootCause.SUBJECT, evidence=("First.", "Second.")
)


def retest(kind: RetestKind, word: str, **more) -> Retest:
    return Retest(kind=kind, number=1, outcomes={"moe::t.py::a": word}, **more)


@pytest.mark.parametrize(
    ("kind", "whole", "outcomes", "said"),
    [
        (RetestKind.RERUN, False, ["failed"] * 4, "failed 4 of 4 again"),
        (RetestKind.RERUN, False, ["failed", "passed"], "failed 1 of 2 again"),
        (RetestKind.RERUN, True, ["passed"] * 2, "passed 2 of 2 in its whole job again"),
        (RetestKind.BASELINE, False, ["passed"] * 4, "passed 4 of 4 with the baseline w 1"),
        (RetestKind.BASELINE, False, ["absent", "failed"],
         "failed 1 of 2 (not run in 1) with the baseline w 1"),
        (RetestKind.LAST_GREEN, False, ["passed"] * 4,
         "passed 4 of 4 with the packages of the last green run"),
    ],
)  # fmt: skip
def test_how_it_went_in_words(kind, whole, outcomes, said):
    changed = "" if kind is RetestKind.RERUN else "w 1"
    assert (
        str(RetestTally(kind=kind, changed=changed, whole=whole, outcomes=tuple(outcomes))) == said
    )


def test_retests_with_the_same_thing_changed_are_told_together():
    retests = [
        retest(RetestKind.RERUN, "failed"),
        retest(RetestKind.BASELINE, "passed", changed="w 1"),
        retest(RetestKind.RERUN, "failed"),
        retest(RetestKind.BISECT, "failed", changed="change 7"),
    ]
    [found] = diagnosed_of("gcp-l4", [BLAME], retests)
    assert found.tried == "failed 2 of 2 again; passed 1 of 1 with the baseline w 1"
    assert (found.cell, found.answer, found.sentence) == ("gcp-l4", "subject", "Second.")


def test_a_test_that_did_not_run_again_is_not_told():
    other = replace(BLAME, nodeid="t.py::b")
    assert diagnosed_of("gcp-l4", [other], [retest(RetestKind.RERUN, "failed")]) == ()


PASSES = FAILS | {RetestKind.BASELINE: ["passed"]}
GREEN = FAILS | {RetestKind.LAST_GREEN: ["passed"]}
NO_PACKAGES = replace(ABOUT, packages=(), surroundings=DRIVER)


@pytest.mark.parametrize(
    ("told", "about", "answer", "begins"),
    [
        (PASSES, ABOUT, "subject", "With the baseline widget 1.0 and nothing else"),
        (GREEN, ABOUT, "dependency", "What differs: dep 1.0 -> 2.0."),
        (FAILS, replace(ABOUT, second=second(*["passed"] * 5)), "machine",
         "On another machine of the platform, blue:22"),
        (FAILS, replace(ABOUT, surroundings=DRIVER, second=second(*["failed"] * 5)),
         "image_or_driver", "Since the last green run r1: device driver 550 -> 570."),
        (FAILS | {RetestKind.RERUN: ["passed", "failed"]}, ABOUT, "flaky",
         "With nothing changed on the same machine"),
        (FAILS, NO_PACKAGES, "unknown", "Since the last green run r1: device driver"),
    ],
)  # fmt: skip
def test_the_sentence_is_the_one_that_decides(told, about, answer, begins):
    found = judged(told, about)
    assert (found.answer, found.sentence[: len(begins)]) == (answer, begins)


def test_a_test_that_was_never_tried_has_a_sentence_too():
    [found] = attribute_failure(["moe::t.py::a"], (), ABOUT)
    assert found.sentence == "It was not run again."
