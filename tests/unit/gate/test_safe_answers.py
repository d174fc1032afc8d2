"""What the defaults say of evidence that looks like a pass, and is none."""

from __future__ import annotations

import pytest

from orchestrator.domain.gate.completing import completed
from orchestrator.domain.gate.failed_before import failed_before
from orchestrator.domain.gate.policy import (
    EvidenceRule,
    Expected,
    FlakyRule,
    JobRule,
    PlatformRule,
    SkipRule,
    SubjectRule,
)
from orchestrator.domain.gate.rule_names import rule_fault
from orchestrator.domain.gate.verdict import Decision, RuleOutcome
from orchestrator.domain.outcome import Counts, Outcome
from tests.unit.gate.made import (
    cell,
    failed,
    issue,
    job,
    judge,
    machine,
    policy,
    result,
    snapshot,
)

PASS, WITH = Decision.PASS, Decision.PASS_WITH_EXCEPTIONS
FAIL, OPEN = Decision.FAIL, Decision.INCONCLUSIVE


def test_an_expected_failure_of_what_passed_on_the_baseline():
    lost = job(
        counts=Counts(passed=5, xfailed=1), newly_skipped={"expected to fail: #8": ("t.py::a",)}
    )
    assert judge(policy(), snapshot(cell("gcp-l4", lost))).decision is FAIL
    accepted = policy(skips=SkipRule(allow_reasons=("expected to fail: *",)))
    assert judge(accepted, snapshot(cell("gcp-l4", lost))).decision is PASS


# Something passed in every job


@pytest.mark.parametrize(
    ("counts", "checks", "decision"),
    [
        (Counts(skipped=3), {}, OPEN),
        (Counts(xfailed=3), {}, OPEN),
        (Counts(skipped=2, xpassed=1), {}, OPEN),
        (Counts(skipped=3, passed=1), {}, PASS),
        (Counts(), {}, PASS),
        (Counts(), {"skipped": 2}, OPEN),
        (Counts(), {"skipped": 2, "passed": 1}, PASS),
    ],
)
def test_a_job_in_which_nothing_passed_is_no_pass(counts, checks, decision):
    quiet = job("quiet", counts=counts, checks=checks)
    verdict = judge(policy(), snapshot(cell("gcp-l4", job(), quiet)))
    assert verdict.decision is decision
    named = policy(jobs=(JobRule(id="quiet", nothing_passed="accepted"), JobRule(id="*")))
    assert judge(named, snapshot(cell("gcp-l4", job(), quiet))).decision is PASS


def test_it_says_what_was_passed_over():
    quiet = job("quiet", counts=Counts(skipped=3, xfailed=1))
    found = result(
        judge(policy(), snapshot(cell("gcp-l4", job(), quiet))), "nothing_passed/quiet@gcp-l4"
    )
    assert found.sentence == (
        "Nothing of quiet passed on gcp-l4: 3 tests skipped, 1 test expected to fail."
    )


def test_a_tolerated_failure_beside_nothing_but_skips_is_no_pass():
    only = job("moe", failed(), counts=Counts(failed=1, skipped=9))
    rules = policy(known_issues=(issue(),))
    assert judge(rules, snapshot(cell("gcp-l4", job("fp8"), only))).decision is OPEN
    alone = job("moe", failed(), counts=Counts(failed=1))
    assert judge(rules, snapshot(cell("gcp-l4", job("fp8"), alone))).decision is WITH


# Skips


@pytest.mark.parametrize(
    ("rule", "decision"),
    [
        (None, FAIL),
        (SkipRule(), FAIL),
        (SkipRule(on_regression="inconclusive"), OPEN),
        (SkipRule(on_regression="informing"), PASS),
        (SkipRule(allow_reasons=("flaky *",)), PASS),
        (SkipRule(allow_reasons=("slow",)), FAIL),
    ],
)
def test_a_skip_of_a_test_that_ran_on_the_baseline(rule: SkipRule | None, decision: Decision):
    lost = job(
        counts=Counts(passed=5, skipped=2),
        skips={"flaky today": 1, "": 1},
        newly_skipped={"flaky today": ("t.py::a",)},
    )
    verdict = judge(policy(skips=rule), snapshot(cell("gcp-l4", lost)))
    assert verdict.decision is decision
    if decision is FAIL:
        assert (
            "1 ran on the baseline: moe@gcp-l4: t.py::a."
            in result(verdict, "skips/gcp-l4").sentence
        )


