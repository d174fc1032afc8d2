"""A clock that a test moves."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


class Skewed:
    """The cloud's clock: the computer's, moved by a test."""

    def __init__(self) -> None:
        self.ahead = timedelta()

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self.ahead

    def move(self, seconds: float) -> None:
        self.ahead += timedelta(seconds=seconds)
