"""Tests by name: what the baseline had and a run has not is missed, whatever came in its place."""

from __future__ import annotations

from collections import Counter

import pytest

from orchestrator.domain.gate.changes_of_tests import BaselineTests, TestChanges, changes_since
from orchestrator.domain.gate.policy import EvidenceRule, JobRule, ManifestRule
from orchestrator.domain.gate.rule_context import rule_fault
from orchestrator.domain.gate.verdict import Decision
from orchestrator.domain.outcome import Counts
from tests.unit.gate.builders import cell, failed, issue, job, judge, policy, result, snapshot

PASS, FAIL, OPEN = Decision.PASS, Decision.FAIL, Decision.INCONCLUSIVE
RULE = "changed_tests/moe@gcp-l4"


def changed(then: str, now: str, renames: dict[str, str], *left_out: str) -> TestChanges:
    """Of tests whose names are single letters."""
    baselines = [
        BaselineTests((f"run-{number}",), {"moe": Counter(names)})
        for number, names in enumerate(then.split())
    ]
    return changes_since("moe", Counter(now), baselines, renames=renames, left_out=left_out)


@pytest.mark.parametrize(
    ("then", "now", "renames", "removed", "renamed", "added"),
    [
        ("abc", "abc", {}, "", {}, ""),
        ("abc", "abxyzvw", {}, "c", {}, "vwxyz"),
        ("abc", "abx", {"c": "x"}, "", {"c": "x"}, ""),
        ("abc", "aby", {"c": "x", "x": "y"}, "", {"c": "y"}, ""),
        ("abc", "abx", {"c": "x", "x": "c"}, "", {"c": "x"}, ""),
        ("abc", "ab", {"c": "x"}, "c", {}, ""),
        # What was there before, or stands for another already, is no new name.
        ("abc", "ab", {"c": "b"}, "c", {}, ""),
        ("abc", "ax", {"b": "x", "c": "x"}, "c", {"b": "x"}, ""),
        # One name may be collected more than once.
        ("aab", "ab", {}, "a", {}, ""),
        # None of several baselines may miss anything, and what one of them had is not new.
        ("abc ab", "abx", {}, "c", {}, "x"),
        ("ab abc", "ab", {}, "c", {}, ""),
        ("ab abx", "abx", {}, "", {}, ""),
        ("", "abc", {}, "", {}, ""),
    ],
)
def test_what_became_of_the_tests_of_the_baseline(then, now, renames, removed, renamed, added):
    told = changed(then, now, renames)
    assert "".join(told.removed) == removed
    assert told.renamed == renamed
    assert ("".join(told.added_names), told.added) == (added, len(added))
    assert told.runs == tuple(f"run-{n}" for n in range(len(then.split())))


def test_an_environment_of_our_own_is_told():
    verdict = judge(policy(), snapshot(cell(own_environment=True)))
    assert verdict.decision is PASS
    told = result(verdict, "own_environment/gcp-l4")
    assert (told.blocking, "that Seatrial is installed in" in told.sentence) == (False, True)


def test_an_attempt_that_a_job_can_have_ended_is_told():
    lost = "attempt 1 of run run-1 (agent: killed by SIGKILL)"
    verdict = judge(policy(), snapshot(cell(lost_attempts=(lost,))))
    assert verdict.decision is PASS
    told = result(verdict, "lost_attempts/gcp-l4")
    assert (told.blocking, lost in told.sentence) == (False, True)


def test_what_the_payload_has_and_no_job_ran_is_told_once():
    left = ("no job takes tests/test_new.py",)
    verdict = judge(
        policy("gcp-l4", "rack"), snapshot(cell(untested=left), cell("rack", untested=left))
    )
    assert verdict.decision is PASS
    told = result(verdict, "untested")
    assert (told.blocking, told.sentence) == (False, "Left out: no job takes tests/test_new.py.")


def test_a_policy_of_another_product_names_it():
    verdict = judge(policy(), snapshot())
    assert verdict.decision is OPEN
    told = "There is no finished run of the product torchbridge, which the policy is for"
    assert result(verdict, "evidence").sentence.startswith(told)


def test_the_remedy_stands_beside_what_is_missed():
    gone = TestChanges(runs=("run-0",), removed=("t.py::gone",), renamed={}, added=0)
    mended = job("mended", passed_after=(failed("t.py::wrong", run="run-0", payload="ef" * 32),))
    verdict = judge(policy(), snapshot(cell("gcp-l4", job(changes=gone), mended)))
    told = result(verdict, "changed_tests/moe@gcp-l4").sentence
    assert "`evidence: {manifest: {removed_tests: allowed}}`" in told
    assert "`seatrial alias suggest`" in told
    after = result(verdict, "flaky/mended@gcp-l4").sentence
    assert after.endswith("`seatrial gate approve release`; or test a new wheel.")


BY_VERSION = "Only one of the runs has a wheel or a commit, so it is not known whether the subject"


@pytest.mark.parametrize(
    ("is_by_version", "says"),
    [
        (False, "Nothing of the subject changed: see whether it was the test"),
        (True, f"{BY_VERSION} changed: see whether it was the test"),
    ],
)
def test_that_the_subject_is_the_same_is_said_only_where_it_is_known(is_by_version, says):
    away = {"run": "run-0", "payload": "ef" * 32, "is_by_version": is_by_version}
    other = failed("t.py::wrong", **away)
    verdict = judge(policy(), snapshot(cell("gcp-l4", job("mended", passed_after=(other,)))))
    told = result(verdict, "flaky/mended@gcp-l4").sentence
    assert says in told
    assert ("Nothing of the subject changed" in told) is not is_by_version


