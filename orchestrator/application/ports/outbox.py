"""Whom to tell, and what has not reached them yet."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Protocol

from orchestrator.application.ports.clock import NewId
from orchestrator.domain.announcement import Announcement
from orchestrator.domain.channel import Channel, Delivery, Health, LoggedAttempt, Receipt, Secret

LEASE_S = 60.0
"""Longer than any attempt takes: after it, whoever was to send is taken for dead."""


class OutboxStore(Protocol):
    """Whom to tell, and what has not reached them yet.

    Each method is one transaction.
    """

    def put(self, announcement: Announcement, *, new_id: NewId, at: datetime) -> bool:
        """Decide whether it is news, and write a delivery for every channel that is to be told.

        True if its line stood elsewhere. A key that was put before changes nothing. A commit's
        status is told where the commit had another one, whether or not the line has changed.
        """
        ...

    def claim(
        self, *, at: datetime, but_not: Collection[str] = (), lease_s: float = LEASE_S
    ) -> tuple[Channel, Delivery] | None:
        """Take the delivery that is due longest; nobody else gets it while the lease lasts.

        Those of the channels `but_not` are left alone.

        Not idempotent. The lease runs by the database's clock, so that controllers whose clocks
        differ do not send the same at once. News of one line come to a channel in their order:
        a later one waits until the earlier one is done with.
        """
        ...

    def settle(self, delivery_id: str, receipt: Receipt, *, at: datetime) -> None:
        """Write an attempt down, and what follows of it for the delivery and its channel."""
        ...

    def add(self, channel: Channel) -> bool:
        """Store a channel; False, and nothing is stored, where there is one of its name."""
        ...

    def channel(self, channel_id: str) -> Channel | None:
        """One of them."""
        ...

    def channels(self) -> list[tuple[Channel, Health]]:
        """All of them, oldest first."""
        ...

    def remove(self, channel_id: str) -> bool:
        """Forget it with its deliveries and its log; False if there is none."""
        ...

    def renew(self, channel_id: str, secret: Secret, *, until: datetime) -> Channel | None:
        """Sign with another secret from now; the one before stands until then, older ones end.

        Not idempotent.
        """
        ...

    def log(self, channel_id: str, *, limit: int) -> list[tuple[Delivery, list[LoggedAttempt]]]:
        """Its newest deliveries with their attempts."""
        ...

    def record_test(self, delivery: Delivery, receipt: Receipt, *, at: datetime) -> None:
        """Write down a call that was made to test a channel; one that got through enables it."""
        ...
