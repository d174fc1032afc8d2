"""Reports that others wrote, and what is found wrong in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from orchestrator.domain.ingested import RunAnnotation

Level = Literal["error", "warning", "note"]
LEVELS: tuple[Level, ...] = ("error", "warning", "note")
"""The gravest first: contradicted, unsupported, worth knowing."""


@dataclass(frozen=True, slots=True)
class ForeignDocument:
    """A Markdown report as it came."""

    name: str
    text: str
    replaced: int = 0
    """Bytes of it that were no UTF-8, and are replacement characters in the text."""


@dataclass(frozen=True, slots=True)
class DocumentFinding:
    """One thing that is wrong with a document."""

    level: Level
    rule: str
    document: str
    line: int
    """From 1."""
    message: str
    """One sentence of plain text."""
    advice: str
    """What to do about it."""


@dataclass(frozen=True, slots=True)
class Doubt:
    """What the results of a run say against something that a person wrote for its reports."""

    level: str
    """``error``: they contradict it. ``warning``: nothing backs it."""
    message: str
    """One sentence of plain text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedAnnotation(RunAnnotation):
    """An annotation, and what the results say against it."""

    doubts: tuple[Doubt, ...]
