"""Gathers a gate's evidence: runs with every test, failure and environment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from orchestrator.application.attribute_failures import attribute_run
from orchestrator.application.context import Context
from orchestrator.application.describe_run import evidence_of, find_run
from orchestrator.domain.cell import RunSpec
from orchestrator.domain.failure_signature import Failure
from orchestrator.domain.grouping import grouped
from orchestrator.domain.retests import Retest
from orchestrator.domain.root_cause import Attribution
from orchestrator.domain.run_record import CellRecord, Evidence
from orchestrator.domain.versions import canonical_name, version_fits


class WrongProductError(ValueError):
    """A run has another product than the gate."""


@dataclass(frozen=True, slots=True)
class GatheredRun:
    """A run with the evidence of a gate."""

    evidence: Evidence
    spec: RunSpec
    failures: Mapping[str, tuple[Failure, ...]]
    """Failures with a signature, by cell."""
    retests: Mapping[str, tuple[Retest, ...]]
    """Retests of failed tests, by cell."""
    blames: Mapping[str, tuple[Attribution, ...]]
    """Root causes of failed tests, by cell."""
    repeats: tuple[str, ...] = ()
    """Runs that it repeats, nearest first."""

    @property
    def id(self) -> str:
        """Id of the run."""
        return self.evidence.record.run.id


@dataclass(frozen=True, slots=True)
class GatheredCell:
    """A cell with its run."""

    taken: GatheredRun
    cell: CellRecord

    @property
    def failures(self) -> tuple[Failure, ...]:
        """Return the failing tests of the cell."""
        return self.taken.failures.get(self.cell.id, ())

    @property
    def retests(self) -> tuple[Retest, ...]:
        """Retests on the cell's machine."""
        return self.taken.retests.get(self.cell.id, ())

    @property
    def blames(self) -> tuple[Attribution, ...]:
        """Root causes of the cell's failed tests."""
        return self.taken.blames.get(self.cell.id, ())


def gather(
    context: Context, product: str, runs: Sequence[str], *, at: datetime
) -> tuple[GatheredRun, ...]:
    """Return the runs, oldest first; without any, the product's newest finished one.

    Raises RunMissingError, WrongProductError.
    """
    newest = context.stores.gates.newest_finished(product) if not runs else None
    wanted = sorted({*runs, *((newest,) if newest else ())})
    return tuple(_take(context, product, run, at) for run in wanted)


def with_related_runs(
    context: Context, taken: Sequence[GatheredRun], *, now: datetime, max_age: timedelta
) -> tuple[GatheredRun, ...]:
    """Return the runs, the runs that they repeat, and the failed runs of the same subjects.

    The failed runs are all that ended within `max_age` before `now`, of every launcher and
    payload. Oldest first.
    """
    if not taken:
        return ()
    gates, product = context.stores.gates, taken[0].spec.manifest.name
    wanted = {run for one in taken for run in one.repeats}
    failed = gates.failed_runs(product, since=now - max_age, until=now)
    wanted.update(run for run in failed if is_of_one_of(context, run, taken))
    known, at = {one.id: one for one in taken}, context.clock.now()
    known |= {run: _take(context, product, run, at) for run in sorted(wanted - set(known))}
    return tuple(known[run] for run in sorted(known))


def is_of_one_of(context: Context, run: str, taken: Sequence[GatheredRun]) -> bool:
    """Whether a run tested the payload or subject of one of these; its evidence is not read."""
    spec, known = context.stores.runs.spec(run), context.stores.runs.get(run)
    payload = known.payload_digest if known else ""
    return any(
        payload == one.evidence.record.run.payload_digest or is_of_one_subject(one.spec, spec)
        for one in taken
    )


@dataclass(frozen=True, slots=True)
class CountedCell:
    """A cell whose results the gate evaluates.

    It has the cell itself, the reruns that complete it, and the cells of earlier runs that it
    replaces.
    """

    parts: tuple[GatheredCell, ...]
    """The cell itself; where it is a rerun, preceded by the cells that it completes."""
    replaced: tuple[GatheredCell, ...] = ()
    """Cells of the same name in earlier runs, which it replaces."""

    def then(self, new: GatheredCell) -> CountedCell:
        """Return the cell that counts after a later run's cell.

        A rerun completes the counted cell; any other cell replaces it.
        """
        if _completes(new, self.parts[0]):
            return replace(self, parts=(*self.parts, new))
        return CountedCell((new,), (*self.replaced, *self.parts))


