"""Which controllers live."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol


class ControllerStore(Protocol):
    """Which controllers live, so that a dead one's cells are taken over."""

    def beat(self, controller_id: str) -> None:
        """Say that it lives now, by the database's clock."""
        ...

    def dead(self, *, grace_s: float) -> list[str]:
        """Ids that have not been heard of for so long."""
        ...

    def claim(self, controller_id: str, *, grace_s: float) -> bool:
        """Take over from a dead one; True for exactly one of those who try at once.

        Whoever did so has the grace for it, then says `leave`; else the next one may.
        """
        ...

    def note(self, controller_ids: Iterable[str]) -> None:
        """Count those that were never heard of as dead."""
        ...

    def leave(self, controller_id: str) -> None:
        """Forget it: its work is in other hands."""
        ...
