"""Signs documents, and checks signatures."""

from __future__ import annotations

from typing import Protocol


class Notary(Protocol):
    """Signs documents, and checks signatures."""
