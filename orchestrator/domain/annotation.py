"""What a person writes for the reports of a run that is there: a file, or one annotation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time

from orchestrator.domain.extended import filled
from orchestrator.domain.ingested import AnnotationKind, RunAnnotation
from orchestrator.domain.problems import Path, Problem, nearest

_STRICT = {"extra": "forbid", "use_attribute_docstrings": True}
MOST_ANNOTATIONS = 100
"""Of one file or request."""
_LONGEST = {"text": 65_536, "problem": 65_536, "before": 65_536, "after": 65_536}
_LONGEST_LINE = 300
_MOST_FILES = 200
_FIRST_YEAR = 1970
_LINES = ("title", "author", "cell", "commit")
_LAYOUT = frozenset("\n\t")
NO_TIME = "{!r} is no date (2026-01-19) and no time with its zone (2026-01-19T12:00:00Z)"


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnotationText:
    """Something for the reports that a person wrote, wherever it belongs."""

    __pydantic_config__ = _STRICT

    kind: AnnotationKind
    """What it is."""
    text: str = ""
    """Markdown."""
    title: str = ""
    """One line."""
    author: str = ""
    """Who wrote it."""
    at: str = ""
    """A date, or a time as in RFC 3339; by default that of the results, or of handing in."""
    files: tuple[str, ...] = ()
    """Which files it is about."""
    problem: str = ""
    """Of a fix: what was wrong."""
    before: str = ""
    """Of a fix: the code before."""
    after: str = ""
    """Of a fix: the code after."""
    commit: str = ""
    """Of a fix."""

    def about(self, cell: str, *, at: datetime) -> RunAnnotation:
        """The annotation about that cell, or the run, made at that time unless it says when."""
        return filled(
            RunAnnotation, self, at=(moment(self.at) if self.at else None) or at, cell=cell
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotation(AnnotationText):
    """Something for the reports of a run that is there."""

    cell: str = ""
    """The cell that it is about; the whole run by default."""

    def stated(self, at: datetime) -> RunAnnotation:
        """The annotation, made at that time unless it says when."""
        return self.about(self.cell, at=at)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnotationsFile:
    """The whole of a file of annotations."""

    __pydantic_config__ = _STRICT

    annotations: tuple[Annotation, ...]
    """Narrative, fixes, recommendations, known issues."""
    author: str = ""
    """Of those that do not say who wrote them."""

    def signed(self) -> tuple[Annotation, ...]:
        """Each with its author."""
        return tuple(replace(one, author=one.author or self.author) for one in self.annotations)


def moment(text: str) -> datetime | None:
    """A date (its midnight in UTC) or an RFC 3339 time; None for anything else."""
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
    """The annotations not stored yet; one without a time equals a stored one of any time."""
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
    """Everything in well-formed annotations about a run of these cells that makes no sense."""
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
