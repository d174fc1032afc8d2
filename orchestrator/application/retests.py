"""Retests of a run's failures: a bisection on one machine, and a confirmation run on another."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import replace
from decimal import Decimal

from orchestrator.application.attribute_failures import failing_keys
from orchestrator.application.context import Context
from orchestrator.application.launch_run import IdempotencyKey, Launched, LaunchOrder, launch_run
from orchestrator.application.plan_run import plan_run
from orchestrator.domain.bisect import BisectRange
from orchestrator.domain.cell import Cell, CellState, RunSpec
from orchestrator.domain.matrix import GitSource, Matrix, Platform
from orchestrator.domain.retests import (
    SURE,
    RetestKind,
    RetestOptions,
    RetestPlan,
    RetestSession,
    by_job,
    split_key,
)
from orchestrator.store.retests import NoRetestsError

logger = logging.getLogger(__name__)


def request_confirmation_run(context: Context, run_id: str, *, max_usd: Decimal) -> str | None:
    """Launch the confirmation run of a run with failures; idempotent.

    Returns:
        The follow-up's id; None if nothing failed, where there is no other machine, or where
        it could cost more than `max_usd`.

    Raises:
        LookupError: There is no such run.
        PayloadMissingError, InvalidDocumentError: What it ran with is not here any more.
    """
    known = context.stores.retests.confirmation_of(run_id)
    if known is not None:
        return known
    order = _order(context, run_id)
    if order is None:
        return None
    worst = plan_run(context, order).worst_usd
    if worst is None or worst > max_usd:
        cost = f"{worst} USD" if worst is not None else "an unknown price"
        logger.warning("run %s: no second machine: %s is over %s USD", run_id, cost, max_usd)
        return None
    key = IdempotencyKey(f"confirmation-run:{run_id}", run_id)
    launched = launch_run(context, order, key)
    return context.stores.retests.add_confirmation(run_id, launched.run.id)


def _order(context: Context, run_id: str) -> LaunchOrder | None:
    """Return the launch order; None if nothing failed, or no other machine exists."""
    stores = context.stores
    run = stores.runs.get(run_id)
    if run is None:
        raise LookupError(f"there is no run {run_id!r}")
    spec = stores.runs.spec(run_id)
    failing = _failing(context, run_id, spec)
    others = {name: _other(context, cell) for name, (cell, _) in failing.items()}
    keys = {name: failing[name][1] for name, platform in others.items() if platform is not None}
    if not keys:
        return None
    kept = {platform.id: platform for platform in others.values() if platform is not None}
    bounds = spec.retests or RetestOptions()
    return LaunchOrder(
        matrix=context.documents.matrix_document(_with_platforms(spec.matrix, kept)),
        name=f"second machine of run {run_id}",
        payload=run.payload_digest,
        subject_digest=spec.subject_digest,
        subject_built=spec.subject_built,
        baseline_digest=spec.baseline_digest,
        only={name: sorted({split_key(k)[0] for k in mine}) for name, mine in keys.items()},
        rerun_of=run_id,
        retests=RetestOptions(
            reruns=SURE,
            tests=tuple(dict.fromkeys(key for mine in keys.values() for key in mine)),
            max_tests=bounds.max_tests,
            max_minutes=bounds.max_minutes,
        ),
    )


def _failing(
    context: Context, run_id: str, spec: RunSpec
) -> dict[str, tuple[Cell, tuple[str, ...]]]:
    """Return cells that Seatrial ran itself (not ingested ones), with their failures."""
    stores = context.stores
    ingested = stores.ingests.of_run(run_id)
    cells = (cell for cell in stores.cells.of_run(run_id) if cell.id not in ingested)
    found = {cell.name: (cell, failing_keys(stores, cell, spec)) for cell in cells}
    return {name: (cell, keys) for name, (cell, keys) in found.items() if keys}


def _other(context: Context, cell: Cell) -> Platform | None:
    """Return the platform without the cell's machines; None if it has no other machine."""
    platform = context.stores.cells.plan(cell.id).platform
    leases = context.stores.leases.of_run(cell.run_id).get(cell.id, ())
    used = {lease.place for lease in leases if lease.machine_id}
    return elsewhere(platform, used, rented=context.traits[platform.provider].rented)


def elsewhere(platform: Platform, used: Collection[str], *, rented: bool) -> Platform | None:
    """Return the platform restricted to other machines; None without any.

    A host that was used is left out of its pool. A rented machine is always a new one; other
    locations are tried first.
    """
    if platform.hosts is not None:
        left = tuple(host for host in platform.hosts if host.place not in used)
        return replace(platform, hosts=left) if left else None
    if not rented:
        return None
    if not isinstance(platform.locations, tuple):
        return platform
    there = [x for x in platform.locations if any(place.startswith(x) for place in used)]
    others = [x for x in platform.locations if x not in there]
    return replace(platform, locations=(*others, *there))


def _with_platforms(matrix: Matrix, kept: Mapping[str, Platform]) -> Matrix:
    """Return the matrix with these platforms alone, and the job selections that apply to them."""
    jobs = []
    for selection in matrix.jobs:
        if selection.on == "all":
            jobs.append(selection)
        elif on := tuple(name for name in selection.on if name in kept):
            jobs.append(replace(selection, on=on))
    platforms = tuple(kept[each.id] for each in matrix.platforms if each.id in kept)
    return replace(matrix, platforms=platforms, jobs=tuple(jobs))


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
