"""A release of January through a gate: the same evidence under three policies.

The L4 comes from its logs, the A10G and the TPU as a person transcribed them from documents that
count failures without naming them, the MI300X as a refusal. The policies are those of
`tests/golden/gates`; they differ only in what they excuse.
"""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

from orchestrator.adapters.files.ingest_upload import pack_artifacts
from orchestrator.application.evaluate_gate import dry_run
from orchestrator.application.freeze_evidence import evidence_digest, freeze_evidence
from orchestrator.domain.gate.evaluate import evaluate
from orchestrator.domain.gate.gate_documents import (
    canonical,
    digest_of,
    policy_digest,
    read_snapshot,
    snapshot_document,
    verdict_document,
)
from orchestrator.domain.gate.snapshot import Snapshot
from orchestrator.domain.gate.verdict import Decision, RuleOutcome, Verdict
from tests.integration.api_context import Desk

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
NOW = datetime(2026, 1, 20, 12, tzinfo=UTC)
POLICIES = ("1-nothing-excused", "2-without-tpu", "3-all-excused")


@pytest.fixture(scope="module")
def handed_in(tmp_path_factory: pytest.TempPathFactory, shared_api: Desk):
    """The day's evidence, one command per platform; all of it one run."""
    scratch = tmp_path_factory.mktemp("example")
    logs = scratch / "l4"
    shutil.copytree(GOLDEN / "logs" / "gcp_l4_v046", logs)
    shutil.copy(GOLDEN / "gates" / "l4" / "ingest.yaml", logs)
    seeds = GOLDEN / "transcribed" / "002_summary"
    names = ("aws-a10g", "gcp-tpu-v5e", "aws-mi300x", "local")
    api = shared_api
    api.clock.time = NOW
    run = ""
    for folder in (logs, *(seeds / name for name in names)):
        packed = scratch / f"{folder.name}-packed"
        packed.mkdir()
        into = f"?run={run}" if run else ""
        body = pack_artifacts(folder, packed).read_bytes()
        answer = api.client.post(f"/api/v1/ingest{into}", content=body)
        assert answer.status_code == 201, answer.text
        run = answer.json()["run"]
    return api, run


def text_of(name: str) -> str:
    return (GOLDEN / "gates" / f"{name}.yaml").read_text("utf-8")


def decided(handed_in: tuple[Desk, str], name: str) -> Verdict:
    api, run = handed_in
    return dry_run(api.context, text_of(name), [run], NOW)


def places(verdict: Verdict) -> list[str]:
    """The platforms of the blocking rules that are violated or open."""
    bad = (RuleOutcome.VIOLATED, RuleOutcome.UNKNOWN)
    wrong = [one.id for one in verdict.rules if one.blocking and one.outcome in bad]
    return sorted({name.rpartition("@")[2].rpartition("/")[2] for name in wrong})


def test_without_exceptions_three_platforms_fail(handed_in):
    verdict = decided(handed_in, "1-nothing-excused")
    assert verdict.decision is Decision.FAIL
    assert places(verdict) == ["aws-a10g", "aws-mi300x", "gcp-tpu-v5e"]
    sentences = {one.id: one.sentence for one in verdict.rules}
    assert "10 failed" in sentences["job/fp8-training@aws-a10g"]
    assert "2 failed" in sentences["job/tpu-backend@gcp-tpu-v5e"]
    assert "not_offered" in sentences["platform/aws-mi300x"]


def test_with_a_known_issue_and_an_exception_only_the_tpu_fails(handed_in):
    verdict = decided(handed_in, "2-without-tpu")
    assert verdict.decision is Decision.FAIL
    assert places(verdict) == ["gcp-tpu-v5e"]
    found = {one.id: (one.outcome, one.by) for one in verdict.rules}
    tolerated = (RuleOutcome.TOLERATED, ("KI-0007",))
    assert found["job/fp8-training@aws-a10g"] == tolerated
    assert found["job/fp8-demo@aws-a10g"] == tolerated
    assert found["platform/aws-mi300x"] == (RuleOutcome.WAIVED, ("EXC-2026-003",))