@pytest.mark.parametrize(
    ("rule", "decision"),
    [
        (None, PASS),
        (SkipRule(max=3), PASS),
        (SkipRule(max=2), FAIL),
        (SkipRule(allow_reasons=("slow",), max=2), FAIL),
        (SkipRule(max=2, on_other="informing"), PASS),
    ],
)
def test_every_skip_is_named_or_counted(rule: SkipRule | None, decision: Decision):
    told = job(counts=Counts(passed=5, skipped=3), skips={"slow": 1, "no network": 2})
    verdict = judge(policy(skips=rule), snapshot(cell("gcp-l4", told)))
    assert verdict.decision is decision
    assert result(verdict, "skips/gcp-l4").sentence.startswith("gcp-l4 skipped 3 tests; ")


# The same wheel and payload everywhere


WHEEL, PAYLOAD = {"wheel_sha256": "ab" * 32}, {"payload_sha256": "cd" * 32}
NAMED = {"name": "torchbridge", "version": "0.4.6"}


@pytest.mark.parametrize(
    ("mine", "other", "may_differ", "decision"),
    [
        ({**WHEEL, **PAYLOAD}, {**WHEEL, **PAYLOAD}, (), PASS),
        (WHEEL, {"wheel_sha256": "ef" * 32}, (), FAIL),
        (PAYLOAD, {"payload_sha256": "ef" * 32}, (), FAIL),
        ({"git_sha": "a" * 40}, {"git_sha": "b" * 40}, (), FAIL),
        (WHEEL, {}, (), OPEN),
        ({**WHEEL, "git_sha": "a" * 40}, WHEEL, (), PASS),
        ({}, {}, (), PASS),
        (WHEEL, {"wheel_sha256": "ef" * 32}, ("wheel_sha256",), PASS),
        (WHEEL, {}, ("wheel_sha256",), PASS),
        (PAYLOAD, {"payload_sha256": "ef" * 32}, ("wheel_sha256",), FAIL),
    ],
)
def test_two_platforms_were_tested_with_the_same(mine, other, may_differ, decision):
    cells = [cell("gcp-l4", subject={**NAMED, **mine}), cell("aws-a10g", subject=NAMED | other)]
    rules = policy("gcp-l4", "aws-a10g", subject=SubjectRule(may_differ=may_differ))
    assert judge(rules, snapshot(*cells)).decision is decision


def test_what_only_informs_may_be_of_another_wheel():
    rules = policy("gcp-l4", PlatformRule(id="aws-a10g", level="informing"))
    cells = [cell(subject=NAMED | WHEEL), cell("aws-a10g", subject=NAMED)]
    assert judge(rules, snapshot(*cells)).decision is PASS


def test_evidence_from_elsewhere_has_no_digest():
    rules = policy("gcp-l4", "aws-a10g", evidence=EvidenceRule(attestation="unattested_allowed"))
    told = cell("aws-a10g", subject=NAMED, ingested=True, attested=False)
    assert judge(rules, snapshot(cell(subject=NAMED | WHEEL), told)).decision is PASS


# The same tests wherever a job is sent


def collecting(digest: str, *lacking: str, **more: object):
    return job(tests_digest=digest, tests_lacking=lacking, **more)


@pytest.mark.parametrize(
    ("mine", "other", "decision", "wrong"),
    [
        (collecting("aa"), collecting("aa"), PASS, []),
        (collecting("aa"), collecting("bb", "t.py::b"), FAIL, ["test_set/moe@aws-a10g"]),
        (collecting("aa", "x"), collecting("aa", "x"), PASS, []),
        (
            collecting("aa", "x", "t.py::a"),
            collecting("bb", "x", "t.py::b"),
            FAIL,
            ["test_set/moe@gcp-l4", "test_set/moe@aws-a10g"],
        ),
        (collecting("aa"), collecting(""), OPEN, ["test_set/moe@aws-a10g"]),
        (collecting("aa"), job("fp8", tests_digest="bb"), PASS, []),
        (collecting(""), collecting("", counts=Counts()), PASS, []),
        (collecting("aa"), collecting("bb", "b", outcome=Outcome.ERRORED), OPEN, []),
    ],
)
def test_a_job_is_the_same_tests_on_every_platform(mine, other, decision, wrong):
    cells = [cell("gcp-l4", mine), cell("aws-a10g", other)]
    verdict = judge(policy("gcp-l4", "aws-a10g"), snapshot(*cells))
    assert verdict.decision is decision
    assert [one.id for one in verdict.rules if one.kind == "test_set"] == wrong


