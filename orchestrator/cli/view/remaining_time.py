"""How long it has taken, and how long it may still take."""

from __future__ import annotations

from datetime import datetime

from orchestrator.cli.responses import Cell, Job, Run
from orchestrator.domain.outcome import Counts

_ENOUGH_TESTS = 3
_ENOUGH_S = 3.0


def since(start: datetime | None, now: datetime) -> float:
    """Seconds since a moment; 0 where it is unknown, or where the clocks disagree."""
    return max((now - start).total_seconds(), 0.0) if start else 0.0


def job_seconds(job: Job, now: datetime) -> float | None:
    """How long a job has run, or None if it never started."""
    if job.duration_s is not None:
        return job.duration_s
    return since(job.started_at, now) if job.is_running else None


def reported(counts: Counts) -> int:
    """Tests that have an outcome."""
    return counts.collected - counts.missing


def job_left_s(job: Job, now: datetime) -> float | None:
    """What a running suite may still take if its tests go on at their pace; None if unknown."""
    counts = job.counts
    if not job.is_running or counts is None or reported(counts) < _ENOUGH_TESTS:
        return None
    seconds = since(job.started_at, now)
    if seconds < _ENOUGH_S:
        return None
    return seconds / reported(counts) * counts.missing


def run_left_s(run: Run, now: datetime) -> float | None:
    """What the run may still take; None unless all that is left is suites under way."""
    left = [_cell_left_s(cell, now) for cell in run.cells if not cell.is_done]
    known = [seconds for seconds in left if seconds is not None]
    return max(known) if known and len(known) == len(left) else None


def _cell_left_s(cell: Cell, now: datetime) -> float | None:
    open_jobs = [job for job in cell.jobs if job.outcome is None and job.duration_s is None]
    if cell.state != "running" or len(open_jobs) != 1:
        return None
    return job_left_s(open_jobs[0], now)
