"""Sign a verdict: a statement for each cell that has results, and one for the decision."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from orchestrator.application.context import Context
from orchestrator.application.gather_evidence import GatheredRun
from orchestrator.application.signing_keys import signing_key
from orchestrator.domain.cell import CellState
from orchestrator.domain.gate.gate_documents import canonical
from orchestrator.domain.gate.in_toto import CellStatement, cell_statement, verdict_statement
from orchestrator.domain.gate.snapshot import CellEvidence, Snapshot
from orchestrator.domain.gate.verdict import Verdict
from orchestrator.domain.outcome import Outcome

EXPORT = "intoto"


@dataclass(frozen=True, slots=True)
class VerdictStatements:
    """What is to be signed."""

    verdict: Verdict
    snapshot: Snapshot
    snapshot_digest: str
    taken: Sequence[GatheredRun]


def seal(context: Context, proof: VerdictStatements) -> tuple[bytes, str]:
    """The bundle, the verdict's envelope first, and the id of the key. Raises KeyUnusableError."""
    key = signing_key(context)
    cells = tuple(_cell_statements(context, proof))
    first = verdict_statement(proof.verdict, proof.snapshot, proof.snapshot_digest, cells)
    payloads = [canonical(first), *(one.payload for one in cells)]
    return context.gate.notary.sign(payloads, key.id), key.id


def _cell_statements(context: Context, proof: VerdictStatements) -> Iterator[CellStatement]:
    taken = {one.id: one for one in proof.taken}
    for cell in proof.snapshot.cells:
        if not _has_results(cell):
            continue
        # A cell that reruns completed: what each of its runs had.
        for run in sorted({cell.run, *(job.run for job in cell.jobs if job.run)}):
            told = "".join(context.export(EXPORT, taken[run].evidence, cell.id))
            about = replace(cell, run=run)
            statement = cell_statement(json.loads(told), about, proof.verdict.evidence_digest)
            yield CellStatement(run=run, cell=cell.id, payload=canonical(statement))


def _has_results(cell: CellEvidence) -> bool:
    """Nothing is stated of a machine that was never had, or is still at work."""
    return cell.state == CellState.DONE.value and cell.outcome is not Outcome.NOT_AVAILABLE
