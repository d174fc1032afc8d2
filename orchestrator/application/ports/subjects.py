"""What a branch or ``latest`` means now, and a wheel of it."""

from __future__ import annotations

from typing import Protocol


class Subjects(Protocol):
    """What a branch or ``latest`` means now, and a wheel of it."""
