"""Evaluate a stored verdict again from what it was made from: the bytes must be the same."""

from __future__ import annotations

import json
from dataclasses import dataclass

from orchestrator.application.context import Context
from orchestrator.application.freeze_evidence import evidence_digest
from orchestrator.application.gate_policies import policy_of
from orchestrator.domain.gate.evaluate import evaluate
from orchestrator.domain.gate.gate_documents import digest_of, read_snapshot, verdict_document
from orchestrator.domain.gate.snapshot import Snapshot
from orchestrator.domain.gate.verdict import Verdict
from orchestrator.store.verdict_lines import StoredVerdict


class VerdictMissingError(LookupError):
    """No verdict of this id is stored."""


@dataclass(frozen=True, slots=True)
class Replay:
    """A verdict, and what its inputs come to now."""

    stored: StoredVerdict
    again: Verdict
    digest: str
    """Of the bytes of `again`."""

    @property
    def is_identical(self) -> bool:
        """Whether the bytes are the same."""
        return self.digest == self.stored.document_digest


def find_verdict(context: Context, verdict_id: str) -> StoredVerdict:
    """The verdict. Raises VerdictMissingError."""
    found = context.stores.gates.verdict(verdict_id)
    if found is None:
        raise VerdictMissingError(
            f"there is no verdict {verdict_id!r}; `seatrial gate history GATE` lists them"
        )
    return found


def stored_snapshot(context: Context, stored: StoredVerdict) -> Snapshot:
    """The frozen evidence that it was made from. Raises BlobMissingError."""
    whole = b"".join(context.blobs.open(stored.snapshot_digest))
    return read_snapshot(json.loads(whole))


def replay(context: Context, verdict_id: str) -> Replay:
    """Evaluate again, with the policy, the evidence and the time of then.

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
