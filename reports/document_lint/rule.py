"""Types of the rules on foreign reports."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from orchestrator.domain.lint_findings import Level
from orchestrator.domain.run_record import Evidence
from reports.document_lint.document import Document


@dataclass(frozen=True, slots=True)
class Mark:
    """The finding of a rule at a line."""

    level: Level
    line: int
    message: str


Check = TypeVar("Check", bound=Callable[..., Iterable[object]])


# Without slots: with them, Python 3.11 cannot make a frozen generic by the name of its kind.
@dataclass(frozen=True)
class Rule(Generic[Check]):
    """A rule on reports."""

    id: str
    says: str
    """Description of its findings."""
    advice: str
    """What to do about a finding."""
    check: Check


DocumentRule = Rule[Callable[[Document], Iterable[Mark]]]
"""A rule on one document."""
AcrossRule = Rule[Callable[[Sequence[Document]], Iterable[tuple[Document, Mark]]]]
"""A rule on several documents together."""
EvidenceRule = Rule[Callable[[Document, Evidence], Iterable[Mark]]]
"""A rule on a document and the results of a run."""
