"""Freeze what failed in other runs of the same, whatever way it was run again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from orchestrator.application.freeze_cell import Before, freeze_cell
from orchestrator.application.gather_evidence import Taken, TakenCell, is_of_the_same
from orchestrator.domain.gate.failed_before import failed_before
from orchestrator.domain.gate.snapshot import CellEvidence, Quarantine
from orchestrator.domain.outcome import Outcome

_FINAL = (Outcome.PASSED, Outcome.FAILED, Outcome.TIMED_OUT)
_NOTHING = Before(0, None, frozenset())


def with_failed_before(
    cells: Sequence[CellEvidence], taken: Sequence[Taken], quarantines: Sequence[Quarantine]
) -> tuple[CellEvidence, ...]:
    """The cells, with what failed in those of these runs that tested the same.

    Args:
        cells: As they stand.
        taken: All runs that may be told of, oldest first; the cells' own among them.
        quarantines: The product's.
    """
    runs = {one.id: one for one in taken}
    frozen = {
        (one.id, cell.id): freeze_cell(TakenCell(one, cell), _NOTHING, quarantines)
        for one in taken
        for cell in one.evidence.record.cells
        if cell.ingested is None
    }

    def others(cell: CellEvidence, run: str) -> list[CellEvidence]:
        same = [one.id for one in taken if one.id != run and is_of_the_same(runs[run], one)]
        return [frozen[one, cell.id] for one in same if (one, cell.id) in frozen]

    return tuple(
        replace(
            cell,
            jobs=tuple(
                replace(
                    job, failed_before=failed_before(cell, job, others(cell, job.run or cell.run))
                )
                if job.outcome in _FINAL and not cell.ingested
                else job
                for job in cell.jobs
            ),
        )
        for cell in cells
    )
