"""Freeze which tests each job is, and which of them it lacks beside other cells."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from orchestrator.application.gather_evidence import GatheredRun
from orchestrator.domain.gate.snapshot import CellEvidence, JobEvidence
from orchestrator.domain.identity import normal_nodeid

_Tests = Counter[str]
"""Node ids as `normal_nodeid` has them; several tests may share one."""


def with_test_sets(
    cells: Sequence[CellEvidence], taken: Iterable[GatheredRun]
) -> tuple[CellEvidence, ...]:
    """The cells, with the digest of each job's tests and those that it has elsewhere alone."""
    known = _collected(taken)
    sets = {
        (cell.id, cell.run, job.id): _of(known, cell, job) for cell in cells for job in cell.jobs
    }
    everywhere: dict[str, _Tests] = {}
    for (_, _, job_id), tests in sets.items():
        everywhere[job_id] = everywhere.get(job_id, Counter()) | tests
    return tuple(
        replace(
            cell,
            jobs=tuple(
                _told(job, sets[cell.id, cell.run, job.id], everywhere[job.id]) for job in cell.jobs
            ),
        )
        for cell in cells
    )


def _collected(taken: Iterable[GatheredRun]) -> Mapping[tuple[str, str, str], _Tests]:
    """By run, cell and job."""
    found: dict[tuple[str, str, str], _Tests] = {}
    for one in taken:
        for cell, tests in one.evidence.tests.items():
            for test in tests:
                mine = found.setdefault((one.id, cell, test.job), Counter())
                mine[normal_nodeid(test.nodeid)] += 1
    return found


def _of(
    known: Mapping[tuple[str, str, str], _Tests], cell: CellEvidence, job: JobEvidence
) -> _Tests:
    """Nothing where tests are counted that have no name."""
    tests = known.get((job.run or cell.run, cell.id, job.id), Counter())
    return tests if tests.total() == job.counts.collected else Counter()


def _told(job: JobEvidence, tests: _Tests, everywhere: _Tests) -> JobEvidence:
    if not tests:
        return job
    digest = hashlib.sha256("\n".join(sorted(tests.elements())).encode()).hexdigest()
    return replace(
        job, tests_digest=digest, tests_lacking=tuple(sorted((everywhere - tests).elements()))
    )