def test_what_was_lost_with_a_module_or_a_folder_is_told_there():
    tests = Counter(["t_gpu.py::a", "gpu/t.py::b", "t_gpu.pyx::c"])
    baseline = BaselineTests(("run-0",), {"moe": tests})
    told = changes_since("moe", Counter(), [baseline], renames={}, left_out=["t_gpu.py", "gpu"])
    assert told.removed == ("t_gpu.pyx::c",)


LOST = TestChanges(runs=("run-0",), removed=("t.py::b",), added=5, added_names=("t.py::x",))
OLD = TestChanges(runs=("run-0",), removed=("old.py::a", "old.py::b"))


@pytest.mark.parametrize(
    ("changes", "given_up", "decision", "says"),
    [
        (LOST, "refused", FAIL, "1 removed: t.py::b; 5 added: t.py::x"),
        (LOST, "allowed", PASS, "1 removed, which the policy gives up; 5 added: t.py::x"),
        (LOST, ("t.py::b",), PASS, "1 removed, which the policy gives up"),
        (LOST, ("old.py::*",), FAIL, "1 removed: t.py::b"),
        (OLD, ("old.py::*",), PASS, "2 removed, which the policy gives up"),
        (OLD, ("*::b",), FAIL, "1 removed: old.py::a; 1 removed, which the policy gives up"),
        (TestChanges(runs=("run-0",), renamed={"t.py::b": "t.py::c"}), "refused", PASS,
         "5 tests, compared with run run-0; 1 renamed: t.py::b is t.py::c now"),
        (TestChanges(), "refused", PASS,
         "there is no green run to compare its 5 tests with, so none can be missed"),
        (TestChanges(runs=("run-0",), unknown=True), "refused", OPEN, "nobody knows their names"),
        (TestChanges(unknown=True), "refused", PASS, ""),
        (TestChanges(runs=("run-0",)), "refused", PASS, ""),
        (None, "refused", PASS, ""),
    ],
)  # fmt: skip
def test_a_removed_test_is_no_pass_unless_the_policy_gives_it_up(changes, given_up, decision, says):
    rules = policy(evidence=EvidenceRule(manifest=ManifestRule(removed_tests=given_up)))
    verdict = judge(rules, snapshot(cell("gcp-l4", job(changes=changes))))
    assert verdict.decision is decision
    found = [one.sentence for one in verdict.rules if one.id == RULE]
    assert [says in sentence for sentence in found] == [True] * bool(says)


def test_it_is_waived_for_a_job_and_does_not_reach_a_job_that_only_informs():
    assert rule_fault(RULE, policy()) == ""
    advisory = policy(jobs=(JobRule(id="moe", level="advisory"), JobRule(id="*")))
    evidence = snapshot(cell("gcp-l4", job("fp8"), job(changes=LOST)))
    assert judge(advisory, evidence).decision is PASS
    told = result(judge(policy(), evidence), RULE).inputs
    assert (told["removed_tests"], told["added_tests"]) == (["t.py::b"], ["t.py::x"])


def test_evidence_from_elsewhere_may_count_tests_without_naming_them():
    nameless = job(changes=TestChanges(runs=("run-0",), unknown=True))
    told = snapshot(cell("gcp-l4", nameless, ingested=True, attested=False))
    allowed = EvidenceRule(attestation="optional")
    assert judge(policy(evidence=allowed), told).decision is PASS


@pytest.mark.parametrize(
    ("more", "decision", "told"),
    [
        ({}, OPEN, [RULE]),
        ({"evidence": EvidenceRule(manifest=ManifestRule(removed_tests=("t.py::*",)))}, PASS, []),
        ({"jobs": (JobRule(id="*", require="pass_if_run"),)}, PASS, []),
        ({"jobs": (JobRule(id="moe", level="advisory"), JobRule(id="*"))}, PASS, []),
        ({"jobs": ()}, OPEN, [RULE]),
    ],
)
def test_a_job_that_is_gone_takes_its_tests_with_it(more, decision, told):
    evidence = snapshot(cell("gcp-l4", job("fp8"), jobs_gone={"moe": ("t.py::a", "t.py::b")}))
    verdict = judge(policy(**more), evidence)
    assert verdict.decision is decision
    assert [one.id for one in verdict.rules if one.id == RULE and one.blocking] == told
    if told:
        sentence = result(verdict, RULE).sentence
        assert sentence.startswith(
            "There is no job moe on gcp-l4, of which the baseline has 2 tests: t.py::a, t.py::b."
        )
        assert "{removed_tests: allowed}" in sentence


def test_fewer_tests_and_more_of_others_are_not_the_same_number():
    """A part of the baseline's number is kept by fillers; the names are not."""
    manifest = ManifestRule(min_tests_vs_baseline=1)  # type: ignore[arg-type]
    rules = policy(evidence=EvidenceRule(manifest=manifest), known_issues=(issue(),))
    filled = job(counts=Counts(passed=14), changes=LOST)
    verdict = judge(rules, snapshot(cell("gcp-l4", filled, baseline_collected=10)))
    assert [one.id for one in verdict.rules if one.outcome == "violated"] == [RULE]