def test_it_names_the_tests_that_are_lacking_and_can_be_let_go():
    cells = [cell("gcp-l4"), cell("aws-a10g", collecting("bb", "t.py::b"))]
    verdict = judge(policy("gcp-l4", "aws-a10g"), snapshot(*cells))
    assert result(verdict, "test_set/moe@aws-a10g").sentence == (
        "moe on aws-a10g is 5 tests, without 1 of those on gcp-l4: t.py::b."
    )
    for rules in (
        policy("gcp-l4", "aws-a10g", jobs=(JobRule(id="*", test_set="may_differ"),)),
        policy("gcp-l4", PlatformRule(id="aws-a10g", level="informing")),
    ):
        assert judge(rules, snapshot(*cells)).decision is PASS


def test_evidence_from_elsewhere_may_count_tests_without_naming_them():
    told = cell("aws-a10g", collecting(""), ingested=True, attested=False)
    allowed = EvidenceRule(attestation="unattested_allowed")
    rules = policy("gcp-l4", "aws-a10g", evidence=allowed)
    assert judge(rules, snapshot(cell(), told)).decision is PASS
    named = cell("aws-a10g", collecting("bb", "t.py::b"), ingested=True, attested=False)
    assert judge(rules, snapshot(cell(), named)).decision is FAIL


# The hardware that the name promises


@pytest.mark.parametrize(
    ("platform", "expect", "found", "decision", "said"),
    [
        ("gcp-tpu-v5e", {}, machine("gcp-tpu-v5e"), PASS, "and so it is"),
        (
            "gcp-tpu-v5e",
            {},
            machine(provider="local", devices=()),
            FAIL,
            "provider is local; it has no accelerator",
        ),
        ("gcp-tpu-v5e", {}, machine("gcp-tpu-v5e", devices=None), OPEN, "nobody looked"),
        ("gcp-tpu-v5e", {}, None, OPEN, "nothing is known of its machine"),
        ("gcp-l4", {}, machine(devices=("nvidia NVIDIA L40S",)), FAIL, "it has nvidia NVIDIA L40S"),
        ("gcp-l4", {}, machine(provider=""), OPEN, "its provider is not known"),
        ("local-cpu", {}, machine(provider="local", devices=()), PASS, "and so it is"),
        ("local-cpu", {}, machine(provider="static", devices=()), FAIL, "its provider is static"),
        ("aws-h100", {}, machine(provider="local", devices=()), FAIL, "it has no accelerator"),
        ("gcp-l4", {"provider": "static"}, machine(provider="static"), PASS, "and so it is"),
        ("gcp-l4", {"provider": "any"}, machine(provider="local"), PASS, "and so it is"),
        ("gcp-l4", {"accelerator": "T4"}, machine(), FAIL, "it has NVIDIA L4"),
        ("rack", {"instance": "x1"}, machine(instance_type="x2"), FAIL, "instance type is x2"),
        ("rack", {"instance": "x1"}, machine(), OPEN, "its instance type is not known"),
    ],
)
def test_a_machine_is_what_the_platform_promises(platform, expect, found, decision, said):
    rules = policy(PlatformRule(id=platform, expect=Expected(**expect)))
    machines = () if found is None else (found,)
    verdict = judge(rules, snapshot(cell(platform, machines=machines)))
    assert verdict.decision is decision
    assert said in result(verdict, f"hardware/{platform}").sentence


def test_it_says_what_was_promised():
    rules = policy(PlatformRule(id="gcp-l4", instance="g2-standard-4"))
    laptop = cell(machines=(machine(provider="local", devices=()),))
    assert result(judge(rules, snapshot(laptop)), "hardware/gcp-l4").sentence == (
        "gcp-l4 is to be of gcp g2-standard-4 with NVIDIA L4: its provider is local; its instance"
        " type is not known; it has no accelerator."
    )


