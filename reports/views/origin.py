"""Jobs of a cell that reuse earlier evidence, and why the others were run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime

from orchestrator.domain.attestation import Attestation, Device
from orchestrator.domain.catalogue import PLATFORMS
from orchestrator.domain.cell import CellState, PlacementResult
from orchestrator.domain.ingested import Ingested, Source, SourceState
from orchestrator.domain.matrix import Platform
from orchestrator.domain.outcome import Outcome
from orchestrator.domain.run_record import CellRecord, JobRecord, RunRecord
from reports.model.origin import (
    Attested,
    AttestedDevice,
    Catalogued,
    CellProvenance,
    JobInOtherCells,
    Origin,
    bare,
    letters,
)
from reports.model.values import Absent
from reports.views.machine import NOT_REPORTED


def reuse_of(cell: CellRecord) -> tuple[tuple[str, str], ...]:
    """Return jobs' titles with the decision about reuse; empty if reuse was not requested."""
    told: dict[str, list[str]] = {}
    for job in cell.jobs:
        if job.reuse:
            said = job.reuse if job.reused_from else f"not reused: {job.reuse}"
            told.setdefault(said, []).append(job.title or job.id)
    return tuple((", ".join(titles), said) for said, titles in told.items())


def sources_of(cell: CellRecord) -> tuple[str, ...]:
    """Return the runs whose evidence all jobs of the cell reuse; empty if the cell ran a job."""
    if not cell.jobs or not all(job.reused_from for job in cell.jobs):
        return ()
    return tuple(dict.fromkeys(job.reused_from for job in cell.jobs))


DECISIONS_SHOWN = 60
"""Lines of the decision log that a report has."""
SIMULATED = "SIMULATED: no gate accepts this"

_FACTS = (
    ("instance_id", "Instance id"),
    ("instance_type", "Instance type"),
    ("market", "Market"),
    ("zone", "Zone"),
    ("image_id", "Image id"),
    ("image_name", "Image"),
)
_NOT_REPORTED = Absent("its tool did not report it")


def provenance_of(cell: CellRecord) -> CellProvenance:
    """Return the provenance of the cell: its machines and their places."""
    log = () if _is_plain(cell) else cell.decisions
    shown = log[:DECISIONS_SHOWN]
    return CellProvenance(
        simulated=cell.simulated,
        undeclared=cell.undeclared_note,
        attested=_attested(cell.attestation, is_done=cell.state is CellState.DONE)
        if cell.attestation
        else _not_attested(cell),
        decisions=tuple(shown),
        decisions_hidden=len(log) - len(shown),
    )


def _is_plain(cell: CellRecord) -> bool:
    """Whether it was an own machine that was free at once, so that nothing needs explaining."""
    own = cell.platform.provider in ("local", "static")
    return own and all(decision.result is PlacementResult.CHOSEN for decision in cell.decisions)


def _not_attested(cell: CellRecord) -> Absent:
    had = any(lease.machine_id for lease in cell.leases)
    return Absent("not reported by the machine" if had else "there was no machine")


def _attested(attestation: Attestation, *, is_done: bool) -> Attested:
    facts = [(title, attestation.facts[key]) for key, title in _FACTS if attestation.facts.get(key)]
    return Attested(
        facts=tuple(facts),
        devices=tuple(_device(device) for device in attestation.devices),
        torch=attestation.torch or (NOT_REPORTED if is_done else Absent("not probed yet")),
        mismatch=attestation.mismatch,
    )


def _device(device: Device) -> AttestedDevice:
    return AttestedDevice(
        name=device.name or device.vendor or "unnamed device",
        uuid=device.uuid or _NOT_REPORTED,
        compute_capability=device.compute_capability or _NOT_REPORTED,
        driver=device.driver or _NOT_REPORTED,
    )


SOURCES_SHOWN = 60
"""Files that are listed; inconsistent ones first."""

DISPUTED_SHOWN = 40
"""Tests on which files disagree."""

UNREAD = "kept unread"
_NOT_KNOWN = Absent("not in the catalogue")


