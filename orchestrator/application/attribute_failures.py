"""Root cause of a run's failures, from its retests, its last green run and a second machine."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from orchestrator.application.diagnosis_inputs import failing_keys, last_time
from orchestrator.domain.cell import Cell, CellState
from orchestrator.domain.fingerprint import environment_diff
from orchestrator.domain.matrix import Baseline
from orchestrator.domain.retests import retests_of, split_key
from orchestrator.domain.root_cause import (
    Attribution,
    AttributionContext,
    ConfirmationResult,
    DiagnosedTest,
    attribute_failure,
    diagnosed_of,
)
from orchestrator.store.errors import DamagedError
from orchestrator.store.stores import Stores

logger = logging.getLogger(__name__)


def attribute_run(stores: Stores, run_id: str) -> Mapping[str, tuple[Attribution, ...]]:
    """Return the root causes of every cell with retests, by cell name."""
    cells = {cell.name: cell for cell in stores.cells.of_run(run_id)}
    return {name: attribute_cell(stores, cells[name]) for name in stores.retests.of_run(run_id)}


def diagnosed_cells(
    stores: Stores, run_id: str, cells: Iterable[Cell]
) -> tuple[DiagnosedTest, ...]:
    """Return retested failing tests of every cell whose retests are finished.

    Retests are beside the results: a run is told without them where they cannot be read.
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
    """Return the same cell in the confirmation run, with everything that ran there unchanged."""
    second = stores.retests.confirmation_of(cell.run_id)
    if second is None:
        return None
    there = [other for other in stores.cells.of_run(second) if other.name == cell.name]
    if not there:
        return None
    here, other = (stores.results.environment(each.id) or {} for each in (cell, there[0]))
    machines = [lease.place for lease in stores.leases.of_run(second).get(there[0].id, ())]
    return ConfirmationResult(
        name=machines[-1] if machines else "another machine",
        run=second,
        outcomes=_outcomes(stores, there[0]),
        differs=environment_diff(here, other),
    )


def _outcomes(stores: Stores, cell: Cell) -> dict[str, tuple[str, ...]]:
    """Return the first outcome, then that of each retest, by test key."""
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
