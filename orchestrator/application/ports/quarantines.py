"""Flaky tests whose failures do not count until a day."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from orchestrator.domain.gate.snapshot import Quarantine


class QuarantineStore(Protocol):
    """Flaky tests whose failures do not count until a day; none is ever removed.

    Each method is one transaction.
    """

    def add(self, quarantine: Quarantine) -> Quarantine:
        """Store it under a new id; the given id is not read. Not idempotent."""
        ...

    def list(self, *, product: str | None = None) -> list[Quarantine]:
        """By id, those that are over too."""
        ...

    def end(self, quarantine_id: str, *, at: datetime, by: str) -> Quarantine | None:
        """End it, once: the first word stands. None where there is none."""
        ...
