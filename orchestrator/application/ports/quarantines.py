"""Flaky tests whose failures do not count until a day."""

from __future__ import annotations

from typing import Protocol


class QuarantineStore(Protocol):
    """Flaky tests whose failures do not count until a day.

    Each method is one transaction.
    """
