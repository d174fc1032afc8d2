"""Ingests evidence of other programs as a finished cell of a run.

Everything that can be refused is refused before anything is stored. Then the raw files and the
events that were made of them are blobs, one transaction makes the cell, and from there on the
ingestion can be ended by anybody, from the store alone.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Protocol

from orchestrator.application.context import Context
from orchestrator.application.finish_ingestion import RAW_EVENTS, finish_ingestion
from orchestrator.application.ports.blobs import file_chunks
from orchestrator.application.ports.result_parsers import Dialect, Dialects, UnreadableError
from orchestrator.application.ports.uploads import IntakeError, UnpackedUpload, UploadedFile
from orchestrator.domain.assembly.jobs import names_artifact
from orchestrator.domain.assembly.merge import Assembly, assemble
from orchestrator.domain.assembly.results_pass import ForeignArtifact
from orchestrator.domain.catalogue import PLATFORMS
from orchestrator.domain.cell import Cause, Run, RunSpec
from orchestrator.domain.document_problems import InvalidDocumentError, Problem, nearest
from orchestrator.domain.ingest_notes import IngestNotes, NotedSubject
from orchestrator.domain.ingested import Ingested, RunAnnotation, SourceState
from orchestrator.domain.manifest import IDENTIFIER, Manifest
from orchestrator.domain.matrix import CellPlan, JobSelection, Matrix, Metadata, Platform, Subject
from orchestrator.domain.parsed_results import ParsedItem, ParsedProblem
from orchestrator.domain.run_record import ArtifactRecord
from orchestrator.store.ingests import StartedIngest

NOTES = ("ingest.yaml", "ingest.yml")
_STRANGE = re.compile(r"[^A-Za-z0-9._+-]+")
_REPORTS = re.compile(r"[A-Z-]+\.(md|html|json)|events\.jsonl|plots", re.IGNORECASE)
_LONGEST = 180


def foreign_files(dialects: Dialects, files: Sequence[UploadedFile]) -> Iterator[ForeignArtifact]:
    """Parse each file with the dialect of the highest confidence; `ingest.yaml` is left out."""
    for file in files:
        if file.name.lower() in NOTES:
            continue
        found = _best(dialects, file)
        if found is None:
            empty = () if file.artifact.size_bytes else ("it is empty",)
            remarks = (*file.remarks, *empty)
            yield ForeignArtifact(file.name, file.digest, file.size_bytes, remarks=remarks)
            continue
        dialect, confidence = found
        yield ForeignArtifact(
            file.name,
            file.digest,
            file.size_bytes,
            dialect=f"{dialect.name} {dialect.version}",
            provenance=dialect.provenance,
            confidence=min(max(float(confidence), 0.0), 1.0),
            items=_statements(dialect, file),
            remarks=file.remarks,
        )


def flat_names(names: Sequence[str]) -> list[str]:
    """Return a unique flat file name for each path, ignoring case."""
    flat: list[str] = []
    taken: set[str] = set()
    for name in names:
        plain = _STRANGE.sub("-", name.replace("/", "-")).lstrip("-.") or "artifact"
        plain = plain[-_LONGEST:]
        if _REPORTS.fullmatch(plain):
            plain = f"raw-{plain}"
        wanted, number = plain, 1
        while plain.lower() in taken:
            number += 1
            plain = f"{number}-{wanted}"
        taken.add(plain.lower())
        flat.append(plain)
    return flat


def _best(dialects: Dialects, file: UploadedFile) -> tuple[Dialect, float] | None:
    if not file.artifact.size_bytes:
        return None
    try:
        return dialects.best(file.artifact)
    except Exception:
        logger.exception("no dialect could look at %s", file.name)
        return None


def _statements(dialect: Dialect, file: UploadedFile) -> Iterator[ParsedItem]:
    """Yield a file's statements; an error that stops parsing is the last one."""
    try:
        yield from dialect.read(file.artifact)
    except UnreadableError as error:
        yield ParsedProblem("error", f"it cannot be read any further: {error}")
    except Exception as error:
        logger.exception("%s failed on %s", dialect.name, file.name)
        what = f"{type(error).__name__}: {error}"[:200]
        yield ParsedProblem(
            "error", f"the dialect {dialect.name} failed on it ({what}); it is kept"
        )


MATRIX_NAME = "ingested"
_NOTES_LIMIT_BYTES = 1024 * 1024

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestOrder:
    """An ingestion request."""

    body: Path
    """An archive, or a single file."""
    name: str
    """Original file name."""
    platform: str = ""
    """Platform id; alternatively in the notes."""
    subject: str = ""
    """``NAME@VERSION``; alternatively in the notes."""
    environment: str = ""
    """The name of the environment."""
    run_id: str | None = None
    """The finished run that gets the cell; None creates a run."""


