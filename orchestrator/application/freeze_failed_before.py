"""Freeze what failed in other runs of the same, whatever way it was run again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from orchestrator.application.freeze_cell import Before, freeze_cell, quarantine_of
from orchestrator.application.gather_evidence import (
    GatheredCell,
    GatheredRun,
    is_of_one_subject,
    is_of_the_same,
)
from orchestrator.domain.facts import TestFact
from orchestrator.domain.gate.failed_before import failed_before, failed_elsewhere
from orchestrator.domain.gate.snapshot import CellEvidence, FailedTest, JobEvidence, Quarantine
from orchestrator.domain.gate.tolerance import failing_results
from orchestrator.domain.identity import normal_nodeid
from orchestrator.domain.outcome import Outcome, TestOutcome

_FINAL = (Outcome.PASSED, Outcome.FAILED, Outcome.TIMED_OUT)
_PASSED = (TestOutcome.PASSED, TestOutcome.XPASSED)
_BAD = (TestOutcome.FAILED, TestOutcome.ERROR)
_NOTHING = Before(0, None, frozenset())


def with_failed_before(
    cells: Sequence[CellEvidence], taken: Sequence[GatheredRun], quarantines: Sequence[Quarantine]
) -> tuple[CellEvidence, ...]:
    """The cells, with what failed in those of these runs that tested the same subject.

    Args:
        cells: As they stand.
        taken: All runs that may be told of, oldest first; the cells' own among them.
        quarantines: The product's.
    """
    history = _History.of(taken, quarantines)
    return tuple(cell if cell.ingested else _with_history(cell, history) for cell in cells)


def _with_history(cell: CellEvidence, history: _History) -> CellEvidence:
    own = {job.id for job in cell.jobs}
    then = [*history.with_other_payloads(cell, cell.run), *history.of_the_same(cell, cell.run)]
    failed = {
        job.id: one.run
        for one in sorted(then, key=lambda one: one.run)
        for job in one.jobs
        if job.id not in own and any(failing_results(one, job, blocking=True))
    }
    return replace(
        cell,
        jobs=tuple(
            _told(cell, job, history) if job.outcome in _FINAL else job for job in cell.jobs
        ),
        jobs_failed=failed,
    )


def _told(cell: CellEvidence, job: JobEvidence, history: _History) -> JobEvidence:
    run = job.run or cell.run
    passing = history.passing(run, cell.id, job.id)
    before = failed_before(cell, job, history.of_the_same(cell, run), passing=passing)
    others = history.with_other_payloads(cell, run)
    elsewhere = failed_elsewhere(cell, job, others, passing=passing)
    known = {one.nodeid for one in before}
    gone = [one for one in elsewhere.gone if one.nodeid not in known]
    retried = history.retried(run, cell, job.id)
    return replace(
        job,
        failed_before=(*retried, *before, *gone),
        passed_after=elsewhere.passed_after,
    )


@dataclass(frozen=True, slots=True)
class _History:
    """All cells of some runs, as they would stand alone."""

    runs: Mapping[str, GatheredRun]
    """By id, oldest first."""
    cells: Mapping[tuple[str, str], CellEvidence]
    """By run and cell; those that others produced are not among them."""
    quarantines: Sequence[Quarantine]

    @classmethod
    def of(cls, taken: Sequence[GatheredRun], quarantines: Sequence[Quarantine]) -> _History:
        cells = {
            (one.id, cell.id): freeze_cell(GatheredCell(one, cell), _NOTHING, quarantines)
            for one in taken
            for cell in one.evidence.record.cells
            if cell.ingested is None
        }
        return cls({one.id: one for one in taken}, cells, quarantines)

    def of_the_same(self, cell: CellEvidence, run: str) -> list[CellEvidence]:
        """The cell in other runs of the payload and the subject of `run`."""
        same = (one for one in self.runs.values() if is_of_the_same(self.runs[run], one))
        return self._there(cell, run, same)

    def with_other_payloads(self, cell: CellEvidence, run: str) -> list[CellEvidence]:
        """The cell in runs of the subject of `run` with another payload."""
        mine = self.runs[run]
        same = (one for one in self.runs.values() if is_of_one_subject(mine.spec, one.spec))
        return self._there(cell, run, (one for one in same if not is_of_the_same(mine, one)))

    def _there(
        self, cell: CellEvidence, run: str, runs: Iterable[GatheredRun]
    ) -> list[CellEvidence]:
        names = [(one.id, cell.id) for one in runs if one.id != run]
        return [self.cells[name] for name in names if name in self.cells]

    def passing(self, run: str, cell: str, job: str) -> frozenset[str]:
        """Tests of a job that pass, as `normal_nodeid` has them."""
        return frozenset(normal_nodeid(test.nodeid) for test in self._passed(run, cell, job))

    def retried(self, run: str, cell: CellEvidence, job: str) -> list[FailedTest]:
        """Tests of a job that failed, and passed when the suite itself ran them again."""
        return [
            FailedTest(
                job=job,
                nodeid=test.nodeid,
                signature="",
                message="it failed, and passed when its suite ran it again",
                quarantine=quarantine_of(test.nodeid, cell.platform, self.quarantines),
                run=run,
            )
            for test in self._passed(run, cell.id, job)
            if any(outcome in _BAD for outcome in test.earlier)
        ]

    def _passed(self, run: str, cell: str, job: str) -> list[TestFact]:
        tests = self.runs[run].evidence.tests.get(cell, ())
        return [test for test in tests if test.job == job and test.outcome in _PASSED]
