"""Quarantines: how they stand, what they mean, and when a test returns by itself."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.domain.failure_signature import Failure, Signature
from orchestrator.domain.failures import FailureClass
from orchestrator.domain.flaky import ResultPoint
from orchestrator.domain.gate.snapshot import Quarantine
from orchestrator.domain.outcome import TestOutcome
from orchestrator.domain.quarantine import (
    QuarantineState,
    active_ids,
    faults_of,
    is_about,
    may_return,
    passes_in_a_row,
    quarantined_of,
    state_of,
)

NOW = datetime(2026, 1, 20, tzinfo=UTC)
LONGEST = timedelta(days=30)
ONE = Quarantine(
    id="Q-0001",
    product="proof",
    nodeid="t.py::test_a",
    reason="no seed",
    owner="me",
    opened=NOW,
    expires=NOW + timedelta(days=14),
    returns_after=3,
)
WORDS = {"p": TestOutcome.PASSED, "f": TestOutcome.FAILED, "s": TestOutcome.SKIPPED}


def goes(told: str, platform: str = "l4") -> list[ResultPoint]:
    """One result a letter, the oldest first; R passed on retry."""
    retried = (TestOutcome.FAILED,)
    return [
        ResultPoint(str(n), "1", "b", platform, TestOutcome.PASSED, retried)
        if word == "R"
        else ResultPoint(str(n), "1", "b", platform, WORDS[word])
        for n, word in enumerate(told)
    ]


def test_it_stands_until_its_day_or_its_end():
    assert state_of(ONE, NOW) is QuarantineState.ACTIVE
    assert state_of(ONE, ONE.expires - timedelta(seconds=1)) is QuarantineState.ACTIVE
    assert state_of(ONE, ONE.expires) is QuarantineState.EXPIRED
    ended = replace(ONE, ended_at=NOW + timedelta(days=2), ended_by="me")
    assert state_of(ended, NOW + timedelta(days=1)) is QuarantineState.ACTIVE
    assert state_of(ended, NOW + timedelta(days=3)) is QuarantineState.ENDED


@pytest.mark.parametrize(
    ("change", "keys"),
    [
        ({}, []),
        ({"expires": NOW + timedelta(days=30)}, []),
        ({"expires": NOW + timedelta(days=30, seconds=1)}, ["days"]),
        ({"expires": NOW}, ["days"]),
        ({"returns_after": 0}, ["returns_after"]),
        ({"owner": " ", "reason": ""}, ["reason", "owner"]),
    ],
)
def test_a_quarantine_has_an_owner_a_reason_and_an_end(change, keys):
    assert [key for key, _ in faults_of(replace(ONE, **change), LONGEST)] == keys


def test_platforms_restrict():
    assert is_about(ONE, ONE.nodeid, "anywhere")
    here = replace(ONE, platforms=("l4",))
    assert is_about(here, ONE.nodeid, "l4")
    assert not is_about(here, ONE.nodeid, "a10g")
    assert not is_about(here, "t.py::test_b", "l4")


@pytest.mark.parametrize(
    ("told", "streak"),
    [("", {}), ("sss", {}), ("ppp", {"l4": 3}), ("ppfpp", {"l4": 2}), ("ppRp", {"l4": 1}),
     ("pspsp", {"l4": 3}), ("ppf", {"l4": 0})],
)  # fmt: skip
def test_a_streak(told, streak):
    assert passes_in_a_row(goes(told)) == streak


def test_every_platform_must_have_passed_so_often():
    fine, worse = goes("ppp"), goes("fpp", "a10g")
    assert may_return(ONE, [fine])
    assert not may_return(ONE, [])
    assert not may_return(ONE, [[]])
    assert not may_return(ONE, [[*fine, *worse]])
    assert may_return(replace(ONE, platforms=("l4",)), [[*fine, *worse]])
    assert not may_return(replace(ONE, platforms=("l4", "tpu")), [fine])


def test_every_job_that_has_the_test_must_have_passed_so_often():
    assert not may_return(ONE, [goes("ppp"), goes("ppfp")])
    assert may_return(ONE, [goes("ppp"), goes("fppp"), []])


@given(st.lists(st.sampled_from("pfsR"), max_size=12), st.integers(1, 4))
def test_one_more_failure_never_lets_a_test_return(told, needed):
    one = replace(ONE, returns_after=needed)
    assert not may_return(one, [goes("".join([*told, "f"]))])


def test_failures_in_quarantine_are_named_and_expired_ones_too():
    signature = Signature("s1-0", FailureClass.UNKNOWN, "E", "a.b", "boom")
    failure = Failure(signature, ONE.nodeid, "unit", "r", "l4", "l4", "1", NOW)
    other = replace(failure, nodeid="t.py::test_b")
    during, late = NOW + timedelta(days=1), NOW + timedelta(days=20)
    [found] = quarantined_of([ONE], [failure, other], at=during)
    assert (found.nodeid, found.cell, found.state) == (ONE.nodeid, "l4", QuarantineState.ACTIVE)
    assert quarantined_of([ONE], [failure], at=late)[0].state is QuarantineState.EXPIRED
    assert quarantined_of([ONE], [failure], at=NOW - timedelta(days=1)) == ()
    ended = replace(ONE, ended_at=NOW, ended_by="me")
    assert quarantined_of([ended], [failure], at=during) == ()
    again = replace(ONE, id="Q-0002", opened=NOW, expires=late + timedelta(days=1))
    for known in ([ONE, again, ended], [ended, again, ONE]):
        [found] = quarantined_of(known, [failure], at=late)
        assert (found.quarantine.id, found.state) == ("Q-0002", QuarantineState.ACTIVE)
    assert active_ids(quarantined_of([ONE], [failure], at=during)) == {
        ("l4", "unit", ONE.nodeid): ONE.id
    }
    assert active_ids(quarantined_of([ONE], [failure], at=late)) == {}
