"""What a rule about foreign reports is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from orchestrator.domain.lint_findings import Level
from orchestrator.domain.run_record import Evidence
from reports.foreign.document import Document


@dataclass(frozen=True, slots=True)
class Mark:
    """What a rule says of a line."""

    level: Level
    line: int
    message: str


@dataclass(frozen=True, slots=True)
class Rule:
    """One question to one document."""

    id: str
    says: str
    """What it looks for."""
    advice: str
    """What to do where it finds something."""
    check: Callable[[Document], Iterable[Mark]]


@dataclass(frozen=True, slots=True)
class AcrossRule:
    """One question to several documents together."""

    id: str
    says: str
    advice: str
    check: Callable[[Sequence[Document]], Iterable[tuple[Document, Mark]]]


@dataclass(frozen=True, slots=True)
class EvidenceRule:
    """One question to a document and the results of a run."""

    id: str
    says: str
    advice: str
    check: Callable[[Document, Evidence], Iterable[Mark]]
