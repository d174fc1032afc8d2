"""Reports of other programs, and the linter's findings in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from orchestrator.domain.field_limits import STRICT, ValueLimits
from orchestrator.domain.ingested import RunAnnotation

Level = Literal["error", "warning", "note"]
LEVELS: tuple[Level, ...] = ("error", "warning", "note")
"""Levels, most severe first: contradicted, unsupported, noteworthy."""
LARGEST_TEXT = 1 << 19
"""Maximum characters of a document."""


@dataclass(frozen=True, slots=True)
class ForeignDocument:
    """A Markdown report of another program."""

    __pydantic_config__ = STRICT

    name: Annotated[str, ValueLimits(min_length=1, max_length=200)]
    """Name of the file, for the findings."""
    text: Annotated[str, ValueLimits(max_length=LARGEST_TEXT)]
    replaced: Annotated[int, ValueLimits(ge=0, le=LARGEST_TEXT)] = 0
    """Number of bytes that were not UTF-8 and were replaced."""


@dataclass(frozen=True, slots=True)
class DocumentFinding:
    """A finding in a document."""

    level: Level
    rule: str
    document: str
    line: int
    """Line number, from 1."""
    message: str
    """One sentence of plain text."""
    advice: str
    """Advice for the author of the document."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LintResponse:
    """Findings by document, level and line."""

    findings: tuple[DocumentFinding, ...]
    counts: Mapping[str, int]
    """Number of findings by level."""
    run: str | None
    """Id of the run that the documents were compared with; None without a run."""


@dataclass(frozen=True, slots=True)
class AnnotationConflict:
    """A contradiction between an annotation and the results of its run."""

    level: str
    """``error``: the results contradict it; ``warning``: no result supports it."""
    message: str
    """One sentence of plain text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedAnnotation(RunAnnotation):
    """An annotation with its conflicts with the results."""

    doubts: tuple[AnnotationConflict, ...]
