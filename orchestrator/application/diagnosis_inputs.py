"""Inputs of a diagnosis: the failing tests of a cell, and the last green run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.application.job_outcomes import judge_jobs
from orchestrator.domain.cell import Cell, RunSpec
from orchestrator.domain.fingerprint import environment_diff
from orchestrator.domain.outcome import Outcome, TestOutcome
from orchestrator.domain.retests import RetestOptions, key_of
from orchestrator.domain.root_cause import Row
from orchestrator.store.stores import Stores

_BAD = (TestOutcome.FAILED, TestOutcome.ERROR)
_PACKAGE = "package "
_NOT_THERE = "-"


@dataclass(frozen=True, slots=True)
class LastTime:
    """The newest run in which the platform passed, and its differences."""

    run: str = ""
    packages: tuple[Row, ...] = ()
    """Package versions without the subject's."""
    surroundings: tuple[Row, ...] = ()
    payload: str = ""
    """Digest of its payload."""

    @property
    def pins(self) -> tuple[str, ...]:
        """Return requirements that pin the packages of that run."""
        there = (row for row in self.packages if row[1] != _NOT_THERE)
        return tuple(f"{name}=={then}" for name, then, _ in there)


def failing_keys(stores: Stores, cell: Cell, spec: RunSpec) -> tuple[str, ...]:
    """Return keys of tests that failed or ended in error, and of commands that failed."""
    suites = {job.id for job in spec.manifest.job if job.pytest}
    tests = [
        key_of(test.job, test.nodeid)
        for test in stores.results.tests(cell.id)
        if test.outcome in _BAD
    ]
    bad = (Outcome.FAILED, Outcome.TIMED_OUT)
    jobs = judge_jobs(stores, cell, spec)
    commands = [key_of(x.id, "") for x in jobs if x.id not in suites and x.outcome in bad]
    return (*tests, *commands)


def keys_in_question(
    stores: Stores, cell: Cell, spec: RunSpec, order: RetestOptions
) -> tuple[str, ...]:
    """Return keys of failures and requested tests, limited by the order."""
    jobs = set(stores.cells.plan(cell.id).jobs)
    named = [key for key in order.tests if key.partition("::")[0] in jobs]
    keys = dict.fromkeys([*named, *failing_keys(stores, cell, spec)])
    return tuple(keys)[: order.max_tests]


def last_time(stores: Stores, cell: Cell, spec: RunSpec) -> LastTime:
    """Return the last green cell of the platform and environment, with its differences."""
    subject, plan = spec.matrix.subject, stores.cells.plan(cell.id)
    green = stores.gates.last_green(
        spec.manifest.name, plan.platform.id, before_run=cell.run_id, ingested=False
    )
    run = stores.runs.get(green.run_id) if green else None
    if green is None or run is None:
        return LastTime()
    then = _environment_of(stores, green.run_id, cell.name)
    now = stores.results.environment(cell.id) or {}
    rows = environment_diff(then, now) if then else ()
    own = f"{_PACKAGE}{subject.name.lower().replace('_', '-')}"
    packages = tuple(
        (what.removeprefix(_PACKAGE), old, new)
        for what, old, new in rows
        if what.startswith(_PACKAGE) and what != own
    )
    surroundings = tuple(row for row in rows if not row[0].startswith(_PACKAGE))
    return LastTime(green.run_id, packages, surroundings, run.payload_digest)


def _environment_of(stores: Stores, run_id: str, name: str) -> Mapping[str, object]:
    cells = [cell for cell in stores.cells.of_run(run_id) if cell.name == name]
    return (stores.results.environment(cells[0].id) or {}) if cells else {}
