"""Which jobs of a cell stand on earlier evidence, and why the others were run."""

from __future__ import annotations

from orchestrator.domain.run_record import CellRecord


def reuse_of(cell: CellRecord) -> tuple[tuple[str, str], ...]:
    """Titles of jobs with what was decided about them; none where nobody asked for reuse."""
    told: dict[str, list[str]] = {}
    for job in cell.jobs:
        if job.reuse:
            said = job.reuse if job.reused_from else f"not reused: {job.reuse}"
            told.setdefault(said, []).append(job.title or job.id)
    return tuple((", ".join(titles), said) for said, titles in told.items())


def sources_of(cell: CellRecord) -> tuple[str, ...]:
    """The runs whose evidence stands for every job of the cell; none where it ran anything."""
    if not cell.jobs or not all(job.reused_from for job in cell.jobs):
        return ()
    return tuple(dict.fromkeys(job.reused_from for job in cell.jobs))
