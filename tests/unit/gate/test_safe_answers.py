"""What the defaults say of evidence that looks like a pass, and is none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.domain.collected_tests import TestSet
from orchestrator.domain.gate.policy import (
    ApprovalRule,
    EvidenceRule,
    ExpectedHardware,
    FlakyRule,
    GateException,
    JobRule,
    ManifestRule,
    NewFailureRule,
    PlatformRule,
    SkipRule,
    SubjectRule,
    Unavailable,
)
from orchestrator.domain.gate.reruns import failed_before, merge_reruns
from orchestrator.domain.gate.rule_context import rule_fault
from orchestrator.domain.gate.verdict import Decision, RuleOutcome
from orchestrator.domain.known_issue import IssueMatch, KnownIssue
from orchestrator.domain.outcome import Counts, Outcome
from tests.unit.gate.builders import (
    NOW,
    cell,
    failed,
    issue,
    job,
    judge,
    machine,
    policy,
    result,
    snapshot,
    unavailable,
)

UNKNOWN = RuleOutcome.UNKNOWN
PASS, WITH = Decision.PASS, Decision.PASS_WITH_EXCEPTIONS
FAIL, OPEN = Decision.FAIL, Decision.INCONCLUSIVE


@pytest.mark.parametrize(
    ("module", "accepted", "version", "decision"),
    [
        ("mylib.extra", (), 3, FAIL),
        ("mylib", (), 3, FAIL),
        ("mylib.extra", ("could not import 'mylib.extra'*",), 3, PASS),
        ("mylibrary", (), 3, PASS),
        ("triton", (), 3, PASS),
        ("mylib.extra", (), 2, PASS),
    ],
)
def test_tests_that_skip_for_want_of_the_subject_are_no_usual_skips(
    module: str, accepted: tuple[str, ...], version: int, decision: Decision
):
    """A wheel that lacks a module: what tests it asks for it first, and skips itself."""
    skipped = job(
        counts=Counts(passed=5, skipped=1),
        skips={f"could not import '{module}': No module named '{module}'": 1},
        test_set=TestSet(subject_modules=2, subject_names=("mylib",)),
    )
    rules = policy(skips=SkipRule(allow_reasons=accepted)) if accepted else policy()
    verdict = judge(rules, snapshot(cell("gcp-l4", skipped)), rules_version=version)
    assert verdict.decision is decision
    said = "because the subject does not have what they import"
    assert (said in result(verdict, "skips/gcp-l4").sentence) is (decision is FAIL)


def test_a_fallback_is_forbidden_where_no_rule_names_the_job():
    fell = snapshot(cell("gcp-l4", job(degraded="no GPU")))
    assert judge(policy(jobs=()), fell).decision is FAIL
    accepted = policy(jobs=(JobRule(id="*", degraded="inform"),))
    assert judge(accepted, fell).decision is PASS


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
        (SkipRule(on_regression="advisory"), PASS),
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
        (SkipRule(max=2, on_other="advisory"), PASS),
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
    rules = policy("gcp-l4", PlatformRule(id="aws-a10g", level="advisory"))
    cells = [cell(subject=NAMED | WHEEL), cell("aws-a10g", subject=NAMED)]
    assert judge(rules, snapshot(*cells)).decision is PASS


def test_evidence_from_elsewhere_has_no_digest():
    rules = policy("gcp-l4", "aws-a10g", evidence=EvidenceRule(attestation="optional"))
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
        policy("gcp-l4", PlatformRule(id="aws-a10g", level="advisory")),
    ):
        assert judge(rules, snapshot(*cells)).decision is PASS


def test_evidence_from_elsewhere_may_count_tests_without_naming_them():
    told = cell("aws-a10g", collecting(""), ingested=True, attested=False)
    allowed = EvidenceRule(attestation="optional")
    rules = policy("gcp-l4", "aws-a10g", evidence=allowed)
    assert judge(rules, snapshot(cell(), told)).decision is PASS
    named = cell("aws-a10g", collecting("bb", "t.py::b"), ingested=True, attested=False)
    assert judge(rules, snapshot(cell(), named)).decision is FAIL


# The hardware that the name promises
H100 = "nvidia NVIDIA H100 80GB HBM3"


@pytest.mark.parametrize(
    ("platform", "expect", "found", "decision", "said"),
    [
        ("gcp-tpu-v5e", {}, machine("gcp-tpu-v5e"), PASS, ": it is."),
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
        ("local-cpu", {}, machine(provider="local", devices=()), PASS, ": it is."),
        ("local-cpu", {}, machine(provider="static", devices=()), FAIL, "its provider is static"),
        ("aws-h100", {}, machine(provider="local", devices=()), FAIL, "it has no accelerator"),
        ("gcp-l4", {"provider": "static"}, machine(provider="static"), PASS, ": it is."),
        ("gcp-l4", {"provider": "any"}, machine(provider="local"), PASS, ": it is."),
        ("gcp-l4", {"accelerator": "T4"}, machine(), FAIL, "it has NVIDIA L4"),
        ("rack", {"instance": "x1"}, machine(instance_type="x2"), FAIL, "instance type is x2"),
        ("rack", {"instance": "x1"}, machine(), OPEN, "its instance type is not known"),
        *(
            (name, {}, machine(provider="local", devices=()), FAIL, "it has no accelerator")
            for name in ("h100x8", "rtx-4090", "gh200", "a10", "nvidia-box", "gpu", "arc-a770")
        ),
        ("h100x8", {}, machine(devices=(H100,) * 8), PASS, ": it is."),
        ("h100x8", {}, machine(devices=(H100,) * 4), FAIL, "it has 4 and not 8 of them"),
        ("rtx-4090", {}, machine(devices=("nvidia NVIDIA GeForce RTX 4090",)), PASS, "it is"),
        ("arc-a770", {}, machine(devices=("intel Intel(R) Arc(TM) A770 Graphics",)), PASS, "it is"),
        ("a10", {}, machine(devices=("nvidia NVIDIA A10G",)), FAIL, "it has nvidia NVIDIA A10G"),
        ("gpu", {}, machine(devices=("amd AMD Instinct MI300X",)), PASS, ": it is."),
        ("gaudi2", {}, machine(devices=()), OPEN, "Gaudi is none that can be"),
        ("windows", {}, machine(system="Linux Debian 12 x86_64"), FAIL, "system is Linux Debian"),
        ("macos-arm64", {}, machine(system="macOS Darwin 24.1 aarch64"), PASS, ": it is."),
        ("linux", {}, machine(), OPEN, "its operating system is not known"),
        ("linux", {"system": "any"}, machine(), PASS, ""),
        ("rack", {"system": "Linux aarch64"}, machine(system="Linux x86_64"), FAIL, "x86_64"),
    ],
)
def test_a_machine_is_what_the_platform_promises(platform, expect, found, decision, said):
    rules = policy(PlatformRule(id=platform, expect=ExpectedHardware(**expect)))
    machines = () if found is None else (found,)
    verdict = judge(rules, snapshot(cell(platform, machines=machines)))
    assert verdict.decision is decision
    found = [rule.sentence for rule in verdict.rules if rule.id == f"hardware/{platform}"]
    assert said in "".join(found)


def test_it_says_what_was_promised():
    rules = policy(PlatformRule(id="gcp-l4", instance="g2-standard-4"))
    laptop = cell(machines=(machine(provider="local", devices=()),))
    assert result(judge(rules, snapshot(laptop)), "hardware/gcp-l4").sentence == (
        "gcp-l4 has to be a machine of gcp g2-standard-4 with NVIDIA L4: its provider is local; its"
        " instance type is not known; it has no accelerator."
    )


@pytest.mark.parametrize(
    ("platform", "expect", "matrix", "decision", "said"),
    [
        ("rack", {}, {"accelerator": "L4"}, PASS, "rack has to be a machine with L4: it is."),
        (
            "rack",
            {},
            {"accelerator": "T4"},
            FAIL,
            "rack has to be a machine with T4: it has NVIDIA L4.",
        ),
        ("rack", {}, {"instance": "g2"}, OPEN, "its instance type is not known"),
        # The matrix takes nothing away from what the policy or the id promises, nor the other way.
        ("gcp-l4", {}, {"provider": "static"}, FAIL, "by the matrix of static: its provider is"),
        ("gcp-l4", {"provider": "any", "accelerator": "any"}, {"accelerator": "T4"}, FAIL, "T4"),
        ("rack", {"accelerator": "T4"}, {"accelerator": "L4"}, FAIL, "with T4, and by the matrix"),
    ],
)
def test_a_machine_is_what_the_matrix_expects_too(platform, expect, matrix, decision, said):
    rules = policy(PlatformRule(id=platform, expect=ExpectedHardware(**expect)))
    had = machine("gcp-l4", provider="gcp")
    evidence = snapshot(cell(platform, machines=(had,), expect=ExpectedHardware(**matrix)))
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
    assert judge(policy(), snapshot(merge_reruns(early, late))).decision is FAIL


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
        (
            job("moe", outcome=Outcome.FAILED, reason="missing", counts=Counts(missing=5)),
            job("moe"),
            ["(missing)"],
        ),
    ],
)
def test_what_failed_in_an_earlier_run_of_the_same_is_told(then, now, names):
    others = [cell("gcp-l4", then, run="run-0")]
    told = failed_before(cell("gcp-l4", now), now, others, passing=frozenset())
    assert [(one.nodeid, one.run) for one in told] == [(name, "run-0") for name in names]


def test_what_the_suite_itself_ran_again_is_flaky():
    again = cell("gcp-l4", job("moe", failed_before=(failed("t.py::a", run=cell("gcp-l4").run),)))
    verdict = judge(policy(), snapshot(again))
    assert verdict.decision is FAIL
    told = result(verdict, "flaky/moe@gcp-l4").sentence
    assert "1 result failed, and passed when the suite ran it again: t.py::a in " in told
    allowed = policy(flaky=FlakyRule(rerun_success="flaky", max=1))
    assert judge(allowed, snapshot(again)).decision is WITH


AWAY = failed("t.py::a", run="run-0", payload="ab" * 32)


@pytest.mark.parametrize(
    ("more", "decision"),
    [
        ({}, FAIL),
        ({"flaky": FlakyRule(rerun_success="flaky", max=1)}, FAIL),  # it was not run again
        ({"evidence": EvidenceRule(manifest=ManifestRule(removed_tests=("t.py::*",)))}, WITH),
        ({"evidence": EvidenceRule(manifest=ManifestRule(removed_tests="allowed"))}, WITH),
    ],
)
def test_what_failed_may_not_vanish_with_another_payload(more, decision):
    verdict = judge(policy(**more), snapshot(cell("gcp-l4", job("moe", failed_before=(AWAY,)))))
    assert verdict.decision is decision
    told = result(verdict, "flaky/moe@gcp-l4").sentence
    assert "t.py::a in run-0 (payload abababababab)" in told
    # How a test that was removed for good is given up; nothing of what is given up already.
    way = "names it in `evidence: {manifest: {removed_tests: [...]}}`"
    assert (way in told) is (decision is FAIL)


@pytest.mark.parametrize(("approvals", "decision"), [(None, OPEN), (ApprovalRule(on=()), WITH)])
def test_what_passes_with_another_payload_alone_needs_a_persons_yes(approvals, decision):
    now = snapshot(cell("gcp-l4", job("moe", passed_after=(AWAY,))))
    verdict = judge(policy(approvals=approvals), now)
    assert verdict.decision is decision
    rule = result(verdict, "flaky/moe@gcp-l4")
    assert (rule.outcome, rule.by) == (RuleOutcome.TOLERATED, ("payload abababababab",))
    assert "passed with this one: t.py::a in run-0" in rule.sentence


@pytest.mark.parametrize(
    ("rules", "decision"),
    [
        ((), OPEN),
        ((JobRule(id="*"),), OPEN),
        ((JobRule(id="*", require="pass_if_run"),), PASS),
        ((JobRule(id="demo", level="advisory"),), PASS),
    ],
)
def test_a_job_that_failed_of_this_subject_may_not_be_left_out(rules, decision):
    left_out = replace(cell("gcp-l4", job("moe")), jobs_failed={"demo": "run-0"})
    assert judge(policy(jobs=rules), snapshot(left_out)).decision is decision


ADVISORY = PlatformRule(id="mi300x", when_unavailable=Unavailable(verdict="advisory"))


@pytest.mark.parametrize(
    ("more", "attestation", "rule"),
    [
        ({}, "required", ""),
        ({"jobs_failed": {"moe": "run-0"}}, "required", "flaky/moe@mi300x"),
        ({"ingested": True}, "required", "attestation/mi300x"),
        ({"ingested": True}, "optional", ""),
    ],
)
def test_a_platform_that_could_not_be_had_hides_no_failure_and_is_not_typed(
    more, attestation, rule
):
    gate = policy("gcp-l4", ADVISORY, evidence=EvidenceRule(attestation=attestation))
    verdict = judge(gate, snapshot(cell(), unavailable("mi300x", **more)))
    assert verdict.decision is (OPEN if rule else PASS)
    assert [one.id for one in verdict.rules if one.blocking and one.outcome is UNKNOWN] == (
        [rule] if rule else []
    )


@pytest.mark.parametrize(
    ("other", "rule", "decision"),
    [
        ({"wheel_sha256": "77" * 32}, SubjectRule(), FAIL),
        ({"wheel_sha256": "77" * 32}, SubjectRule(may_differ=("wheel_sha256",)), PASS),
        ({"version": "0.1"}, SubjectRule(), FAIL),
        ({"payload_sha256": "77" * 32}, SubjectRule(), FAIL),
        ({}, SubjectRule(), PASS),
    ],
)
def test_runs_of_two_subjects_are_no_evidence_of_one(other, rule, decision):
    one = cell("gcp-l4", job("moe"))
    known = {**one.subject, "payload_sha256": "11" * 32}
    shown = replace(one, subject=known, stands_for=({**known, **other},))
    assert judge(policy(subject=rule), snapshot(shown)).decision is decision


# What one person alone excused needs a yes, where the policy does not say who has to give it


STORED = KnownIssue(
    id="KI-9",
    product="torchbridge",
    title="known",
    match=IssueMatch(exception="ValueError"),
    owner="team",
    opened=NOW.date(),
    expires=NOW.date(),
)
EXCEPTION = GateException(
    id="EXC-1",
    rule="job/moe@gcp-l4",
    reason="known",
    author="ann",
    approved_by=("bob",),
    expires=NOW.date(),
    failing={"t.py::a": 1},
)


@pytest.mark.parametrize(
    ("more", "issues", "decision"),
    [
        ({"known_issues": (issue(),)}, (), WITH),  # the policy's own words
        ({}, (STORED,), OPEN),
        ({"approvals": ApprovalRule(on=())}, (STORED,), WITH),
        ({"exceptions": (EXCEPTION,)}, (), OPEN),  # bob is a name in a file
    ],
)
def test_what_one_person_excused(more, issues, decision):
    rules = policy(**{"approvals": None, **more})
    found = snapshot(cell("gcp-l4", job("moe", failed("t.py::a"))), known_issues=issues)
    assert judge(rules, found).decision is decision


@pytest.mark.parametrize(
    ("more", "decision"),
    [
        ({}, FAIL),
        ({"flaky": FlakyRule(rerun_success="flaky", max=1)}, WITH),
        ({"flaky": FlakyRule(rerun_success="flaky", max=0)}, FAIL),
        ({"known_issues": (issue(),)}, WITH),
        ({"jobs": (JobRule(id="moe", level="advisory"), JobRule(id="*"))}, PASS),
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


@pytest.mark.parametrize(
    ("name", "said"),
    [("(failed)", "the job itself (failed)"), ("(without a name)", "a result without a name")],
)
def test_what_has_no_name_is_told_by_what_it_is(name, said):
    again = job("moe", failed_before=(replace(failed(name, run="run-0"), signature=""),))
    verdict = judge(policy(), snapshot(cell("gcp-l4", again)))
    assert f"and not in this: {said} in run-0; " in result(verdict, "flaky/moe@gcp-l4").sentence
    old = judge(policy(), snapshot(cell("gcp-l4", again)), rules_version=2)
    assert f"and not in this: {name} in run-0; " in result(old, "flaky/moe@gcp-l4").sentence


def test_it_says_how_a_wrong_setup_is_told_from_a_failure():
    again = job("moe", failed_before=(failed("t.py", run="run-0"),))
    verdict = judge(policy(), snapshot(cell("gcp-l4", again)))
    sentence = result(verdict, "flaky/moe@gcp-l4").sentence
    assert "removed_tests" not in sentence
    assert sentence.endswith(
        " If the test is unreliable: `seatrial quarantine add`. If not the subject but the setup of"
        " that run was wrong, another person approves a waiver that says so:"
        " `seatrial gate waive release flaky/moe@gcp-l4`."
    )


NOT_COLLECTED = job(
    "moe", failed("t.py", is_new=True), outcome=Outcome.ERRORED, reason="wrong_subject",
    counts=Counts(error=1),
)  # fmt: skip


@pytest.mark.parametrize(
    ("more", "decision"),
    [
        ({}, OPEN),
        ({"failed": (failed("t.py::a"),)}, FAIL),
        ({"failed": ()}, FAIL),
        ({"reason": "forged_records"}, FAIL),
        ({"outcome": Outcome.FAILED}, FAIL),
        ({"failed_before": (failed("u.py", run="run-0"),)}, FAIL),
    ],
    ids=["a file", "a test", "without a name", "forged", "failed", "in another run"],
)
def test_files_that_another_subject_did_not_let_collect_prove_nothing(more, decision):
    rules = policy(new_failures=NewFailureRule())
    found = cell("gcp-l4", replace(NOT_COLLECTED, **more))
    assert judge(rules, snapshot(found, last_green="run-0")).decision is decision


def test_it_may_be_waived_for_a_job_and_not_at_large():
    assert rule_fault("flaky/moe@gcp-l4", policy()) == ""
    assert rule_fault("changed_tests/moe.image@gcp-l4", policy()) == ""
    assert "say of which job" in rule_fault("changed_tests/moe.a.b@gcp-l4", policy())
    assert "nothing waives 'flaky'" in rule_fault("flaky", policy())
