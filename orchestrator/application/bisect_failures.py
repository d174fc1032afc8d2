"""Bisection between the last green and the first red run, on one machine of the failing platform.

A run of the failing jobs is launched with the red revision. Its machine then waits, while the
program that builds the wheels requests one retest after the other.
"""

from __future__ import annotations

from dataclasses import replace

from orchestrator.application.attribute_failures import failing_keys
from orchestrator.application.context import Context
from orchestrator.application.launch_run import IdempotencyKey, Launched, LaunchOrder, launch_run
from orchestrator.domain.bisect import BisectRange
from orchestrator.domain.cell import Cell, CellState, RunSpec
from orchestrator.domain.matrix import GitSource, Matrix, Platform
from orchestrator.domain.retests import (
    RetestKind,
    RetestOptions,
    RetestPlan,
    RetestSession,
    by_job,
    split_key,
)
from orchestrator.store.retests import NoRetestsError


class NothingToBisectError(ValueError):
    """The cell lacks a requirement of a bisection; the message names it."""


def bisect_range(context: Context, cell: Cell) -> BisectRange:
    """Return the range of revisions to search. Raises NothingToBisectError."""
    stores = context.stores
    spec = stores.runs.spec(cell.run_id)
    git = _git(spec)
    if not cell.has_reached(CellState.DIAGNOSING):
        raise NothingToBisectError(f"cell {cell.name} is still at work; wait until its jobs ran")
    keys = failing_keys(stores, cell, spec)
    if not keys:
        raise NothingToBisectError(f"nothing failed in cell {cell.name}")
    platform = stores.cells.plan(cell.id).platform.id
    green = stores.gates.last_green(
        spec.manifest.name, platform, before_run=cell.run_id, ingested=False
    )
    then = stores.runs.spec(green.run_id).matrix.subject.git if green else None
    return BisectRange(
        url=git.url,
        good=then.rev if then else "",
        good_run=green.run_id if green and then else "",
        bad=git.rev,
        tests=keys,
    )


def begin_bisect(
    context: Context, cell: Cell, *, minutes: float, key: IdempotencyKey | None
) -> Launched:
    """Launch the run whose machine waits for retests.

    Raises NothingToBisectError, and what `launch_run` raises.
    """
    return launch_run(context, bisect_order(context, cell, minutes=minutes), key)


def bisect_order(context: Context, cell: Cell, *, minutes: float) -> LaunchOrder:
    """Return the launch order for the failing jobs of one cell, with retests awaited."""
    stores = context.stores
    found = bisect_range(context, cell)
    spec, run = stores.runs.spec(cell.run_id), stores.runs.get(cell.run_id)
    matrix = _of_one_platform(spec.matrix, stores.cells.plan(cell.id).platform, minutes)
    return LaunchOrder(
        matrix=context.documents.matrix_document(matrix),
        name=f"bisect of run {cell.run_id}",
        payload=run.payload_digest if run else "",
        subject_digest=spec.subject_digest,
        subject_built=spec.subject_built,
        baseline_digest=spec.baseline_digest,
        only={cell.name: sorted({split_key(test)[0] for test in found.tests})},
        rerun_of=cell.run_id,
        retests=RetestOptions(max_tests=len(found.tests), await_minutes=minutes),
    )


def _git(spec: RunSpec) -> GitSource:
    git = spec.matrix.subject.git
    if git is None or spec.subject_digest is None:
        source = spec.matrix.subject.source
        raise NothingToBisectError(
            f"the subject comes from {source}: only one of `git: {{url, rev}}` has revisions"
        )
    return git


def _of_one_platform(matrix: Matrix, platform: Platform, minutes: float) -> Matrix:
    """Return the matrix with one platform, and the time limit for a bisection."""
    chosen = (s for s in matrix.jobs if s.on == "all" or platform.id in s.on)
    jobs = tuple(replace(s, on="all" if s.on == "all" else (platform.id,)) for s in chosen)
    limits = replace(matrix.limits, max_minutes=matrix.limits.max_minutes + minutes)
    return replace(matrix, platforms=(platform,), jobs=jobs, limits=limits)


def ask_retest(context: Context, cell: Cell, ask: RetestPlan) -> RetestSession:
    """Request a retest of a revision on the cell's machine; idempotent by key.

    A request without tests is for all tests that failed in the cell. Raises NoRetestsError.
    """
    stores, attempt_id = context.stores, _waiting(context, cell)
    if not ask.tests:
        keys = failing_keys(stores, cell, stores.runs.spec(cell.run_id))
        ask = replace(ask, tests=by_job(keys))
    return stores.retests.ask(
        attempt_id, replace(ask, kind=RetestKind.BISECT), at=context.clock.now()
    )


def dismiss(context: Context, cell: Cell) -> None:
    """End a cell's retests, so that its machine is released; idempotent."""
    attempts = context.stores.cells.attempts(cell.id)
    if attempts:
        context.stores.retests.end_retests(attempts[-1].id, at=context.clock.now())


def _waiting(context: Context, cell: Cell) -> str:
    stores = context.stores
    order = stores.runs.spec(cell.run_id).retests
    attempts = stores.cells.attempts(cell.id)
    if cell.state is not CellState.DIAGNOSING or not attempts:
        raise NoRetestsError.because(cell.name, cell.state)
    if (
        order is None
        or not order.await_minutes
        or stores.retests.are_retests_ended(attempts[-1].id)
    ):
        raise NoRetestsError(f"the machine of cell {cell.name} does not wait for retests")
    return attempts[-1].id
