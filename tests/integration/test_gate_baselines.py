"""What a gate compares with until it has passed something."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.api_context import Desk
from tests.integration.gate_world import POLICY, check, put, ran

A, B, C = (f"tests/test_a.py::{name}" for name in "abc")
ALL = {A: "passed", B: "passed", C: "passed"}
FEWER = {A: "passed", B: "passed"}
SKIPPED = {**FEWER, C: "skipped"}


def _decision(desk: Desk, key: str, tests: dict[str, str]) -> Any:
    return check(desk, f"check-{key}", runs=[ran(desk, key, tests)])["decision"]


@pytest.mark.parametrize("now", [FEWER, SKIPPED], ids=["removed", "skipped"])
def test_a_refused_run_that_is_launched_again_is_refused_again(
    api: Desk, now: dict[str, str]
) -> None:
    put(api)
    ran(api, "unjudged", ALL)
    assert _decision(api, "first", now) == "FAIL"
    assert _decision(api, "second", now) == "FAIL"
    ran(api, "third", now)
    assert _decision(api, "fourth", now) == "FAIL"
    assert _decision(api, "fifth", ALL) == "PASS"
    assert _decision(api, "sixth", now) == "FAIL"


def test_a_green_run_that_the_gate_refused_adds_its_tests(api: Desk) -> None:
    """What it was refused for need not be on its platform."""
    put(api, POLICY.replace("  jobs:", "  evidence: {payload_level: reviewed}\n  jobs:"))
    assert _decision(api, "first", ALL) == "FAIL"
    put(api)
    assert _decision(api, "second", FEWER) == "FAIL"
    assert _decision(api, "third", FEWER) == "FAIL"
    assert _decision(api, "fourth", ALL) == "PASS"


def test_tests_that_went_before_the_first_verdict_are_not_missed(api: Desk) -> None:
    put(api)
    ran(api, "old", ALL)
    ran(api, "newer", FEWER)
    assert _decision(api, "first", FEWER) == "PASS"
