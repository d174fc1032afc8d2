"""The schema of ``ingest.yaml``: a person's notes about uploaded artifacts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Literal

from orchestrator.domain.annotation import NO_TIME, AnnotationText, moment
from orchestrator.domain.document_problems import Path, Problem
from orchestrator.domain.field_limits import STRICT
from orchestrator.domain.ingested import RunAnnotation, StatedMachine
from orchestrator.domain.manifest import IDENTIFIER, JobKind
from orchestrator.domain.matrix import Platform
from orchestrator.domain.outcome import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class NotedSubject:
    """The validated subject."""

    __pydantic_config__ = STRICT

    name: str
    """The distribution's name."""
    version: str
    """The version; quoted, because an unquoted 1.10 is the number 1.1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotedSuite:
    """A suite, and which tests belong to it."""

    __pydantic_config__ = STRICT

    id: str
    """Id of the job."""
    match: str
    """A path, or a pattern of node ids with ``*``."""
    title: str = ""
    """Title in reports; by default derived from the id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotedJob:
    """The title, kind and artifact of a job."""

    __pydantic_config__ = STRICT

    title: str = ""
    """Title in reports."""
    kind: JobKind | None = None
    """The kind of job; needed only if the artifact does not show it."""
    file: str = ""
    """Path of the artifact in the folder; by default the file with the name of the job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotedOutcome:
    """The outcome that ``ingest.yaml`` states for a platform without results."""

    __pydantic_config__ = STRICT

    word: Literal["not_available", "cancelled", "errored", "timed_out"]
    """The outcome."""
    reason: str
    """The reason in one word, such as ``not_offered``, ``capacity`` or ``quota``."""
    detail: str = ""
    """An explanation for a person."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedAnnotation(AnnotationText):
    """An annotation in ``ingest.yaml``."""

    whole_run: bool = False
    """Whether it refers to the whole run, not only to this platform."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestNotes:
    """The content of ``ingest.yaml``."""

    __pydantic_config__ = STRICT

    platform: Platform | str | None = None
    """A platform with the keys of a matrix, or the id of a catalogued platform."""
    subject: NotedSubject | None = None
    """The validated subject."""
    date: str = ""
    """Time of the results: a date or an RFC 3339 time."""
    environment: str = ""
    """Name of the environment; ``image`` by default."""
    suites: tuple[NotedSuite, ...] = ()
    """Suites with their tests; the first suite that matches a test applies."""
    jobs: dict[str, NotedJob] = field(default_factory=dict)
    """Jobs by id."""
    outcome: NotedOutcome | None = None
    """The outcome of a platform without results."""
    machine: StatedMachine | None = None
    """The machine and its price."""
    annotations: tuple[AddedAnnotation, ...] = ()
    """Annotations: narratives, fixes, recommendations, known issues."""

    def dated_at(self) -> datetime | None:
        """Return the stated time of the results; None if there is none."""
        return moment(self.date) if self.date else None

    def stated(self, *, cell: str, at: datetime) -> tuple[RunAnnotation, ...]:
        """Return the annotations of the cell and of the run; `at` dates those without a time."""
        told = self.annotations
        return tuple(one.about("" if one.whole_run else cell, at=at) for one in told)

    def cause(self) -> tuple[Outcome, str, str] | None:
        """Return the stated (outcome, reason, detail); None if there is no stated outcome."""
        said = self.outcome
        return (Outcome(said.word), said.reason, said.detail) if said else None


def check_notes(notes: IngestNotes) -> Iterator[Problem]:
    """Yield every problem of notes that match the schema."""
    dated = notes.dated_at()
    if notes.date and (dated is None or dated.year < _FIRST_YEAR):
        yield Problem(("date",), NO_TIME.format(notes.date))
    for index, one in enumerate(notes.annotations):
        if one.at and moment(one.at) is None:
            yield Problem(("annotations", index, "at"), NO_TIME.format(one.at))
        if not (one.text or one.title):
            yield Problem(("annotations", index), "needs a title or a text")
    yield from _suite_problems(notes)
    for path, name in _names(notes):
        if not IDENTIFIER.fullmatch(name):
            yield Problem(path, f"{name!r} must be letters, digits, '-' and '_' (at most 64)")
    yield from _machine_problems(notes.machine)


def _suite_problems(notes: IngestNotes) -> Iterator[Problem]:
    for index, suite in enumerate(notes.suites):
        if not suite.match.strip():
            yield Problem(("suites", index, "match"), "must not be empty")


def _names(notes: IngestNotes) -> Iterator[tuple[Path, str]]:
    for index, suite in enumerate(notes.suites):
        yield ("suites", index, "id"), suite.id
    for job in notes.jobs:
        yield ("jobs", job), job
    if notes.environment:
        yield ("environment",), notes.environment


_FIRST_YEAR = 1970


def _machine_problems(machine: StatedMachine | None) -> Iterator[Problem]:
    for key in ("seconds", "usd_per_hour"):
        value = getattr(machine, key, None)
        if isinstance(value, Decimal) and value < 0:
            yield Problem(("machine", key), "must not be negative")
    if machine is not None and machine.seconds == 0:
        yield Problem(("machine", "seconds"), "must be more than 0; leave out what is not known")
