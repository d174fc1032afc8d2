"""Tell people of a line of verdicts: once, and only when it comes to stand somewhere else."""

from __future__ import annotations

from orchestrator.application.context import Context
from orchestrator.domain.announcement import Announcement


def notify_people(context: Context, announcement: Announcement) -> bool:
    """Write it into the outbox of every channel that wants it, in one transaction.

    True if it is news: the line stood elsewhere, or nobody was ever told of it. The same key
    again, from this controller or another, changes nothing and is False. Nothing is sent here;
    `deliver` does that.
    """
    return context.stores.outbox.put(announcement, new_id=context.new_id, at=context.clock.now())
