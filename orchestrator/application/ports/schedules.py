"""Schedules and their firings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from orchestrator.domain.schedule import Firing, Schedule


class ScheduleTakenError(ValueError):
    """There is a schedule of this name."""


@dataclass(frozen=True, slots=True)
class DueSchedule:
    """A schedule whose next time has come."""

    schedule: Schedule
    next_due_at: datetime


class ScheduleStore(Protocol):
    """Schedules and their firings.

    Each method is one transaction.
    """

    def add(self, schedule: Schedule, *, next_due_at: datetime) -> None:
        """Store a new one. Raises ScheduleTakenError, unless it is the very same."""
        ...

    def get(self, name: str) -> Schedule | None:
        """The schedule, or None."""
        ...

    def list(self) -> list[Schedule]:
        """By name."""
        ...

    def pause(self, name: str, *, at: datetime) -> Schedule | None:
        """Let it fire no more; None where there is none."""
        ...

    def resume(self, name: str, *, next_due_at: datetime) -> Schedule | None:
        """Let it fire again from this time on; one that is not paused stays as it is."""
        ...

    def remove(self, name: str) -> bool:
        """Forget it and its firings; False where there is none. Runs and verdicts stay."""
        ...

    def due(self, now: datetime) -> Sequence[DueSchedule]:
        """Those that are not paused and whose next time is not later than `now`."""
        ...

    def next_due(self, name: str) -> datetime | None:
        """When it fires next; None while it is paused, or where there is none."""
        ...

    def claim(self, due: DueSchedule, firings: Sequence[Firing], *, next_due_at: datetime) -> bool:
        """Write its firings and its next time down; True for exactly one of those who try."""
        ...

    def trigger(self, firing: Firing) -> Firing:
        """Write one down that a person asked for; the same second again is the same firing."""
        ...

    def firings(self, name: str, *, limit: int = 50) -> Sequence[Firing]:
        """Of one schedule, the latest first."""
        ...

    def latest(self, *, limit: int) -> Mapping[str, Sequence[Firing]]:
        """By schedule its latest so many firings, the latest first."""
        ...

    def open(self) -> Sequence[Firing]:
        """Those of all schedules that are not over, the earliest first."""
        ...

    def firing(self, name: str, due_at: datetime) -> Firing | None:
        """As it is now."""
        ...

    def take(self, firing: Firing, holder: str, *, lease_s: float) -> Firing | None:
        """Hold a firing for so long by the database's clock, and read it.

        None where somebody else holds it, or it is over.
        """
        ...

    def renew(self, firing: Firing, holder: str, *, lease_s: float) -> bool:
        """Hold it for longer; False where it is somebody else's by now."""
        ...

    def save(self, firing: Firing, holder: str) -> bool:
        """Write it as it is now; False, and nothing is written, where it is not the holder's."""
        ...

    def begin(self, firing: Firing, holder: str) -> bool:
        """Write one that launches its run now, as `save` does, if no other goes before it.

        Of those that meet only one begins, whoever asks at the same time.
        """
        ...

    def give_back(self, firing: Firing, holder: str) -> None:
        """Hold it no longer; nothing happens where it is somebody else's."""
        ...

    def supersede(self, firing: Firing) -> None:
        """Ask for the end of every firing that goes before it."""
        ...
