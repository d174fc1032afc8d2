"""In-toto statements about a verdict and the results that it judges."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orchestrator.domain.gate.gate_documents import digest_of, verdict_document
from orchestrator.domain.gate.snapshot import CellEvidence, Snapshot
from orchestrator.domain.gate.verdict import Decision, Verdict

STATEMENT = "https://in-toto.io/Statement/v1"
SIMPLE_RESULT = "https://in-toto.io/attestation/svr/v0.1"
VERIFIER = "urn:seatrial:gate:v1"
PROPERTIES = {
    Decision.PASS: ("SEATRIAL_GATE_PASSED",),
    Decision.PASS_WITH_EXCEPTIONS: ("SEATRIAL_GATE_PASSED_WITH_EXCEPTIONS",),
}
"""Properties that a verdict verifies; other decisions verify nothing."""
Json = dict[str, object]
_DIGESTS = (("wheel_sha256", "sha256"), ("git_sha", "gitCommit"), ("payload_sha256", "sha256"))


@dataclass(frozen=True, slots=True, kw_only=True)
class CellStatement:
    """A signed statement about one cell."""

    run: str
    cell: str
    payload: bytes


def subjects(known: Mapping[str, str], evidence_digest: str) -> list[Json]:
    """Return the subject of a statement: the tested subject by its digests, else the evidence."""
    name = f"{known.get('name', '')} {known.get('version', '')}".strip()
    found: list[Json] = [
        {"name": f"{name} ({key.partition('_')[0]})", "digest": {kind: known[key]}}
        for key, kind in _DIGESTS
        if known.get(key)
    ]
    if found:
        return found
    about = f"evidence of {name}" if name else "evidence"
    return [{"name": about, "digest": {"sha256": evidence_digest}}]


def cell_statement(told: Mapping[str, object], cell: CellEvidence, evidence_digest: str) -> Json:
    """Return an export's statement of a cell, bound to the frozen subject.

    Args:
        told: The statement that the export makes of the cell.
        cell: The cell as it was frozen.
        evidence_digest: Of the frozen evidence; stands where the subject has no digest.
    """
    predicate = told.get("predicate")
    stated = dict(predicate) if isinstance(predicate, Mapping) else {}
    extra = stated.get("seatrial")
    ours = {k: v for k, v in extra.items() if k != "signed"} if isinstance(extra, Mapping) else {}
    stated["seatrial"] = {**ours, "run": cell.run, "cell": cell.id, "evidence": evidence_digest}
    return {**told, "subject": subjects(cell.subject, evidence_digest), "predicate": stated}


def verdict_statement(
    verdict: Verdict, snapshot: Snapshot, snapshot_digest: str, cells: Sequence[CellStatement]
) -> Json:
    """Return the statement of a verdict, which contains it, bound to the cells' statements."""
    document = verdict_document(verdict)
    return {
        "_type": STATEMENT,
        "subject": subjects(verdict.subject, verdict.evidence_digest),
        "predicateType": SIMPLE_RESULT,
        "predicate": {
            "verifier": {
                "id": VERIFIER,
                "policy": {
                    "uri": f"urn:seatrial:policy:{verdict.gate}",
                    "digest": {"sha256": verdict.policy_digest},
                },
            },
            "timeCreated": verdict.at.isoformat().replace("+00:00", "Z"),
            "properties": list(PROPERTIES.get(verdict.decision, ())),
            "seatrial": {
                "verdict": document,
                "verdictDigest": {"sha256": digest_of(document)},
                "snapshotDigest": {"sha256": snapshot_digest},
                "runs": list(snapshot.runs),
                "statements": [
                    {
                        "run": one.run,
                        "cell": one.cell,
                        "digest": {"sha256": hashlib.sha256(one.payload).hexdigest()},
                    }
                    for one in cells
                ],
            },
        },
    }
