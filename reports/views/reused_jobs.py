"""Jobs of a cell that reuse earlier evidence, and why the others were run."""

from __future__ import annotations

from orchestrator.domain.run_record import CellRecord


def reuse_of(cell: CellRecord) -> tuple[tuple[str, str], ...]:
    """Return jobs' titles with the decision about reuse; empty if reuse was not requested."""
    told: dict[str, list[str]] = {}
    for job in cell.jobs:
        if job.reuse:
            said = job.reuse if job.reused_from else f"not reused: {job.reuse}"
            told.setdefault(said, []).append(job.title or job.id)
    return tuple((", ".join(titles), said) for said, titles in told.items())


def sources_of(cell: CellRecord) -> tuple[str, ...]:
    """Return the runs whose evidence all jobs of the cell reuse; empty if the cell ran a job."""
    if not cell.jobs or not all(job.reused_from for job in cell.jobs):
        return ()
    return tuple(dict.fromkeys(job.reused_from for job in cell.jobs))
