"""Evaluates stored evidence again: replays a verdict, or tries another policy."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.application.context import Context
from orchestrator.application.evaluate_gate import TOOL
from orchestrator.application.freeze_evidence import evidence_digest
from orchestrator.application.gate_policies import policy_of
from orchestrator.application.ports.documents import Source
from orchestrator.domain.blobs import BlobMissingError
from orchestrator.domain.gate.evaluate import evaluate
from orchestrator.domain.gate.gate_documents import (
    digest_of,
    policy_digest,
    read_snapshot,
    verdict_document,
)
from orchestrator.domain.gate.policy import GatePolicy
from orchestrator.domain.gate.snapshot import Snapshot
from orchestrator.domain.gate.verdict import StoredVerdict, Verdict


class VerdictMissingError(LookupError):
    """No verdict of this id is stored."""


@dataclass(frozen=True, slots=True)
class Replay:
    """A stored verdict and its re-evaluation from the same inputs."""

    stored: StoredVerdict
    again: Verdict
    digest: str
    """Digest of the re-evaluated verdict."""

    @property
    def is_identical(self) -> bool:
        """Whether the bytes are equal."""
        return self.digest == self.stored.document_digest


def find_verdict(context: Context, verdict_id: str) -> StoredVerdict:
    """Return the verdict. Raises VerdictMissingError."""
    found = context.stores.gates.verdict(verdict_id)
    if found is None:
        raise VerdictMissingError(
            f"there is no verdict {verdict_id!r}; `seatrial gate history GATE` lists them"
        )
    return found


def stored_snapshot(context: Context, stored: StoredVerdict) -> Snapshot:
    """Return the frozen evidence of a verdict. Raises BlobMissingError."""
    whole = b"".join(context.blobs.open(stored.snapshot_digest))
    return read_snapshot(json.loads(whole))


def replay(context: Context, verdict_id: str) -> Replay:
    """Evaluate a verdict again with its own policy, evidence and time.

    Raises VerdictMissingError, BlobMissingError.
    """
    stored = find_verdict(context, verdict_id)
    then, snapshot = stored.verdict, stored_snapshot(context, stored)
    policy = context.stores.gates.policy_version(then.policy_digest)
    if policy is None:
        raise VerdictMissingError(f"the policy {then.policy_digest} of {verdict_id} is not stored")
    again = evaluate(
        policy_of(policy),
        snapshot,
        then.at,
        statistics=context.gate.statistics,
        policy_digest=policy.digest,
        evidence_digest=evidence_digest(snapshot),
        tool=then.tool,
        rules_version=then.rules_version,
    )
    return Replay(stored, again, digest_of(verdict_document(again)))


@dataclass(frozen=True, slots=True)
class DryRunResult:
    """A stored verdict, and another policy's decision on the same evidence."""

    stored: StoredVerdict
    verdict: Verdict | None
    """None where the frozen evidence is no longer stored."""


def dry_run_policy(
    context: Context, policy_text: Source, verdicts: Sequence[StoredVerdict], *, name: str
) -> list[DryRunResult]:
    """Evaluate the frozen evidence of each verdict with the policy, at the verdict's time.

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
