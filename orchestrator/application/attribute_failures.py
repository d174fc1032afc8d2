"""Root cause of a run's failures, from its retests, its last green run and a second machine."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from orchestrator.application.job_outcomes import judge_jobs
from orchestrator.domain.cell import Cell, CellState, RunSpec
from orchestrator.domain.environment_fingerprint import PACKAGE, environment_diff
from orchestrator.domain.matrix import Baseline
from orchestrator.domain.outcome import Outcome, TestOutcome
from orchestrator.domain.retests import (
    RetestOptions,
    key_of,
    retests_of,
    split_key,
)
from orchestrator.domain.root_cause import (
    Attribution,
    AttributionContext,
    ConfirmationResult,
    DiagnosedTest,
    Row,
    attribute_failure,
    diagnosed_of,
)
from orchestrator.store.errors import DamagedError
from orchestrator.store.stores import Stores

logger = logging.getLogger(__name__)


def attribute_run(stores: Stores, run_id: str) -> Mapping[str, tuple[Attribution, ...]]:
    """Return the root causes of failing tests of every cell with retests, by cell name."""
    cells = {cell.name: cell for cell in stores.cells.of_run(run_id)}
    return {name: attribute_cell(stores, cells[name]) for name in stores.retests.of_run(run_id)}


def diagnosed_cells(
    stores: Stores, run_id: str, cells: Iterable[Cell]
) -> tuple[DiagnosedTest, ...]:
    """Return retested failing tests of every cell whose retests are finished.

    Return nothing if the retests cannot be read: they only supplement the results.
    """
    try:
        retests = stores.retests.of_run(run_id)
        return tuple(
            found
            for cell in cells
            if cell.name in retests and cell.has_reached(CellState.RELEASING)
            for found in diagnosed_of(cell.name, attribute_cell(stores, cell), retests[cell.name])
        )
    except DamagedError:
        logger.exception("run %s: its retests cannot be read", run_id)
        return ()


def attribute_cell(stores: Stores, cell: Cell) -> tuple[Attribution, ...]:
    """Return the root causes of a cell's failing tests."""
    spec, run = stores.runs.spec(cell.run_id), stores.runs.get(cell.run_id)
    attempts = stores.cells.attempts(cell.id)
    retest_sessions = stores.retests.of_attempt(attempts[-1].id) if attempts else ()
    last, baseline = last_time(stores, cell, spec), spec.matrix.baseline
    about = AttributionContext(
        baseline=baseline_name(spec.matrix.subject.name, baseline) if baseline else "",
        last_green=last.run,
        packages=last.packages,
        surroundings=last.surroundings,
        same_tests=run is not None and last.payload == run.payload_digest,
        second=_second(stores, cell),
    )
    return attribute_failure(failing_keys(stores, cell, spec), retests_of(retest_sessions), about)


def baseline_name(subject: str, baseline: Baseline) -> str:
    """Return the baseline in words: ``torchbridge 0.4.5``, or its source."""
    if baseline.package:
        return baseline.package.replace("==", " ")
    if baseline.git:
        return f"{subject} at {baseline.git.rev}"
    return f"{subject} of {baseline.wheel}" if baseline.wheel else "payload"


def _second(stores: Stores, cell: Cell) -> ConfirmationResult | None:
    """Return the results of the cell of the same name in the confirmation run; None without one."""
    second = stores.retests.confirmation_of(cell.run_id)
    if second is None:
        return None
    there = [other for other in stores.cells.of_run(second) if other.name == cell.name]
    if not there:
        return None
    here, other = (stores.results.environment(each.id) or {} for each in (cell, there[0]))
    machines = [lease.place for lease in stores.leases.of_run(second).get(there[0].id, ())]
    subject = stores.runs.spec(cell.run_id).matrix.subject.name
    return ConfirmationResult(
        name=machines[-1] if machines else "another machine",
        run=second,
        outcomes=_outcomes(stores, there[0]),
        differs=environment_diff(here, other, subject=subject),
    )


def _outcomes(stores: Stores, cell: Cell) -> dict[str, tuple[str, ...]]:
    """Return the outcomes of each retested test, first run first, by test key."""
    retests = stores.retests.of_run(cell.run_id).get(cell.name, ())
    found: dict[str, list[str]] = {}
    for retest in retests:
        for key, word in retest.outcomes.items():
            found.setdefault(key, []).append(word)
    first = {(test.job, test.nodeid): test for test in stores.results.tests(cell.id)}
    for key, words in found.items():
        test = first.get(split_key(key))
        if test is not None and test.final:
            words.insert(0, test.outcome.word)
    return {key: tuple(words) for key, words in found.items()}


_BAD = (TestOutcome.FAILED, TestOutcome.ERROR)

_NOT_THERE = "-"


@dataclass(frozen=True, slots=True)
class LastTime:
    """The newest run in which the platform passed, and how its environment differs."""

    run: str = ""
    packages: tuple[Row, ...] = ()
    """Packages other than the subject whose versions differ: (name, version then, version now)."""
    surroundings: tuple[Row, ...] = ()
    payload: str = ""
    """Digest of that run's payload."""

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
    """Return keys of requested tests, then of failures; at most `order.max_tests`."""
    jobs = set(stores.cells.plan(cell.id).jobs)
    named = [key for key in order.tests if key.partition("::")[0] in jobs]
    keys = dict.fromkeys([*named, *failing_keys(stores, cell, spec)])
    return tuple(keys)[: order.max_tests]


def last_time(stores: Stores, cell: Cell, spec: RunSpec) -> LastTime:
    """Return the last green run of the platform before the cell's run; empty if there is none."""
    plan = stores.cells.plan(cell.id)
    green = stores.gates.last_green(
        spec.manifest.name, plan.platform.id, before_run=cell.run_id, ingested=False
    )
    run = stores.runs.get(green.run_id) if green else None
    if green is None or run is None:
        return LastTime()
    then = _environment_of(stores, green.run_id, cell.name)
    now = stores.results.environment(cell.id) or {}
    rows = environment_diff(then, now, subject=spec.matrix.subject.name) if then else ()
    packages = tuple(
        (what.removeprefix(PACKAGE), old, new)
        for what, old, new in rows
        if what.startswith(PACKAGE)
    )
    surroundings = tuple(row for row in rows if not row[0].startswith(PACKAGE))
    return LastTime(green.run_id, packages, surroundings, run.payload_digest)


def _environment_of(stores: Stores, run_id: str, name: str) -> Mapping[str, object]:
    cells = [cell for cell in stores.cells.of_run(run_id) if cell.name == name]
    return (stores.results.environment(cells[0].id) or {}) if cells else {}
