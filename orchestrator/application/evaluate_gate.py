"""Evaluates a gate: freezes the evidence, decides, signs and stores. Replays verdicts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import orchestrator
from orchestrator.application.context import Context
from orchestrator.application.freeze_evidence import evidence_digest, freeze
from orchestrator.application.gate_policies import find_policy, policy_of
from orchestrator.application.gather_evidence import GatheredRun, gather
from orchestrator.application.ports.documents import Source
from orchestrator.application.signing_keys import signing_key
from orchestrator.domain.blobs import BlobMissingError
from orchestrator.domain.cell import CellState
from orchestrator.domain.gate.evaluate import evaluate
from orchestrator.domain.gate.gate_documents import (
    CellStatement,
    canonical,
    cell_statement,
    digest_of,
    policy_digest,
    read_snapshot,
    snapshot_document,
    verdict_document,
    verdict_statement,
)
from orchestrator.domain.gate.policy import GatePolicy
from orchestrator.domain.gate.snapshot import CellEvidence, Snapshot
from orchestrator.domain.gate.verdict import StoredPolicy, StoredVerdict, Verdict
from orchestrator.domain.outcome import Outcome

TOOL = f"seatrial {orchestrator.__version__}"


@dataclass(frozen=True, slots=True)
class _VerdictInputs:
    """Inputs of a verdict."""

    policy: GatePolicy
    policy_digest: str
    taken: Sequence[GatheredRun]
    snapshot: Snapshot
    now: datetime


def evaluate_gate(
    context: Context,
    gate: str,
    *,
    runs: Sequence[str] = (),
    lineage: str = "",
    version: str = "",
    policy: StoredPolicy | None = None,
    key: str = "",
) -> StoredVerdict:
    """Decide, sign and store a verdict; idempotent by key.

    Blobs keep the snapshot and the signed bundle. The verdict's JSON is in the bundle and, for
    queries, in its row (`store/verdict_rows.py`); `document_digest` is the digest of those bytes.

    Args:
        context: What the operations work with.
        gate: Name of a gate whose policy is stored, or comes with this call.
        runs: Runs with the evidence; empty: the newest finished run of the gate's product.
        lineage: Lineage of the verdict; the gate's own by default.
        version: Digest of the policy version; the gate's present one by default.
        policy: A checked policy, which is stored as the gate's together with the verdict.
        key: Idempotency key; a verdict stored under it is returned unchanged.

    Raises GateMissingError, PolicyMissingError, RunMissingError, WrongProductError,
    KeyUnusableError; InvalidDocumentError, if the gate got a policy of another product meanwhile.
    """
    known = context.stores.gates.verdict_of_key(key) if key else None
    if known is not None:
        return known
    stored = policy or find_policy(context, gate, version=version)
    now = context.clock.now()
    inputs = _inputs(context, policy_of(stored), stored.digest, runs, now)
    verdict = _decide(context, inputs)
    snapshot_digest = _store_blob(context, canonical(snapshot_document(inputs.snapshot)))
    bundle, key_id = _sign_verdict(context, inputs, verdict, snapshot_digest)
    made = StoredVerdict(
        id="",
        gate=gate,
        verdict=verdict,
        runs=inputs.snapshot.runs,
        lineage=lineage or gate,
        created_at=now,
        snapshot_digest=snapshot_digest,
        document_digest=digest_of(verdict_document(verdict)),
        envelope_digest=_store_blob(context, bundle),
        key_id=key_id,
    )
    return context.stores.gates.add_verdict(made, key=key, policy=policy)


def dry_run(
    context: Context,
    policy_text: Source,
    runs: Sequence[str],
    now: datetime,
    *,
    name: str = "policy",
) -> Verdict:
    """Evaluate a policy on these runs at a time; nothing is stored or signed.

    Raises InvalidDocumentError, RunMissingError, WrongProductError.
    """
    policy = context.documents.read_policy(policy_text, name)
    return _decide(context, _inputs(context, policy, policy_digest(policy), runs, now))


def _inputs(
    context: Context, policy: GatePolicy, digest: str, runs: Sequence[str], now: datetime
) -> _VerdictInputs:
    at = context.clock.now()
    taken = gather(context, policy.metadata.product, runs, at=at)
    return _VerdictInputs(policy, digest, taken, freeze(context, policy, taken, now=now), now)


def _decide(context: Context, inputs: _VerdictInputs) -> Verdict:
    return evaluate(
        inputs.policy,
        inputs.snapshot,
        inputs.now,
        statistics=context.gate.statistics,
        policy_digest=inputs.policy_digest,
        evidence_digest=evidence_digest(inputs.snapshot),
        tool=TOOL,
    )


def _store_blob(context: Context, whole: bytes) -> str:
    """Store the bytes; return their digest."""
    digest, _ = context.blobs.put([whole])
    return digest


EXPORT = "intoto"


def _sign_verdict(
    context: Context, inputs: _VerdictInputs, verdict: Verdict, snapshot_digest: str
) -> tuple[bytes, str]:
    """Return the signed bundle, verdict first, and the key's id. Raises KeyUnusableError."""
    key = signing_key(context)
    cells = tuple(_cell_statements(context, inputs, verdict.evidence_digest))
    first = verdict_statement(verdict, inputs.snapshot, snapshot_digest, cells)
    payloads = [canonical(first), *(one.payload for one in cells)]
    return context.gate.signer.sign(payloads, key.id), key.id


def _cell_statements(
    context: Context, inputs: _VerdictInputs, evidence_digest: str
) -> Iterator[CellStatement]:
    taken = {one.id: one for one in inputs.taken}
    for cell in inputs.snapshot.cells:
        if not _has_results(cell):
            continue
        # A cell that reruns completed has jobs of several runs: one statement for each run.
        for run in sorted({cell.run, *(job.run for job in cell.jobs if job.run)}):
            told = "".join(context.export(EXPORT, taken[run].evidence, cell.id))
            about = replace(cell, run=run)
            statement = cell_statement(json.loads(told), about, evidence_digest)
            yield CellStatement(run=run, cell=cell.id, payload=canonical(statement))


def _has_results(cell: CellEvidence) -> bool:
    """Whether the cell has results to state."""
    return cell.state == CellState.DONE.value and cell.outcome is not Outcome.NOT_AVAILABLE


class VerdictMissingError(LookupError):
    """No verdict of this id is stored."""


@dataclass(frozen=True, slots=True)
class Replay:
    """A stored verdict, and the verdict that the same inputs give now."""

    stored: StoredVerdict
    again: Verdict
    digest: str
    """Digest of the re-evaluated verdict."""

    @property
    def is_identical(self) -> bool:
        """Whether the new verdict has the same bytes as the stored one."""
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
    """None if the frozen evidence is no longer stored."""


def dry_run_policy(
    context: Context, policy_text: Source, verdicts: Sequence[StoredVerdict], *, name: str
) -> list[DryRunResult]:
    """Evaluate the frozen evidence of each verdict with the policy, at the verdict's time.

    Raises InvalidDocumentError.
    """
    policy = context.documents.read_policy(policy_text, name)
    digest = policy_digest(policy)
    return [DryRunResult(one, _evaluate_again(context, policy, digest, one)) for one in verdicts]


def _evaluate_again(
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
