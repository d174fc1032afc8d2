"""A stored verdict is replayed by the rules that made it, to the same bytes."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from orchestrator.domain.gate.evaluate import RULES_VERSION, evaluate
from orchestrator.domain.gate.gate_documents import (
    canonical,
    policy_digest,
    read_policy_document,
    read_snapshot,
    read_verdict,
    verdict_document,
)
from orchestrator.domain.gate.policy import ApprovalRule
from orchestrator.domain.gate.snapshot import Approval, Waiver
from orchestrator.domain.outcome import Counts
from tests.unit.gate.builders import (
    NOW,
    PlainStatistics,
    cell,
    evidence_digest,
    failed,
    job,
    judge,
    policy,
    result,
    snapshot,
)

STORED = Path(__file__).resolve().parents[2] / "golden" / "verdicts"
NAMES = [
    *((1, name) for name in ("1-nothing-excused", "2-without-tpu", "3-all-excused")),
    *((version, name) for version in (2, 3) for name in ("4-failing", "5-waived")),
]


@pytest.mark.parametrize(("version", "name"), NAMES)
def test_a_stored_verdict_comes_out_the_same_to_the_byte(version: int, name: str):
    """While the last rules are not released, `SEATRIAL_WRITE_GOLDENS=1` writes theirs anew."""
    folder = STORED / f"rules-{version}"
    path = folder / f"{name}.json"
    stored = json.loads(path.read_bytes())
    shared = folder / "evidence.json"
    frozen = read_snapshot(stored.get("evidence") or json.loads(shared.read_bytes()))
    rules, then = read_policy_document(stored["policy"]), read_verdict(stored["verdict"])
    assert then.rules_version == version
    assert (policy_digest(rules), evidence_digest(frozen)) == (
        then.policy_digest,
        then.evidence_digest,
    )
    again = evaluate(
        rules,
        frozen,
        then.at,
        statistics=PlainStatistics(),
        policy_digest=then.policy_digest,
        evidence_digest=then.evidence_digest,
        tool=then.tool,
        rules_version=then.rules_version,
    )
    if version == RULES_VERSION and os.environ.get("SEATRIAL_WRITE_GOLDENS"):
        stored["verdict"] = verdict_document(again)
        path.write_bytes(canonical(stored) + b"\n")
    assert canonical(verdict_document(again)) == canonical(stored["verdict"])


LATE = (
    "EXC-2026-003 does not count: it ends in 100 days, and the policy lets exceptions last 90 days"
)


@pytest.mark.parametrize(
    ("name", "decisions", "changed"),
    [
        ("1-nothing-excused", ["FAIL", "FAIL", "FAIL"], []),
        ("2-without-tpu", ["FAIL", "FAIL", "FAIL"], ["platform/aws-mi300x"]),
        ("3-all-excused", ["PASS_WITH_EXCEPTIONS", "FAIL", "FAIL"], ["platform/aws-mi300x"]),
    ],
)
def test_what_later_rules_change_in_the_worked_example(name: str, decisions, changed):
    """As docs/explanation/verdicts.md lists it, with the reason."""
    stored = json.loads((STORED / "rules-1" / f"{name}.json").read_bytes())
    frozen = read_snapshot(json.loads((STORED / "rules-1" / "evidence.json").read_bytes()))
    rules = read_policy_document(stored["policy"])
    first, *later = (
        judge(rules, frozen, read_verdict(stored["verdict"]).at, rules_version=version)
        for version in (1, 2, 3)
    )
    assert [one.decision for one in (first, *later)] == decisions
    before = {one.id: one.outcome for one in first.rules if one.blocking}
    for verdict in later:
        after = {one.id: one.outcome for one in verdict.rules if one.blocking}
        assert [rule for rule in before if after[rule] != before[rule]] == changed
        assert any(LATE in told for told in verdict.warnings) == bool(changed)


def test_the_rules_of_new_verdicts_have_goldens():
    assert RULES_VERSION in {version for version, _ in NAMES}


@pytest.mark.parametrize(
    ("approver", "version", "decision"),
    [("bob", 1, "PASS_WITH_EXCEPTIONS"), ("a\N{ZERO WIDTH SPACE}nn", 1, "PASS_WITH_EXCEPTIONS"),
     ("ANN", 1, "FAIL"), ("bob", 2, "FAIL")],
)  # fmt: skip
def test_typed_names_count_by_the_first_rules_alone(approver: str, version: int, decision: str):
    given = Waiver(
        id="W-0001", gate="release", rule="job/x@gcp-l4", reason="tonight", author="ann",
        approver=approver, at=NOW, expires=NOW + timedelta(days=1),
    )  # fmt: skip
    evidence = snapshot(cell("gcp-l4", job(), job("x", failed())), waivers=(given,))
    digest = evidence_digest(evidence)
    evidence = replace(evidence, approvals=(Approval(by="eve", at=NOW, evidence=digest),))
    rules = policy(approvals=ApprovalRule())
    assert judge(rules, evidence, rules_version=version).decision == decision


def test_a_new_verdict_says_which_rules_made_it():
    verdict = judge(policy(), snapshot(cell()))
    assert RULES_VERSION > 1
    assert verdict_document(verdict)["rules_version"] == RULES_VERSION
    assert read_verdict(verdict_document(verdict)) == verdict


COUNTS = Counts(passed=3, skipped=1, xfailed=2, xpassed=1)


@pytest.mark.parametrize(
    ("version", "platform", "passed"),
    [
        (
            2,
            "3 of 3 tests passed and 2 failed as expected in 1 job",
            " 3 tests and 2 failed as expected.",
        ),
        (
            3,
            "3 of 7 tests passed, 1 skipped, 2 failed as expected, 1 passed unexpectedly in 1 job",
            ": 3 of 7 tests passed, 1 skipped, 2 failed as expected, 1 passed unexpectedly.",
        ),
    ],
)
def test_counts_in_sentences_add_up_since_the_third_rules(version: int, platform: str, passed: str):
    verdict = judge(policy(), snapshot(cell("gcp-l4", job(counts=COUNTS))), rules_version=version)
    assert platform in result(verdict, "platform/gcp-l4").sentence
    assert result(verdict, "job/moe@gcp-l4").sentence == f"moe on gcp-l4 passed{passed}"


def test_where_every_test_passed_one_number_is_enough():
    assert result(judge(policy(), snapshot(cell())), "job/moe@gcp-l4").sentence == (
        "moe on gcp-l4 passed 5 tests."
    )
