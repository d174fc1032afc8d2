"""Port of the notification sender."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from orchestrator.domain.channel import Channel, Delivery, DeliveryReceipt


class NotificationSender(Protocol):
    """Port of the notification sender."""

    def send(self, channel: Channel, delivery: Delivery, *, now: datetime) -> DeliveryReceipt:
        """Try one delivery, bounded in time; every error becomes a receipt.

        Sending twice is allowed: receivers recognise the delivery's id.
        """
        ...

    def new_secret(self) -> str:
        """Return a new signing secret."""
        ...
