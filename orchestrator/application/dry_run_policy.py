"""What another policy would have said of evidence that a gate has judged; nothing is kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.application.context import Context
from orchestrator.application.evaluate_gate import TOOL
from orchestrator.application.freeze_evidence import evidence_digest
from orchestrator.application.ports.documents import Source
from orchestrator.application.replay_verdict import stored_snapshot
from orchestrator.domain.blobs import BlobMissingError
from orchestrator.domain.gate.evaluate import evaluate
from orchestrator.domain.gate.gate_documents import policy_digest
from orchestrator.domain.gate.policy import GatePolicy
from orchestrator.domain.gate.verdict import Verdict
from orchestrator.store.verdict_lines import StoredVerdict


@dataclass(frozen=True, slots=True)
class DryRunResult:
    """A stored verdict, and what the other policy makes of the same evidence at the same time."""

    stored: StoredVerdict
    verdict: Verdict | None
    """None where the frozen evidence is not kept any more."""


def dry_run_policy(
    context: Context, policy_text: Source, verdicts: Sequence[StoredVerdict], *, name: str
) -> list[DryRunResult]:
    """Evaluate the frozen evidence of each verdict by the policy, at the verdict's own time.

    Raises InvalidDocumentError.
    """
    policy = context.documents.read_policy(policy_text, name)
    digest = policy_digest(policy)
    return [DryRunResult(one, _decided(context, policy, digest, one)) for one in verdicts]


def _decided(
    context: Context, policy: GatePolicy, digest: str, stored: StoredVerdict
) -> Verdict | None:
    try:
        snapshot = stored_snapshot(context, stored)
    except BlobMissingError:
        return None
    return evaluate(
        policy,
        snapshot,
        stored.verdict.at,
        statistics=context.gate.statistics,
        policy_digest=digest,
        evidence_digest=evidence_digest(snapshot),
        tool=TOOL,
        rules_version=stored.verdict.rules_version,
    )