@dataclass(frozen=True, slots=True)
class IngestResult:
    """Result of an ingestion."""

    run_id: str
    cell: str
    """Name of the cell."""
    replayed: bool
    """Whether an identical upload was stored before."""


def ingest_artifacts(context: Context, order: IngestOrder) -> IngestResult:
    """Store an upload as a finished cell. An identical upload returns the same run.

    Raises:
        IntakeError: It is refused; the text says why.
        InvalidDocumentError: ``ingest.yaml`` cannot be used.
        IntakeFullError: There is no room for it.
        CellTakenError, RunBusyError: The run cannot have it.
    """
    with context.intake.open(order.body, order.name) as upload, _placed(context, upload):
        notes = _read_notes(context, upload)
        ordered = resolve_order(order, notes, upload.files, now=context.clock.now())
        _check_subject(context, order.run_id, ordered)
        known = _known(context, order, ordered, upload)
        begun = known or _begin(context, order, ordered, upload)
    finish_ingestion(context, begun)
    name = context.stores.cells.get(begun.cell_id).name
    return IngestResult(begun.run_id, name, replayed=known is not None)


@contextmanager
def _placed(context: Context, upload: UnpackedUpload) -> Iterator[None]:
    """Add the line of the notes to each problem."""
    try:
        yield
    except InvalidDocumentError as error:
        if upload.notes is not None and all(one.line is None for one in error.problems):
            text = upload.notes.raw.read_text(encoding="utf-8")
            context.documents.refuse_ingest_notes(text, upload.notes.name, error.problems)
        raise


def _check_subject(context: Context, run_id: str | None, ordered: IngestTarget) -> None:
    run = context.stores.runs.get(run_id) if run_id is not None else None
    subject = ordered.subject
    if run is not None and (run.subject_name, run.subject_version) != (
        subject.name,
        subject.version,
    ):
        raise IntakeError(
            f"run {run.id} is of {run.subject_name} {run.subject_version}, this is of "
            f"{subject.name} {subject.version}: a run has one subject, so leave --run out; "
            "nothing was stored"
        )


def _read_notes(context: Context, upload: UnpackedUpload) -> IngestNotes:
    if upload.notes is None:
        return IngestNotes()
    if upload.notes.size_bytes > _NOTES_LIMIT_BYTES:
        name = upload.notes.name
        raise IntakeError(f"{name} is larger than {_NOTES_LIMIT_BYTES} bytes; nothing was stored")
    try:
        text = upload.notes.raw.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise IntakeError(
            f"{upload.notes.name} is not UTF-8: byte {error.start} is wrong"
        ) from None
    return context.documents.read_ingest_notes(text, upload.notes.name)


def _known(
    context: Context, order: IngestOrder, ordered: IngestTarget, upload: UnpackedUpload
) -> StartedIngest | None:
    """Return the cell of an identical upload in the requested run."""
    plain = context.stores.ingests.find(fingerprint(ordered, upload.files, run_id=None))
    if plain is not None and order.run_id in (None, plain.run_id):
        return plain
    if order.run_id is None:
        return None
    return context.stores.ingests.find(fingerprint(ordered, upload.files, run_id=order.run_id))


def fingerprint(
    ordered: IngestTarget, files: tuple[UploadedFile, ...], *, run_id: str | None
) -> str:
    """Return the sha256 over the upload and its target."""
    said = {
        "product": ordered.subject.name,
        "subject": ordered.subject.version,
        "platform": asdict(ordered.platform),
        "environment": ordered.environment,
        "notes": asdict(ordered.notes),
        "files": sorted((file.name, file.digest) for file in files),
        "run": run_id,
    }
    return hashlib.sha256(json.dumps(said, sort_keys=True, default=str).encode()).hexdigest()


def _begin(
    context: Context, order: IngestOrder, ordered: IngestTarget, upload: UnpackedUpload
) -> StartedIngest:
    at = context.clock.now()
    assembly = assemble(
        foreign_files(context.dialects, upload.files),
        upload.record_store(),
        notes=ordered.notes,
        version=ordered.subject.version,
        at=at.timestamp(),
        taken=_taken(context, order.run_id),
    )
    _check_results(assembly, ordered.notes, upload.files)
    if assembly.jobs and assembly.idle:
        raise InvalidDocumentError(NOTES_NAME, assembly.idle)
    spool = upload.spool(assembly.lines)
    dated = ordered.notes.dated_at() or assembly.happened
    ingested = Ingested(
        fingerprint=fingerprint(ordered, upload.files, run_id=order.run_id),
        ingested_at=at,
        dated_at=dated or at,
        is_dated=dated is not None,
        sources=assembly.sources,
        disagreements=assembly.disagreements,
        repeated=assembly.repeated,
        machine=ordered.notes.machine,
    )
    artifacts = _kept(context, upload.files, spool)
    return _store(context, order, ordered, assembly, ingested, artifacts)


