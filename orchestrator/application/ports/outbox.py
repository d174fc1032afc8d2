"""Whom to tell, and what has not reached them yet."""

from __future__ import annotations

from typing import Protocol


class OutboxStore(Protocol):
    """Whom to tell, and what has not reached them yet.

    Each method is one transaction.
    """
