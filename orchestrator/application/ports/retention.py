"""Ports of pruning: files of a controller's home, and the engine's records."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Protocol

from orchestrator.domain.retention import Amount


class HomeFiles(Protocol):
    """Files in the controller's home that the controller can write again."""

    def reports(self) -> Iterator[str]:
        """Yield the ids of runs with rendered reports."""
        ...

    def drop_reports(self, run_id: str, *, dry: bool) -> Amount:
        """Remove or only count a run's rendered reports with their copies of artifacts."""
        ...

    def drop_wheels(self, before: datetime, *, dry: bool) -> Iterator[Amount]:
        """Remove or only count the wheelhouses that were resolved before a time."""
        ...

    def drop_copies(self, before: datetime, *, dry: bool) -> Iterator[Amount]:
        """Remove unpacked payloads, wheels and agents of local jobs, or only count them.

        Only copies that no attempt has started to use since `before`.
        """
        ...


class FinishedFlows(Protocol):
    """Records of the engine about flows that ended."""

    def forget(
        self, before: datetime, is_over: Callable[[list[str]], set[str]], *, dry: bool
    ) -> Iterator[int]:
        """Delete records of flows that ended before a time, or count them; yield sums by batch.

        `is_over` returns which of these cells are over for good.
        """
        ...