def _store(
    context: Context,
    order: IngestOrder,
    ordered: IngestTarget,
    assembly: Assembly,
    ingested: Ingested,
    artifacts: list[ArtifactRecord],
) -> StartedIngest:
    at = ingested.ingested_at
    jobs = tuple(job.id for job in assembly.jobs)
    plan = CellPlan(ordered.cell, ordered.platform, ordered.environment, jobs)
    run = _run(context, order, ordered, at)
    cell_id = f"{run.id}-{context.new_id()}" if order.run_id else f"{run.id}-0"
    return context.stores.ingests.begin(
        run,
        _spec(ordered, assembly),
        (cell_id, plan),
        ingested,
        attempt_id=f"{cell_id}-1",
        artifacts=artifacts,
        annotations=_annotations(ordered, ingested),
        cause=Cause(*said) if (said := ordered.notes.cause()) else None,
    )


def _taken(context: Context, run_id: str | None) -> Mapping[str, str]:
    """Return the kinds of the run's jobs."""
    if run_id is None:
        return {}
    return {job.id: job.kind for job in context.stores.runs.spec(run_id).manifest.job}


def _check_results(assembly: Assembly, notes: IngestNotes, files: tuple[UploadedFile, ...]) -> None:
    if assembly.jobs and notes.outcome is not None:
        told = next(source.name for source in assembly.sources if source.jobs)
        raise IntakeError(
            f"ingest.yaml says that there are no results ({notes.outcome.word}), and {told} has "
            "some: take one of the two away; nothing was stored"
        )
    if assembly.jobs or notes.outcome is not None:
        return
    kept = [s.name for s in assembly.sources if s.state is SourceState.KEPT]
    shown = ", ".join(kept[:5]) + (f" and {len(kept) - 5} more" if len(kept) > 5 else "")
    why = next((source.remarks[0] for source in assembly.sources if source.remarks), "")
    raise IntakeError(
        f"no result was found in {len(files)} {'file' if len(files) == 1 else 'files'}"
        + (f": no known format has {shown}" if kept else "")
        + (f" ({why})" if why else "")
        + "; for a platform without results write `outcome:` in ingest.yaml; nothing was stored"
    )


def _kept(context: Context, files: tuple[UploadedFile, ...], spool: Path) -> list[ArtifactRecord]:
    """Store the raw bytes and the events, by digest."""
    names = flat_names([file.name for file in files])
    kept = []
    for file, name in zip(files, names, strict=True):
        digest, size = context.blobs.put(file_chunks(file.raw), digest=file.digest)
        kept.append(ArtifactRecord(name, size, digest))
    digest, size = context.blobs.put(file_chunks(spool))
    return [*kept, ArtifactRecord(RAW_EVENTS, size, digest)]


def _run(context: Context, order: IngestOrder, ordered: IngestTarget, at: datetime) -> Run:
    if order.run_id is not None:
        found = context.stores.runs.get(order.run_id)
        if found is not None:
            return found
    return Run(
        id=context.new_id(),
        matrix_name=MATRIX_NAME,
        subject_name=ordered.subject.name,
        subject_version=ordered.subject.version,
        payload_digest="",
        created_at=at,
    )


def _spec(ordered: IngestTarget, assembly: Assembly) -> RunSpec:
    subject = Subject(name=ordered.subject.name, version=ordered.subject.version)
    matrix = Matrix(
        metadata=Metadata(name=MATRIX_NAME),
        subject=subject,
        platforms=(ordered.platform,),
        jobs=(JobSelection(select="*"),),
    )
    return RunSpec(matrix, Manifest(name=subject.name, version=subject.version, job=assembly.jobs))


def _annotations(ordered: IngestTarget, ingested: Ingested) -> tuple[RunAnnotation, ...]:
    said = ordered.notes.stated(cell=ordered.cell, at=ingested.dated_at)
    return tuple(replace(one, author=one.author or "ingest.yaml") for one in said)


IMAGE = "image"
UNKNOWN_PROVIDER = "elsewhere"
"""Provider of platforms that are not in the catalogue."""
NOTES_NAME = "ingest.yaml"
_LONGEST_SUBJECT = 128
_AHEAD = timedelta(days=1)
"""Tolerance for dates in time zones ahead."""
_ROW = "{id: my-host, provider: elsewhere}"


class IngestParameters(Protocol):
    """Parameters of an ingestion, from the request or `ingest.yaml`."""

    @property
    def platform(self) -> str:
        """Platform id, or empty."""
        ...

    @property
    def subject(self) -> str:
        """``NAME@VERSION``, or empty."""
        ...

    @property
    def environment(self) -> str:
        """Return the environment's name; empty without one."""
        ...


