"""A stored verdict is replayed by the rules that made it, to the same bytes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orchestrator.domain.gate.document import (
    canonical,
    policy_digest,
    read_policy_document,
    read_snapshot,
    read_verdict,
    verdict_document,
)
from orchestrator.domain.gate.evaluate import RULES_VERSION, evaluate
from tests.unit.gate.made import PlainStatistics, cell, evidence_digest, judge, policy, snapshot

STORED = Path(__file__).resolve().parents[2] / "golden" / "verdicts" / "rules-1"
NAMES = ("1-nothing-excused", "2-without-tpu", "3-all-excused")


@pytest.mark.parametrize("name", NAMES)
def test_a_verdict_of_the_first_rules_comes_out_the_same_to_the_byte(name: str):
    stored = json.loads((STORED / f"{name}.json").read_bytes())
    frozen = read_snapshot(json.loads((STORED / "evidence.json").read_bytes()))
    rules, then = read_policy_document(stored["policy"]), read_verdict(stored["verdict"])
    assert then.rules_version == 1
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
    assert canonical(verdict_document(again)) == canonical(stored["verdict"])


def test_a_new_verdict_says_which_rules_made_it():
    verdict = judge(policy(), snapshot(cell()))
    assert RULES_VERSION > 1
    assert verdict_document(verdict)["rules_version"] == RULES_VERSION
    assert read_verdict(verdict_document(verdict)) == verdict
