"""Brings messages to the outside."""

from __future__ import annotations

from typing import Protocol


class Courier(Protocol):
    """Brings messages to the outside."""
