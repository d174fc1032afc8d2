"""Known issues: what they apply to, and when not."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime

import pytest

from orchestrator.domain.failure_signature import Failure, signature_of
from orchestrator.domain.known_issue import (
    CellScope,
    FailingResult,
    IssueMatch,
    IssueScope,
    IssueState,
    KnownIssue,
    applying,
    fits,
    states_by_result,
    uses,
)
from orchestrator.domain.versions import is_version_range, version_fits
from tests.unit.domain.failure_cases import A10G_TESTS, TPU_TRAINING, a10g_short, failed

TODAY = date(2026, 1, 25)
PACKAGES = {"transformer_engine": "1.13.0"}
ISSUE = KnownIssue(
    id="KI-0007",
    product="torchbridge",
    title="Transformer Engine's DelayedScaling",
    match=IssueMatch(
        exception="ValidationError",
        frame="kernel_pytorch.precision.fp8_training_engine.to_te_recipe",
        contains="scaling_factor_compute_algo",
    ),
    scope=IssueScope(("aws-a10g",), ("fp8-training",), ">=0.4.6,<0.5", "transformer-engine"),
    owner="fp8-team",
    opened=date(2026, 1, 19),
    expires=date(2026, 1, 31),
    max_failures=11,
)


def failure(text, nodeid="t", **changes):
    known = {"job": "fp8-training", "run_id": "r", "cell": "aws-a10g", "platform": "aws-a10g"}
    known |= {"version": "0.4.6", "at": datetime(2026, 1, 19, tzinfo=UTC)} | changes
    signature = signature_of(failed(nodeid, text))
    assert signature is not None
    return Failure(signature, nodeid, **known)


TEN = [failure(a10g_short(test, 5 + i), test) for i, test in enumerate(A10G_TESTS)]
RAN = [CellScope("aws-a10g", "aws-a10g", "0.4.6", ("fp8-training", "moe"), PACKAGES)]


def state(issue=ISSUE, failures=TEN, ran=RAN, on=TODAY):
    return [(use.state, use.count) for use in uses([issue], failures, ran, on=on)]


def test_it_applies_to_exactly_its_ten_failures():
    other = failure(TPU_TRAINING)
    assert state(failures=[*TEN, other]) == [(IssueState.APPLIES, 10)]
    assert [fits(ISSUE, one, PACKAGES, on=TODAY) for one in (*TEN, other)] == [*[True] * 10, False]
    told = uses([ISSUE], [*TEN, other], RAN, on=TODAY)
    assert applying(told, TEN[0], PACKAGES) == ("KI-0007",)
    assert applying(told, other, PACKAGES) == ()


@pytest.mark.parametrize(
    "changes",
    [{"platform": "gcp-l4"}, {"job": "moe"}, {"version": "0.5.0"}, {"version": "0.4.5"}],
)
def test_outside_its_scope_it_does_not_apply(changes):
    assert not fits(ISSUE, replace(TEN[0], **changes), PACKAGES, on=TODAY)


def test_it_needs_its_package_in_the_right_version():
    assert not fits(ISSUE, TEN[0], {}, on=TODAY)
    newer = replace(ISSUE, scope=IssueScope(requires_package="Transformer_Engine>=2"))
    assert not fits(newer, TEN[0], PACKAGES, on=TODAY)
    assert fits(newer, TEN[0], {"transformer-engine": "2.1"}, on=TODAY)


@pytest.mark.parametrize(
    ("pattern", "count"),
    [("{}", 1), ("*", 10), ("*::nothing", 0), ("{}[*]", 0)],
)
def test_of_one_signature_it_applies_to_the_tests_that_it_names(pattern, count):
    ten = [replace(one, nodeid=f"t.py::test_{n}[a-{n}]") for n, one in enumerate(TEN)]
    named = pattern.format(ten[3].nodeid)
    issue = replace(ISSUE, scope=replace(ISSUE.scope, tests=(named,)))
    assert sum(fits(issue, one, PACKAGES, on=TODAY) for one in ten) == count
    told = uses([issue], ten, RAN, on=TODAY)
    assert [use.count for use in told] == [count]
    assert [bool(applying(told, one, PACKAGES)) for one in ten].count(True) == count
    assert not fits(issue, replace(ten[3], nodeid=""), PACKAGES, on=TODAY)


def test_the_last_day_still_counts_and_the_next_does_not():
    assert fits(ISSUE, TEN[0], PACKAGES, on=date(2026, 1, 31))
    assert not fits(ISSUE, TEN[0], PACKAGES, on=date(2026, 2, 1))
    assert state(on=date(2026, 2, 5)) == [(IssueState.EXPIRED, 10)]
    (told,) = uses([ISSUE], TEN, RAN, on=date(2026, 2, 5))
    assert told.expired_days == 5
    assert applying([told], TEN[0], PACKAGES) == ()


def test_a_person_can_end_it():
    ended = replace(ISSUE, ended_at=datetime(2026, 1, 20, tzinfo=UTC), ended_by="me")
    assert not fits(ended, TEN[0], PACKAGES, on=TODAY)
    assert state(ended) == [(IssueState.ENDED, 10)]


def test_each_matching_result_has_the_issues_that_match_it():
    other = replace(ISSUE, id="KI-0001", expires=date(2026, 1, 1))
    told = states_by_result(uses([ISSUE, other], [*TEN, failure(TPU_TRAINING)], RAN, on=TODAY))
    assert set(told) == {FailingResult(one.cell, one.job, one.nodeid) for one in TEN}
    assert list(map(dict, told.values())) == [{"KI-0001": "expired", "KI-0007": "applies"}] * 10


def test_more_failures_than_it_allows_are_said_to_be():
    assert state(replace(ISSUE, max_failures=9)) == [(IssueState.EXCEEDED, 10)]


def test_nothing_failed_so_where_it_ran_is_stale_and_elsewhere_it_is_left_out():
    assert state(failures=[]) == [(IssueState.STALE, 0)]
    assert state(failures=[], ran=[replace(RAN[0], jobs=("moe",))]) == []
    assert state(failures=[], ran=[replace(RAN[0], packages={})]) == []


def test_by_signature_through_a_new_version_of_the_algorithm():
    named = replace(ISSUE, match=IssueMatch(signature="s0-old"))
    assert state(named) == [(IssueState.STALE, 0)]
    successors_of = {"s0-old": {TEN[0].signature.id}}
    (told,) = uses([named], TEN, RAN, on=TODAY, successors_of=successors_of)
    assert told.count == 10


def test_a_match_that_says_nothing_means_nothing():
    assert state(replace(ISSUE, match=IssueMatch())) == [(IssueState.STALE, 0)]


@pytest.mark.parametrize(
    ("spec", "version", "expected"),
    [
        ("", "anything", True), (">=0.4.6,<0.5", "0.4.6", True), (">=0.4.6,<0.5", "0.4.10", True),
        (">=0.4.6,<0.5", "0.5", False), (">=0.4.6,<0.5", "0.5rc1", True),
        ("==0.4.*", "0.4.40", True), ("!=0.4.*", "0.4.40", False), ("==0.4.*", "0.40", False),
        ("==1.10", "1.1", False), ("==1.0", "v1.0.0", True), (">1.0", "1.0+cu128", False),
        ("==1", "nonsense", False), ("~=1.0", "1.0", False),
    ],
)  # fmt: skip
def test_versions_are_compared_by_their_numbers(spec, version, expected):
    assert version_fits(spec, version) is expected


def test_what_is_no_range_is_known():
    assert is_version_range("")
    assert is_version_range(">=0.4.6, <0.5")
    assert not is_version_range("0.4")
    assert not is_version_range("~=1")