def test_with_a_known_issue_for_the_tpu_it_waits_for_a_persons_yes(handed_in):
    """Its exception names who approved it, and nobody said so with a token of theirs."""
    verdict = decided(handed_in, "3-all-excused")
    assert verdict.decision is Decision.INCONCLUSIVE
    cost, open_ = (one for one in verdict.rules if one.outcome is RuleOutcome.UNKNOWN)
    assert (cost.id, cost.blocking, open_.id) == ("cost", False, "approval")
    assert cost.sentence.startswith("Nobody states what aws-a10g, ")
    assert (
        "needs 1 approval by somebody who did not ask for what it excuses; nobody has"
        in open_.sentence
    )


def test_without_approvals_it_passes_with_exceptions(handed_in):
    api, run = handed_in
    text = f"{text_of('3-all-excused')}  approvals: {{on: []}}\n"
    verdict = dry_run(api.context, text, [run], NOW)
    assert verdict.decision is Decision.PASS_WITH_EXCEPTIONS
    assert places(verdict) == []
    degraded = next(one for one in verdict.rules if one.kind == "degraded")
    assert degraded.id == "degraded/flex-attention-demo@gcp-l4"
    assert not degraded.blocking
    local = [one for one in verdict.rules if one.id.endswith(("/local", "@local"))]
    assert local
    assert not any(one.blocking for one in local)


def test_what_is_tolerated_stays_failed_in_every_count(handed_in):
    api, run = handed_in
    policy = api.context.documents.read_policy(text_of("3-all-excused"), "policy")
    cells = {one.platform: one for one in freeze_evidence(api.context, policy, [run]).cells}
    judged = [cells[name].counts for name in ("gcp-l4", "aws-a10g", "gcp-tpu-v5e")]
    passed = sum(counts.passed for counts in judged)
    failed = sum(counts.failed + counts.error for counts in judged)
    assert (passed, passed + failed) == (437, 449)


@pytest.mark.parametrize("name", POLICIES)
def test_replayed_later_it_is_the_same_to_the_byte(handed_in, name: str):
    """From what is kept: the evidence's document, the policy's text and the time of then."""
    api, run = handed_in
    policy = api.context.documents.read_policy(text_of(name), "policy")
    frozen = freeze_evidence(api.context, policy, [run])
    kept = canonical(snapshot_document(frozen))
    first = canonical(verdict_document(decided(handed_in, name)))
    api.clock.time = datetime(2026, 7, 1, tzinfo=UTC)
    again: Snapshot = read_snapshot(json.loads(kept))
    assert again == frozen
    late = evaluate(
        policy,
        again,
        NOW,
        statistics=api.context.gate.statistics,
        policy_digest=policy_digest(policy),
        evidence_digest=evidence_digest(again),
        tool=decided(handed_in, name).tool,
    )
    assert canonical(verdict_document(late)) == first
    assert digest_of(snapshot_document(again)) == digest_of(snapshot_document(frozen))


def test_a_day_later_the_evidence_is_stale(handed_in):
    api, run = handed_in
    late = datetime(2026, 1, 20, 13, tzinfo=UTC)
    verdict = dry_run(api.context, text_of("3-all-excused"), [run], late)
    assert verdict.decision is Decision.INCONCLUSIVE


def test_where_attestation_is_required_none_of_it_counts(handed_in):
    api, run = handed_in
    strict = text_of("3-all-excused").replace("optional", "required")
    assert dry_run(api.context, strict, [run], NOW).decision is Decision.INCONCLUSIVE


@pytest.mark.parametrize(
    ("name", "decision"),
    [
        ("1-nothing-excused", "FAIL"),
        ("2-without-tpu", "FAIL"),
        ("3-all-excused", "INCONCLUSIVE"),
    ],
)
def test_over_rest_it_is_the_same(handed_in, name: str, decision: str):
    api, run = handed_in
    body = {"policy": text_of(name), "runs": [run], "now": "2026-01-20T12:00:00Z"}
    answer = api.client.post("/api/v1/gates/release/dry-run", json=body)
    assert answer.status_code == 200, answer.text
    assert answer.json()["decision"] == decision
