"""Reads results that a cell reuses from their source cells; nothing is copied."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from orchestrator.domain.attestation import Attestation
from orchestrator.domain.cell import Lease
from orchestrator.domain.event_facts import TestFact
from orchestrator.domain.reuse_inputs import REUSED, Reuse
from orchestrator.domain.run_record import JobRecord
from orchestrator.store.cells import CellLife
from orchestrator.store.stores import Stores

_LONG_AGO = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class ReusedFrom:
    """Provenance of reused results."""

    probed: Mapping[str, object] = field(default_factory=dict)
    attestation: Attestation | None = None
    simulated: bool = False
    """Whether any of the machines was simulated."""


def by_source(decided: Mapping[str, Reuse]) -> dict[str, tuple[str, ...]]:
    """Group reused jobs by source cell, newest evidence last."""
    reused = [one for one in decided.values() if one.is_reused]
    sources: dict[str, tuple[str, ...]] = {}
    for one in sorted(reused, key=lambda one: (one.at or _LONG_AGO, one.job)):
        sources[one.cell] = (*sources.pop(one.cell, ()), one.job)
    return sources


def as_reused(job: JobRecord, reuse: Reuse) -> JobRecord:
    """Return a job of the source cell as a job of the reusing cell."""
    return replace(
        job, reason=REUSED, detail=reuse.why, reused_from=reuse.run, at=reuse.at, reuse=reuse.why
    )


@dataclass(frozen=True, slots=True)
class ReuseSources:
    """Machines of the cells that results are reused from."""

    leases: Mapping[str, Sequence[Lease]]
    """Leases by cell id."""
    attestations: Mapping[str, Attestation]
    """Attestations by lease id."""

    @classmethod
    def read(cls, stores: Stores, decided: Iterable[Mapping[str, Reuse]]) -> ReuseSources:
        """Read leases and attestations in one statement per source run."""
        runs = sorted({x.run for reuses in decided for x in reuses.values() if x.is_reused})
        leases: dict[str, Sequence[Lease]] = {}
        attestations: dict[str, Attestation] = {}
        for run in runs:
            its_leases, its_attestations = stores.leases.attested(run)
            leases |= its_leases
            attestations |= its_attestations
        return cls(leases, attestations)


def reused_from(
    decided: Mapping[str, Reuse], reuse_sources: ReuseSources, lives: Mapping[str, CellLife]
) -> ReusedFrom:
    """Return environment and attestation of the source cells; the newest wins."""
    found = ReusedFrom()
    for cell_id in by_source(decided):
        leases = reuse_sources.leases.get(cell_id, ())
        told = [
            x for lease in leases if (x := reuse_sources.attestations.get(lease.id)) is not None
        ]
        known = lives.get(cell_id)
        found = ReusedFrom(
            probed=(known.environment if known else None) or {},
            attestation=told[-1] if told else None,
            simulated=found.simulated or any(lease.simulated for lease in leases),
        )
    return found


def results_of_cell(
    stores: Stores,
    cell_id: str,
    *,
    job: str | None = None,
    decided: Mapping[str, Reuse] | None = None,
) -> list[TestFact]:
    """Return the tests of a cell, including those of its reused jobs.

    Args:
        stores: What is stored.
        cell_id: The cell.
        job: Only the tests of this one.
        decided: What is reused, where the caller has read that.
    """
    tests = stores.results.tests(cell_id, job=job)
    if decided is None:
        decided = stores.reusable_results.decided(cell_id)
    for source, jobs in by_source(decided).items():
        for name in jobs if job is None else {job}.intersection(jobs):
            tests += stores.results.tests(source, job=name)
    return tests