@pytest.mark.parametrize(
    ("platform", "expect", "matrix", "decision", "said"),
    [
        ("rack", {}, {"accelerator": "L4"}, PASS, "rack is to be with L4: and so it is."),
        ("rack", {}, {"accelerator": "T4"}, FAIL, "rack is to be with T4: it has NVIDIA L4."),
        ("rack", {}, {"instance": "g2"}, OPEN, "its instance type is not known"),
        # The matrix takes nothing away from what the policy or the id promises, nor the other way.
        ("gcp-l4", {}, {"provider": "static"}, FAIL, "by the matrix of static: its provider is"),
        ("gcp-l4", {"provider": "any", "accelerator": "any"}, {"accelerator": "T4"}, FAIL, "T4"),
        ("rack", {"accelerator": "T4"}, {"accelerator": "L4"}, FAIL, "with T4, and by the matrix"),
    ],
)
def test_a_machine_is_what_the_matrix_expects_too(platform, expect, matrix, decision, said):
    rules = policy(PlatformRule(id=platform, expect=Expected(**expect)))
    had = machine("gcp-l4", provider="gcp")
    evidence = snapshot(cell(platform, machines=(had,), expect=Expected(**matrix)))
    verdict = judge(rules, evidence)
    assert verdict.decision is decision
    assert said in result(verdict, f"hardware/{platform}").sentence


def test_an_id_that_promises_nothing_is_not_compared():
    verdict = judge(policy("rack"), snapshot(cell("rack", machines=())))
    assert verdict.decision is PASS
    assert not [one for one in verdict.rules if one.kind == "hardware"]


def test_every_machine_of_a_completed_cell_counts():
    early = cell(machines=(machine(provider="local", devices=()),), run="run-1")
    late = cell("gcp-l4", job("fp8"), run="run-2")
    assert judge(policy(), snapshot(completed(early, late))).decision is FAIL


# What failed first, and passed later


@pytest.mark.parametrize(
    ("then", "now", "names"),
    [
        (job("moe", failed("a"), failed("b")), job("moe"), ["a", "b"]),
        (job("moe", failed("a"), failed("b")), job("moe", failed("b")), ["a"]),
        (job("fp8", failed("a")), job("moe"), []),
        (job("moe", counts=Counts(failed=2)), job("moe"), ["(without a name)"]),
        (job("moe", failed_checks=("same",), outcome=Outcome.FAILED), job("moe"), ["same"]),
        (job("moe", outcome=Outcome.FAILED, counts=Counts()), job("moe"), ["(failed)"]),
        (job("moe", outcome=Outcome.TIMED_OUT, counts=Counts()), job("moe"), ["(timed_out)"]),
        (job("moe", outcome=Outcome.ERRORED, counts=Counts(missing=5)), job("moe"), []),
    ],
)
def test_what_failed_in_an_earlier_run_of_the_same_is_told(then, now, names):
    told = failed_before(cell("gcp-l4", now), now, [cell("gcp-l4", then, run="run-0")])
    assert [(one.nodeid, one.run) for one in told] == [(name, "run-0") for name in names]


@pytest.mark.parametrize(
    ("more", "decision"),
    [
        ({}, FAIL),
        ({"flaky": FlakyRule(rerun_success="flaky", max=1)}, WITH),
        ({"flaky": FlakyRule(rerun_success="flaky", max=0)}, FAIL),
        ({"known_issues": (issue(),)}, WITH),
        ({"jobs": (JobRule(id="moe", level="informing"), JobRule(id="*"))}, PASS),
    ],
)
def test_a_failure_that_passed_in_a_later_run_is_flaky(more, decision):
    again = job("moe", failed_before=(failed("t.py::a", run="run-0"),))
    verdict = judge(policy(**more), snapshot(cell("gcp-l4", job("fp8"), again)))
    assert verdict.decision is decision
    assert result(verdict, "job/moe@gcp-l4").outcome is RuleOutcome.OK
    assert result(verdict, "flaky/moe@gcp-l4").sentence.startswith(
        "Of moe on gcp-l4 1 result failed in another run of the same, and not in this: "
        "t.py::a in run-0; "
    )


def test_it_may_be_waived_for_a_job_and_not_at_large():
    assert rule_fault("flaky/moe@gcp-l4", policy()) == ""
    assert "nothing waives 'flaky'" in rule_fault("flaky", policy())
