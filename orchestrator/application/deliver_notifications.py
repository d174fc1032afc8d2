"""Send what waits in the outbox."""

from __future__ import annotations

import logging

from orchestrator.application.context import Context
from orchestrator.domain.channel import DeliveryResult

logger = logging.getLogger(__name__)
AT_ONCE = 20
"""Deliveries of one look; the next look is seconds away."""


def deliver(context: Context) -> None:
    """Try every delivery that is due, one after the other, outside of any transaction.

    At least once: whoever dies between sending and writing it down leaves the delivery to the
    next, with the same id. A channel that fails waits for the next look, so that it does not keep
    the others waiting.
    """
    outbox, clock = context.stores.outbox, context.clock
    failing: set[str] = set()
    for _ in range(AT_ONCE):
        claimed = outbox.claim(at=clock.now(), but_not=failing)
        if claimed is None:
            return
        channel, delivery = claimed
        receipt = context.gate.courier.send(channel, delivery, now=clock.now())
        outbox.settle(delivery.id, receipt, at=clock.now())
        if receipt.result is not DeliveryResult.TAKEN:
            failing.add(channel.id)
            logger.warning(
                "channel %s (%s): %s", channel.name, channel.id, receipt.response_excerpt
            )
