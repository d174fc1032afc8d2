"""Confirmation run: repeats failures on another machine of the same platform.

The follow-up is a separate run of the failed jobs only, which runs the failing tests several times.
Its matrix names the machine to avoid.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import replace
from decimal import Decimal

from orchestrator.application.attribute_failures import failing_keys
from orchestrator.application.context import Context
from orchestrator.application.launch_run import IdempotencyKey, LaunchOrder, launch_run
from orchestrator.application.plan_run import plan_run
from orchestrator.domain.cell import Cell, RunSpec
from orchestrator.domain.matrix import Matrix, Platform
from orchestrator.domain.retests import SURE, RetestOptions, split_key

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
    """Return the platform without the cell's machine; None if it has no other."""
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
