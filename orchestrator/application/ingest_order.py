"""What the order and the notes beside the artifacts say together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from orchestrator.application.ports.ingest_upload import Handed, IntakeError
from orchestrator.domain.assembly.jobs import names_artifact
from orchestrator.domain.catalogue import PLATFORMS
from orchestrator.domain.ingest_notes import IngestNotes, NotedSubject
from orchestrator.domain.manifest import IDENTIFIER
from orchestrator.domain.matrix import Platform
from orchestrator.domain.problems import InvalidDocumentError, Problem, nearest

IMAGE = "image"
UNKNOWN_PROVIDER = "elsewhere"
"""Of a platform that no catalogue has."""
NOTES_NAME = "ingest.yaml"
_LONGEST_SUBJECT = 128
_AHEAD = timedelta(days=1)
"""The day has begun elsewhere before it has here."""
_ROW = "{id: my-host, provider: elsewhere}"


class IngestParameters(Protocol):
    """The part of an order that notes may say as well."""

    @property
    def platform(self) -> str:
        """Its id, or empty."""
        ...

    @property
    def subject(self) -> str:
        """``NAME@VERSION``, or empty."""
        ...

    @property
    def environment(self) -> str:
        """Its name, or empty."""
        ...


@dataclass(frozen=True, slots=True)
class IngestTarget:
    """Where the evidence belongs."""

    platform: Platform
    subject: NotedSubject
    environment: str
    notes: IngestNotes

    @property
    def cell(self) -> str:
        """What its cell is called."""
        if self.environment == IMAGE:
            return self.platform.id
        return f"{self.platform.id}.{self.environment}"


def resolve_order(
    said: IngestParameters, notes: IngestNotes, files: Sequence[Handed], *, now: datetime
) -> IngestTarget:
    """Put both together.

    Raises:
        IntakeError: They disagree, or say too little.
        InvalidDocumentError: The notes speak of what there is not.
    """
    _check_notes(notes, files, now)
    platform = _platform(said.platform, notes)
    subject = _subject(said.subject, notes)
    environment = said.environment or notes.environment or IMAGE
    if said.environment and notes.environment not in ("", said.environment):
        raise _differ("environment", notes.environment, said.environment)
    if not IDENTIFIER.fullmatch(environment):
        raise IntakeError(f"{environment!r} cannot be the name of an environment: {_FORM}")
    return IngestTarget(platform, subject, environment, notes)


_FORM = "letters, digits, '-' and '_' (at most 64)"


def _platform(said: str, notes: IngestNotes) -> Platform:
    noted = notes.platform
    name = noted.id if isinstance(noted, Platform) else noted or ""
    if said and name and said != name:
        raise _differ("platform", name, said)
    wanted = said or name
    if not wanted:
        raise IntakeError("nobody says which platform this is: use --platform, or ingest.yaml")
    if not IDENTIFIER.fullmatch(wanted):
        raise IntakeError(f"{wanted!r} cannot be the id of a platform: {_FORM}")
    if isinstance(noted, Platform):
        return noted
    known = PLATFORMS.get(wanted)
    return known.platform if known else Platform(id=wanted, provider=UNKNOWN_PROVIDER)


def _subject(said: str, notes: IngestNotes) -> NotedSubject:
    noted = notes.subject
    if not said:
        if noted is None:
            raise IntakeError(
                "nobody says what was validated: use --subject NAME@VERSION, or ingest.yaml"
            )
        return noted
    name, at, version = said.rpartition("@")
    if not (at and name.strip() and version.strip()):
        raise IntakeError(f"the subject {said!r} is not of the form NAME@VERSION")
    found = NotedSubject(name=name.strip(), version=version.strip())
    for text in (found.name, found.version):
        if fault := text_fault(text):
            raise IntakeError(f"{text[:_LONGEST_SUBJECT]!r} cannot be of a subject: {fault}")
    if noted is not None and noted != found:
        raise _differ("subject", f"{noted.name}@{noted.version}", said)
    return found


def text_fault(text: str) -> str:
    """What is wrong with a subject's name or version; empty where nothing is."""
    if not text.strip():
        return "it must not be empty"
    if not text.isprintable():
        return "it holds characters that do not print"
    if len(text) > _LONGEST_SUBJECT:
        return f"it is longer than {_LONGEST_SUBJECT} characters"
    return ""


def _check_notes(notes: IngestNotes, files: Sequence[Handed], now: datetime) -> None:
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


def _file_problems(notes: IngestNotes, files: Sequence[Handed]) -> list[Problem]:
    names = [file.name for file in files]
    return [
        Problem(("jobs", job, "file"), f"there is no {noted.file!r}{nearest(noted.file, names)}")
        for job, noted in notes.jobs.items()
        if noted.file and not any(names_artifact(noted.file, name) for name in names)
    ]


def _differ(what: str, noted: str, said: str) -> IntakeError:
    return IntakeError(f"ingest.yaml says {what} {noted}, and the order says {said}: mend one")
