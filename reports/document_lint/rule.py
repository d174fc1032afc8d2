"""What a rule about foreign reports is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from orchestrator.domain.lint_findings import Level
from orchestrator.domain.run_record import Evidence
from reports.document_lint.document import Document


@dataclass(frozen=True, slots=True)
class Mark:
    """What a rule says of a line."""

    level: Level
    line: int
    message: str


Check = TypeVar("Check", bound=Callable[..., Iterable[object]])


# Without slots: with them, Python 3.11 cannot make a frozen generic by the name of its kind.
@dataclass(frozen=True)
class Rule(Generic[Check]):
    """One question to reports."""

    id: str
    says: str
    """What it looks for."""
    advice: str
    """What to do where it finds something."""
    check: Check


DocumentRule = Rule[Callable[[Document], Iterable[Mark]]]
"""One question to one document."""
AcrossRule = Rule[Callable[[Sequence[Document]], Iterable[tuple[Document, Mark]]]]
"""One question to several documents together."""
EvidenceRule = Rule[Callable[[Document, Evidence], Iterable[Mark]]]
"""One question to a document and the results of a run."""
