"""Tests of cells by job, as a gate compares them: with the checks and metrics of commands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import reduce
from operator import and_, or_

from orchestrator.domain.event_facts import TestFact
from orchestrator.domain.gate.changes_of_tests import CHECK, EXIT, METRIC, Tests
from orchestrator.domain.node_ids import normal_nodeid
from orchestrator.domain.outcome import Outcome, TestOutcome
from orchestrator.domain.run_record import CellRecord, JobRecord

FINAL = (Outcome.PASSED, Outcome.FAILED, Outcome.TIMED_OUT)
_RAN = (
    TestOutcome.PASSED,
    TestOutcome.FAILED,
    TestOutcome.ERROR,
    TestOutcome.XFAILED,
    TestOutcome.XPASSED,
)


@dataclass(frozen=True, slots=True)
class CellTests:
    """Tests of a cell by job, as `normal_nodeid`."""

    collected: Mapping[str, Tests]
    """Collected tests, without modules that skipped themselves, because these hide tests."""
    ran: Mapping[str, Tests]
    passed: Mapping[str, Tests]

    @classmethod
    def from_facts(cls, tests: Iterable[TestFact]) -> CellTests:
        """Return the tests that pytest reported."""
        collected, ran, passed = dict[str, Tests](), dict[str, Tests](), dict[str, Tests]()
        for test in tests:
            name = normal_nodeid(test.nodeid)
            for found, is_in in (
                (collected, "::" in test.nodeid or test.outcome is not TestOutcome.SKIPPED),
                (ran, test.outcome in _RAN),
                (passed, test.outcome is TestOutcome.PASSED),
            ):
                if is_in:
                    found.setdefault(test.job, Counter())[name] += 1
        return cls(collected, ran, passed)

    @classmethod
    def from_jobs(cls, jobs: Iterable[JobRecord]) -> CellTests:
        """Return the checks, metrics and exits of finished commands, as tests."""
        collected, ran, passed = dict[str, Tests](), dict[str, Tests](), dict[str, Tests]()
        for job in (job for job in jobs if job.kind != "suite" and job.outcome in FINAL):
            checks = {f"{CHECK}{one.name}": one.outcome for one in job.checks}
            metrics = {f"{METRIC}{one.name}" for one in (*job.metrics, *job.turns)}
            always = {*metrics, EXIT}
            collected[job.id] = Counter([*checks, *always])
            ran[job.id] = Counter(name for name, how in checks.items() if how != "skipped")
            passed[job.id] = Counter(name for name, how in checks.items() if how == "passed")
        return cls(collected, ran, passed)

    def only(self, is_kept: Callable[[str, str], bool]) -> CellTests:
        """Return the tests for which `is_kept`, called with job and name, returns True."""
        return CellTests(
            *(
                {
                    job: Counter({name: n for name, n in tests.items() if is_kept(job, name)})
                    for job, tests in by_job.items()
                }
                for by_job in (self.collected, self.ran, self.passed)
            )
        )

    def __or__(self, other: CellTests) -> CellTests:
        return CellTests(
            union(self.collected, other.collected),
            union(self.ran, other.ran),
            union(self.passed, other.passed),
        )


NO_TESTS = CellTests({}, {}, {})


def union(one: Mapping[str, Tests], other: Mapping[str, Tests]) -> dict[str, Tests]:
    """Return, by job, the tests of both; each counts as often as where it occurs most."""
    return {job: one.get(job, Counter()) | other.get(job, Counter()) for job in {**one, **other}}


NodeIds = Mapping[str, Mapping[str, Set[str]]]
"""Node ids by job and `normal_nodeid`."""


def node_ids(tests: Iterable[TestFact]) -> dict[str, dict[str, set[str]]]:
    """Return the node ids of tests by job and `normal_nodeid`."""
    found: dict[str, dict[str, set[str]]] = {}
    for test in tests:
        names = found.setdefault(test.job, {})
        names.setdefault(normal_nodeid(test.nodeid), set()).add(test.nodeid)
    return found


def own_jobs(cell: CellRecord) -> Sequence[JobRecord]:
    """Return the cell's jobs; none of an ingested cell, whose checks have other names."""
    return cell.jobs if cell.ingested is None else ()


def lost_tests(then: Mapping[str, Tests], anywhere: Mapping[str, Tests]) -> dict[str, Tests]:
    """Return, by job, the tests of `then` that are not in `anywhere`."""
    lost = {job: tests - anywhere.get(job, Counter()) for job, tests in then.items()}
    return {job: tests for job, tests in lost.items() if tests}


def expected_tests(
    then: Sequence[CellTests], anywhere: CellTests, jobs: frozenset[str]
) -> CellTests:
    """Return the tests of earlier cells that a cell must have; see `_expected`."""
    return CellTests(
        _expected([had.collected for had in then], anywhere.collected, jobs),
        _expected([had.ran for had in then], anywhere.ran, jobs),
        _expected([had.passed for had in then], anywhere.passed, jobs),
    )


def _expected(
    then: Sequence[Mapping[str, Tests]], anywhere: Mapping[str, Tests], jobs: frozenset[str]
) -> dict[str, Tests]:
    """Return, by job, the tests of earlier cells that a cell must have.

    For one earlier cell, these are all its tests. For several, whose present names are unknown,
    these are the tests that each of them with the job had, and the tests that no present cell has.

    Args:
        then: Tests of the earlier cells by job.
        anywhere: Tests of all present cells by job.
        jobs: Jobs of the cell. Other ones are returned if all the earlier cells had them, or if
            no present cell has them.
    """
    found: dict[str, Tests] = {}
    for job in sorted({job for tests in then for job in tests}):
        had = [tests[job] for tests in then if job in tests]
        if job in jobs or job not in anywhere or len(had) == len(then):
            lost = reduce(or_, had) - anywhere.get(job, Counter())
            found[job] = reduce(and_, had) | lost
    return found
