"""More executions of failed tests on the same machine, with one thing changed."""

from __future__ import annotations

from typing import Protocol


class TrialStore(Protocol):
    """More executions of failed tests on the same machine, with one thing changed.

    Each method is one transaction.
    """
