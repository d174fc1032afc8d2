"""What people wrote for a report, with what the results say to it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from orchestrator.domain.lint_findings import Doubt


@dataclass(frozen=True, slots=True)
class Authored:
    """One annotation: dated, signed, and never ours."""

    kind: str
    """``narrative``, ``fix``, ``recommendation``, ``known-issue``, ``note`` or ``conclusion``."""
    title: str
    text: str
    author: str
    at: datetime
    cell: str
    """Empty where it is about the whole run."""
    files: tuple[str, ...]
    problem: str
    before: str
    after: str
    commit: str
    doubts: tuple[Doubt, ...]
