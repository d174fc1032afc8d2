"""Freeze which tests each job lost, won and renamed since the baseline, by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from orchestrator.application.context import Context
from orchestrator.application.gather_evidence import GatheredRun
from orchestrator.application.reused_results import told_tests
from orchestrator.domain.alias import AliasState
from orchestrator.domain.cell import Cell
from orchestrator.domain.facts import TestFact
from orchestrator.domain.gate.snapshot import CellEvidence, JobEvidence
from orchestrator.domain.gate.test_changes import BaselineTests, Tests, changes_since
from orchestrator.domain.identity import normal_nodeid
from orchestrator.domain.outcome import Outcome, TestOutcome

_FINAL = (Outcome.PASSED, Outcome.FAILED, Outcome.TIMED_OUT)


@dataclass(frozen=True, slots=True)
class BaselineEvidence:
    """What the tests of a product are compared with."""

    passed: tuple[str, ...]
    """Runs that the gate passed last."""
    green: Mapping[str, str]
    """By platform, its last green run."""


def with_changes(
    context: Context,
    product: str,
    cells: Sequence[CellEvidence],
    taken: Sequence[GatheredRun],
    compared: BaselineEvidence,
) -> tuple[CellEvidence, ...]:
    """The cells, with what became of the tests that each job had in the baseline."""
    collected = {one.id: one.evidence.tests for one in taken}
    renames = _renames(context, product)

    def told(cell: CellEvidence, job: JobEvidence, then: Sequence[BaselineTests]) -> JobEvidence:
        tests = collected.get(job.run or cell.run, {}).get(cell.id, ())
        now = _names(test for test in tests if test.job == job.id)
        had = job.counts.collected or any(one.by_job.get(job.id) for one in then)
        if job.outcome not in _FINAL or not had:
            return job
        is_known = sum(test.job == job.id for test in tests) == job.counts.collected
        places = (*job.test_set.modules, *job.test_set.ignored)
        changes = changes_since(
            job.id,
            now if is_known else None,
            then,
            renames=renames.get(job.id, {}),
            left_out=[place.path for place in places],
        )
        return replace(job, changes=changes)

    def whole(cell: CellEvidence) -> CellEvidence:
        then = _baselines(context, cell, compared)
        present = {job.id for job in cell.jobs}
        absent = {
            name: tuple(sorted(tests.elements()))
            for one in then
            for name, tests in sorted(one.by_job.items())
            if name not in present
        }
        jobs = tuple(told(cell, job, then) for job in cell.jobs)
        return replace(cell, jobs=jobs, jobs_gone=absent)

    return tuple(whole(cell) for cell in cells)


def _baselines(
    context: Context, cell: CellEvidence, compared: BaselineEvidence
) -> list[BaselineTests]:
    """Of the runs that the gate passed last, and of the platform's last green one."""
    green = compared.green.get(cell.platform, "")
    groups = (_of_one_payload(context, compared.passed), (green,) if green else ())
    return [found for runs in dict.fromkeys(groups) if (found := _baseline(context, cell, runs))]


def _of_one_payload(context: Context, runs: Sequence[str]) -> tuple[str, ...]:
    """Those with the payload of the last one: what it does not have any more was let go then."""
    payloads = {
        run: known.payload_digest for run in runs if (known := context.stores.runs.get(run))
    }
    return tuple(run for run in runs if runs and payloads.get(run) == payloads.get(runs[-1]))


def _baseline(context: Context, cell: CellEvidence, runs: Sequence[str]) -> BaselineTests | None:
    by_job: dict[str, Tests] = {}
    found: list[str] = []
    for run in runs:
        one = _same_cell(context.stores.cells.of_run(run), cell)
        tests = told_tests(context.stores, one.id) if one else []
        for job in {test.job for test in tests}:
            mine = _names(test for test in tests if test.job == job)
            by_job[job] = by_job.get(job, Counter()) | mine
        found += [run] if tests else []
    return BaselineTests(tuple(found), by_job) if found else None


def _same_cell(cells: Sequence[Cell], cell: CellEvidence) -> Cell | None:
    """The cell of that name; where no environment is called so, the platform's first one."""
    named = [one for one in cells if one.name == cell.id]
    others = [one for one in cells if one.name.partition(".")[0] == cell.platform]
    return next(iter(named or others), None)


def _names(tests: Iterable[TestFact]) -> Tests:
    """Without modules that skipped themselves: they hide tests, and are none."""
    return Counter(
        normal_nodeid(test.nodeid)
        for test in tests
        if "::" in test.nodeid or test.outcome is not TestOutcome.SKIPPED
    )


def _renames(context: Context, product: str) -> Mapping[str, Mapping[str, str]]:
    """By job, the newer name of each older one that a person confirmed."""
    found: dict[str, dict[str, str]] = {}
    for one in context.stores.aliases.list(product=product, state=AliasState.CONFIRMED):
        found.setdefault(one.job, {})[normal_nodeid(one.old)] = normal_nodeid(one.new)
    return found
