"""Annotations that a person adds to the reports of a stored run, alone or in a file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time

from orchestrator.domain.copied_fields import filled
from orchestrator.domain.document_problems import Path, Problem, nearest
from orchestrator.domain.field_limits import STRICT
from orchestrator.domain.ingested import AnnotationKind, RunAnnotation

MOST_ANNOTATIONS = 100
"""Maximum number of annotations per file or request."""
_LONGEST = {"text": 65_536, "problem": 65_536, "before": 65_536, "after": 65_536}
_LONGEST_LINE = 300
_MOST_FILES = 200
_FIRST_YEAR = 1970
_LINES = ("title", "author", "cell", "commit")
_LAYOUT = frozenset("\n\t")
NO_TIME = "{!r} is no date (2026-01-19) and no time with its zone (2026-01-19T12:00:00Z)"


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnotationText:
    """The text fields of an annotation."""

    __pydantic_config__ = STRICT

    kind: AnnotationKind
    """The kind of annotation."""
    text: str = ""
    """The text, in Markdown."""
    title: str = ""
    """The title, in one line."""
    author: str = ""
    """The author of the annotation."""
    at: str = ""
    """A date or an RFC 3339 time; by default the time of the results, or of the request."""
    files: tuple[str, ...] = ()
    """The files that the annotation refers to."""
    problem: str = ""
    """The problem that a fix solves."""
    before: str = ""
    """The code before a fix."""
    after: str = ""
    """The code after a fix."""
    commit: str = ""
    """The commit of a fix."""

    def about(self, cell: str, *, at: datetime) -> RunAnnotation:
        """Return the annotation of a cell, dated `at` if it has no time of its own.

        `cell` is empty for an annotation of the whole run.
        """
        return filled(
            RunAnnotation, self, at=(moment(self.at) if self.at else None) or at, cell=cell
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotation(AnnotationText):
    """An annotation for the reports of a stored run."""

    cell: str = ""
    """The cell that the annotation refers to; empty for the whole run."""

    def stated(self, at: datetime) -> RunAnnotation:
        """Return the annotation, dated `at` if it has no own time."""
        return self.about(self.cell, at=at)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnotationsFile:
    """The content of an annotations file."""

    __pydantic_config__ = STRICT

    annotations: tuple[Annotation, ...]
    """The annotations: narratives, fixes, recommendations, known issues."""
    author: str = ""
    """The author of all annotations that name none."""

    def signed(self) -> tuple[Annotation, ...]:
        """Return the annotations; those without an author get the file's author."""
        return tuple(replace(one, author=one.author or self.author) for one in self.annotations)


def moment(text: str) -> datetime | None:
    """Parse a date (midnight UTC) or an RFC 3339 time; return None for any other text."""
    try:
        if len(text) <= len("2026-01-19"):
            return datetime.combine(date.fromisoformat(text), time(), UTC)
        read = datetime.fromisoformat(text)
        return read.astimezone(UTC) if read.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None


def unsaid(
    written: Iterable[Annotation], known: Sequence[RunAnnotation], *, at: datetime
) -> tuple[RunAnnotation, ...]:
    """Return the annotations that are not stored yet.

    An annotation without a time equals a stored annotation with any time.
    """
    timeless = {replace(one, at=at) for one in known}
    exact, fresh = set(known), []
    for one in written:
        annotation = one.stated(at)
        if annotation in exact or (not one.at and annotation in timeless):
            continue
        exact.add(annotation)
        fresh.append(annotation)
    return tuple(fresh)


def check_annotations(written: Sequence[Annotation], cells: Sequence[str]) -> Iterator[Problem]:
    """Yield every problem of annotations of a run that has these cells."""
    if not written:
        yield Problem(("annotations",), "there is none")
    if len(written) > MOST_ANNOTATIONS:
        yield Problem(("annotations",), f"are {len(written)}: at most {MOST_ANNOTATIONS} at once")
    for index, one in enumerate(written[:MOST_ANNOTATIONS]):
        for key, message in _faults(one, cells):
            yield Problem(("annotations", index, *key), message)


def _faults(one: Annotation, cells: Sequence[str]) -> Iterator[tuple[Path, str]]:
    if not (one.text.strip() or one.title.strip()):
        yield (), "needs a title or a text"
    if not one.author.strip():
        yield ("author",), "is missing: say who wrote it"
    said = moment(one.at) if one.at else None
    if one.at and (said is None or said.year < _FIRST_YEAR):
        yield ("at",), NO_TIME.format(one.at)
    if one.cell and one.cell not in cells:
        yield ("cell",), f"the run has no cell {one.cell!r}{nearest(one.cell, cells)}"
    if len(one.files) > _MOST_FILES:
        yield ("files",), f"are {len(one.files)}: at most {_MOST_FILES}"
    yield from _texts(one)


def _texts(one: Annotation) -> Iterator[tuple[Path, str]]:
    for key, most in _LONGEST.items():
        yield from _text((key,), getattr(one, key), most)
    for key in _LINES:
        yield from _line((key,), getattr(one, key))
    for number, name in enumerate(one.files[:_MOST_FILES]):
        yield from _line(("files", number), name)


def _text(path: Path, text: str, most: int) -> Iterator[tuple[Path, str]]:
    if len(text) > most:
        yield path, f"has {len(text)} characters: at most {most}"
    elif any(_is_odd(sign) for sign in text):
        yield path, "has a character that no text has: a control character, or half of a pair"


def _line(path: Path, text: str) -> Iterator[tuple[Path, str]]:
    if any(sign in text for sign in "\n\r\t"):
        yield path, "must be one line"
    else:
        yield from _text(path, text, _LONGEST_LINE)


def _is_odd(sign: str) -> bool:
    is_control = (sign < " " and sign not in _LAYOUT) or "\x7f" <= sign <= "\x9f"
    return is_control or "\ud800" <= sign <= "\udfff"