def counted_cells(taken: Sequence[GatheredRun]) -> tuple[CountedCell, ...]:
    """Return the cells that count: a later run's replaces an earlier run's of the same name."""
    found: dict[tuple[str, str], CountedCell] = {}
    for one in taken:
        for cell in one.evidence.record.cells:
            place, new = (cell.platform.id, cell.environment), GatheredCell(one, cell)
            found[place] = found[place].then(new) if place in found else CountedCell((new,))
    return tuple(found.values())


def is_of_the_same(one: GatheredRun, other: GatheredRun) -> bool:
    """Whether two runs tested the same payload, and the same wheel or commit."""
    runs = one.evidence.record.run, other.evidence.record.run
    mine, theirs = one.spec, other.spec
    if runs[0].payload_digest != runs[1].payload_digest:
        return False
    is_unknown = mine.subject_digest is None and theirs.subject_digest is None
    return is_of_one_subject(mine, theirs) or (
        is_unknown and mine.matrix.subject == theirs.matrix.subject
    )


def is_of_one_subject(one: RunSpec, other: RunSpec) -> bool:
    """Whether two runs are known to have tested the same wheel or commit, with any payload.

    Names and versions are normalised (MyLib is mylib, and 1.0 is 1.0.0), and a wheel that was
    zipped again is the same one. If only one run has a wheel or commit, equal names and versions
    count: otherwise a wheel that failed would pass under its name alone.
    """
    mine, theirs = _builds(one), _builds(other)
    if any(mine) == any(theirs):
        return any(known and known == also for known, also in zip(mine, theirs, strict=True))
    named, also = one.matrix.subject, other.matrix.subject
    is_named_alike = canonical_name(named.name) == canonical_name(also.name)
    return is_named_alike and (
        named.version == also.version or version_fits(f"=={named.version}", also.version)
    )


def _builds(spec: RunSpec) -> tuple[object, ...]:
    """Return the known identifiers of the subject's build: git source, wheel and contents."""
    return spec.matrix.subject.git, spec.subject_digest, spec.subject_contents


def _is_launched_alike(later: GatheredRun, earlier: GatheredRun) -> bool:
    """Whether two runs were launched with the same payload, subject and wheel."""
    return (
        is_of_the_same(later, earlier)
        and later.spec.subject_digest == earlier.spec.subject_digest
        and later.spec.matrix.subject == earlier.spec.matrix.subject
    )


def _completes(new: GatheredCell, first: GatheredCell) -> bool:
    """Whether it is the same cell of a rerun, with the same payload and subject."""
    later, earlier = new.taken, first.taken
    own = new.cell.ingested is None and first.cell.ingested is None
    return _is_launched_alike(later, earlier) and own and earlier.id in later.repeats


def _take(context: Context, product: str, run: str, at: datetime) -> GatheredRun:
    stores = context.stores
    find_run(stores, run)
    failures = grouped((failure.cell, failure) for failure in stores.failures.of_run(run))
    evidence = evidence_of(stores, run, at=at)
    # After its cells: an ingestion adds to both.
    spec = stores.runs.spec(run)
    if spec.manifest.is_untrusted:
        raise WrongProductError(f"run {run} is of untrusted code: its results satisfy no gate")
    if spec.manifest.name != product:
        raise WrongProductError(
            f"run {run} is of {spec.manifest.name!r}, and the gate is of {product!r}; "
            "name a run of that product"
        )
    return GatheredRun(
        evidence,
        spec,
        {cell: tuple(some) for cell, some in failures.items()},
        stores.retests.of_run(run),
        attribute_run(stores, run),
        tuple(_repeated(context, run)),
    )


def _repeated(context: Context, run: str) -> Iterator[str]:
    """Yield the runs that this run repeats, directly or through reruns, newest first."""
    known = context.stores.runs.get(run)
    while known is not None and known.rerun_of is not None:
        yield known.rerun_of
        known = context.stores.runs.get(known.rerun_of)
