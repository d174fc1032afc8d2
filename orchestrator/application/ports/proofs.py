"""Which jobs are proven by what, so that the unchanged is not run again."""

from __future__ import annotations

from typing import Protocol


class ProofStore(Protocol):
    """Which jobs are proven by what, so that the unchanged is not run again.

    Each method is one transaction.
    """
