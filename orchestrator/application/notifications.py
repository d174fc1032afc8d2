"""Notifies channels when a gate's state changes, and delivers queued notifications."""

from __future__ import annotations

import logging

from orchestrator.application.context import Context
from orchestrator.domain.channel import Announcement, DeliveryResult, LineageState
from orchestrator.domain.gate.verdict import StoredVerdict


def run_link(context: Context, run: str) -> str:
    """URL of a run's page; empty without a configured public URL."""
    base = context.gate.public_url
    return f"{base}/runs/{run}" if base and run else ""


def verdict_link(context: Context, verdict: str) -> str:
    """URL of a verdict's page; empty without a configured public URL."""
    base = context.gate.public_url
    return f"{base}/verdicts/{verdict}" if base else ""


logger = logging.getLogger(__name__)
AT_ONCE = 20
"""Maximum deliveries per poll; the next one follows within seconds."""


def deliver(context: Context) -> None:
    """Try every due delivery, one after the other, outside of any transaction.

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
        if receipt.result is not DeliveryResult.ACCEPTED:
            failing.add(channel.id)
            logger.warning(
                "channel %s (%s): %s", channel.name, channel.id, receipt.response_excerpt
            )


def notify_people(context: Context, announcement: Announcement) -> bool:
    """Queue an announcement for every channel that wants it, in one transaction.

    True if it is news: the line stood elsewhere, or nobody was ever told of it. The same key
    again, from this controller or another, changes nothing and is False. Nothing is sent here;
    `deliver` does that.
    """
    return context.stores.outbox.put(announcement, new_id=context.new_id, at=context.clock.now())


def announce_verdict(context: Context, stored: StoredVerdict) -> bool:
    """Announce a verdict where it changes the state of its lineage; idempotent."""
    verdict = stored.verdict
    state = LineageState.of(verdict.decision)
    subject = verdict.subject
    about = f"{subject.get('name', '')} {subject.get('version', '')}".strip()
    facts = {
        "gate": stored.gate,
        "product": verdict.product,
        "subject": subject.get("name", ""),
        "version": subject.get("version", ""),
        "git_sha": subject.get("git_sha", ""),
        "verdict": stored.id,
        "runs": " ".join(stored.runs),
    }
    return notify_people(
        context,
        Announcement(
            lineage=stored.lineage,
            state=state,
            title=f"{stored.gate} gate: {state.words}" + (f" for {about}" if about else ""),
            text=verdict.summary,
            url=verdict_link(context, stored.id),
            at=stored.created_at,
            key=f"verdict:{stored.id}",
            evaluated_at=stored.created_at,
            facts={name: text for name, text in facts.items() if text},
        ),
    )