@dataclass(frozen=True, slots=True)
class IngestTarget:
    """Run and cell that the evidence is stored in."""

    platform: Platform
    subject: NotedSubject
    environment: str
    notes: IngestNotes

    @property
    def cell(self) -> str:
        """Name of the cell."""
        if self.environment == IMAGE:
            return self.platform.id
        return f"{self.platform.id}.{self.environment}"


def resolve_order(
    ingest_parameters: IngestParameters,
    notes: IngestNotes,
    files: Sequence[UploadedFile],
    *,
    now: datetime,
) -> IngestTarget:
    """Merge request parameters with `ingest.yaml`. Raises InvalidDocumentError.

    Raises:
        IntakeError: The two disagree, or information is missing.
        InvalidDocumentError: The notes have an invalid subject, file, platform or date.
    """
    _check_notes(notes, files, now)
    platform = _platform(ingest_parameters.platform, notes)
    subject = _subject(ingest_parameters.subject, notes)
    environment = ingest_parameters.environment or notes.environment or IMAGE
    if ingest_parameters.environment and notes.environment not in (
        "",
        ingest_parameters.environment,
    ):
        raise _differ("environment", notes.environment, ingest_parameters.environment)
    if not IDENTIFIER.fullmatch(environment):
        raise IntakeError(f"{environment!r} cannot be the name of an environment: {_FORM}")
    return IngestTarget(platform, subject, environment, notes)


_FORM = "letters, digits, '-' and '_' (at most 64)"


def _platform(requested: str, notes: IngestNotes) -> Platform:
    noted = notes.platform
    name = noted.id if isinstance(noted, Platform) else noted or ""
    if requested and name and requested != name:
        raise _differ("platform", name, requested)
    wanted = requested or name
    if not wanted:
        raise IntakeError("no file states the platform: use --platform, or ingest.yaml")
    if not IDENTIFIER.fullmatch(wanted):
        raise IntakeError(f"{wanted!r} cannot be the id of a platform: {_FORM}")
    if isinstance(noted, Platform):
        return noted
    known = PLATFORMS.get(wanted)
    return known.platform if known else Platform(id=wanted, provider=UNKNOWN_PROVIDER)


def _subject(requested: str, notes: IngestNotes) -> NotedSubject:
    noted = notes.subject
    if not requested:
        if noted is None:
            raise IntakeError(
                "no file states the subject: use --subject NAME@VERSION, or ingest.yaml"
            )
        return noted
    name, at, version = requested.rpartition("@")
    if not (at and name.strip() and version.strip()):
        raise IntakeError(f"the subject {requested!r} is not of the form NAME@VERSION")
    found = NotedSubject(name=name.strip(), version=version.strip())
    for text in (found.name, found.version):
        if fault := text_fault(text):
            raise IntakeError(f"{text[:_LONGEST_SUBJECT]!r} cannot be of a subject: {fault}")
    if noted is not None and noted != found:
        raise _differ("subject", f"{noted.name}@{noted.version}", requested)
    return found


def text_fault(text: str) -> str:
    """Return what is wrong with a subject's name or version; empty if nothing is."""
    if not text.strip():
        return "it must not be empty"
    if not text.isprintable():
        return "it holds characters that do not print"
    if len(text) > _LONGEST_SUBJECT:
        return f"it is longer than {_LONGEST_SUBJECT} characters"
    return ""


def _check_notes(notes: IngestNotes, files: Sequence[UploadedFile], now: datetime) -> None:
    problems = [*_subject_problems(notes), *_file_problems(notes, files)]
    if isinstance(notes.platform, str) and notes.platform not in PLATFORMS:
        near = nearest(notes.platform, PLATFORMS)
        said = f"no catalogue has {notes.platform!r}{near} (or write its row: {_ROW})"
        problems.append(Problem(("platform",), said))
    dated = notes.dated_at()
    if dated is not None and dated > now + _AHEAD:
        problems.append(Problem(("date",), f"{notes.date} has not come yet"))
    if problems:
        raise InvalidDocumentError(NOTES_NAME, problems)


def _subject_problems(notes: IngestNotes) -> Iterator[Problem]:
    for key in ("name", "version") if notes.subject else ():
        if fault := text_fault(getattr(notes.subject, key)):
            yield Problem(("subject", key), fault)


def _file_problems(notes: IngestNotes, files: Sequence[UploadedFile]) -> list[Problem]:
    names = [file.name for file in files]
    return [
        Problem(("jobs", job, "file"), f"there is no {noted.file!r}{nearest(noted.file, names)}")
        for job, noted in notes.jobs.items()
        if noted.file and not any(names_artifact(noted.file, name) for name in names)
    ]


def _differ(what: str, noted: str, requested: str) -> IntakeError:
    return IntakeError(
        f"ingest.yaml says {what} {noted}, and the request says {requested}: correct one"
    )
