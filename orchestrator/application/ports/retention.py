"""Ports of pruning: files of a controller's home, and the engine's records."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Protocol

from orchestrator.domain.retention import Amount


class HomeFiles(Protocol):
    """Files that a controller wrote into its home, and can make again."""

    def reports(self) -> Iterator[str]:
        """Yield the ids of runs with rendered reports."""
        ...

    def drop_reports(self, run_id: str, *, dry: bool) -> Amount:
        """Remove a run's rendered reports with their copies of artifacts, or only count them."""
        ...

    def drop_wheels(self, before: datetime, *, dry: bool) -> Iterator[Amount]:
        """Remove wheelhouses that were resolved before a time, or only count them."""
        ...

    def drop_copies(self, before: datetime, *, dry: bool) -> Iterator[Amount]:
        """Remove unpacked payloads, wheels and agents of local jobs, or only count them.

        Those that no attempt has begun with since a time.
        """
        ...


class FinishedFlows(Protocol):
    """Records of the engine about flows that ended."""

    def forget(
        self, before: datetime, is_over: Callable[[list[str]], set[str]], *, dry: bool
    ) -> Iterator[int]:
        """Delete those that ended before a time, or only count them; yield how many, by batch.

        `is_over` returns which of these cells are over for good.
        """
        ...