def origin_of(cell: CellRecord, *, subject: str, version: str) -> Origin | None:
    """Return the origin of a cell's ingested evidence; None for a cell that ran here."""
    ingested = cell.ingested
    if ingested is None:
        return None
    other = _other_stamps(ingested.sources, subject, version)
    ranked = sorted(ingested.sources, key=lambda s: s.state is not SourceState.INCONSISTENT)
    loud = sum(source.state is SourceState.INCONSISTENT for source in ranked)
    shown = ranked[: max(SOURCES_SHOWN, loud)]
    found = Counter(_kind(source) for source in ingested.sources)
    disputed = ingested.disagreements[:DISPUTED_SHOWN]
    return Origin(
        files=len(ingested.sources),
        kinds=tuple(sorted(found.items(), key=lambda pair: (-pair[1], pair[0]))),
        sources=tuple(shown),
        hidden=len(ranked) - len(shown),
        disputed=tuple(disputed),
        disputed_hidden=len(ingested.disagreements) - len(disputed),
        repeated=ingested.repeated,
        remarks=tuple(_remarks(shown, other)),
        stamps=tuple(other),
        dated_at=ingested.dated_at,
        is_dated=ingested.is_dated,
        ingested_at=ingested.ingested_at,
    )


def _kind(source: Source) -> str:
    return source.provenance.value.replace("-", " ") if source.provenance else UNREAD


def _remarks(
    sources: Sequence[Source], stamps: Sequence[tuple[str, str]]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield each remark once with its files; remarks about other versions are shown elsewhere."""
    found: dict[str, list[str]] = {}
    for source in sources:
        if source.state is SourceState.INCONSISTENT:
            continue
        told = [stamp.split() for name, stamp in stamps if name == source.name]
        for remark in source.remarks:
            if not any(remark.startswith("says ") and all(w in remark for w in t) for t in told):
                found.setdefault(remark, []).append(source.name)
    yield from ((remark, tuple(names)) for remark, names in found.items())


def _other_stamps(sources: Sequence[Source], subject: str, version: str) -> list[tuple[str, str]]:
    """Return version stamps that contradict the subject."""
    wanted = (letters(subject), bare(version))
    said = [(source.name, stamp) for source in sources for stamp in source.stamps]
    return [pair for pair in said if _parts(pair[1]) != wanted]


def _parts(stamp: str) -> tuple[str, str]:
    name, _, version = stamp.rpartition(" ")
    return letters(name), bare(version)


def catalogued_of(cell: CellRecord) -> Catalogued | None:
    """Return the platform catalogue's accelerator for an ingested cell, which was not probed."""
    if cell.ingested is None:
        return None
    row = next((row for row in PLATFORMS.values() if _same(row.platform, cell.platform)), None)
    if row is None or not row.device:
        return None
    return Catalogued(
        device=row.device,
        memory_gb=_NOT_KNOWN if row.memory_gb is None else row.memory_gb,
        memory_bytes=_NOT_KNOWN if row.memory_mib is None else row.memory_mib * 1024 * 1024,
        compute_capability=row.compute_capability or _NOT_KNOWN,
        architecture=row.architecture or _NOT_KNOWN,
    )


def _same(known: Platform, platform: Platform) -> bool:
    """Return whether both rent the same machine; ids are not compared."""
    if known.provider != platform.provider:
        return False
    named = (known.instance_type, known.accelerator_type)
    return any(named) and named == (platform.instance_type, platform.accelerator_type)


def date_of(ingested: Ingested | None, otherwise: datetime) -> datetime:
    """Return when the evidence was produced; if unknown, when it was uploaded."""
    return otherwise if ingested is None else ingested.dated_at


def run_date(record: RunRecord) -> datetime:
    """Return the latest date of the cells if all were ingested, else the run's own."""
    told = [cell.ingested for cell in record.cells]
    dates = [one.dated_at for one in told if one is not None]
    return max(dates) if dates and len(dates) == len(told) else record.run.created_at


def elsewhere_of(record: RunRecord, cell: CellRecord) -> tuple[JobInOtherCells, ...]:
    """Return demos and use cases that ran only on other cells, by name."""
    if not any(_ran(job) for job in cell.jobs):
        return ()
    mine = {job.id for job in cell.jobs}
    found: dict[str, tuple[JobRecord, list[str]]] = {}
    for other in record.cells:
        for job in other.jobs:
            if job.kind in ("demo", "use-case") and job.id not in mine and _ran(job):
                found.setdefault(job.id, (job, []))[1].append(other.id)
    return tuple(
        JobInOtherCells(j.kind, j.title or j.id, tuple(cells)) for j, cells in found.values()
    )


def _ran(job: JobRecord) -> bool:
    return job.started_at is not None and job.outcome is not Outcome.NOT_RUN
