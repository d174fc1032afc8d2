"""Notification channels: add, test, rotate the secret, remove; and deliver notifications."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from fnmatch import fnmatchcase
from typing import Annotated

from orchestrator.application.context import Context
from orchestrator.domain.channel import (
    GITHUB_API,
    OVERLAP,
    Announcement,
    Channel,
    ChannelKind,
    ChannelSecret,
    Delivery,
    DeliveryReceipt,
    DeliveryResult,
    DeliveryState,
    LineageState,
    News,
    problems_of,
)
from orchestrator.domain.document_problems import InvalidDocumentError, Problem
from orchestrator.domain.extend_record import filled
from orchestrator.domain.field_limits import ONE_LINE, STRICT, ValueLimits
from orchestrator.domain.gate.verdict import StoredVerdict, Verdict, failing_items

MOST_CHANNELS = 100
_Pattern = Annotated[str, ValueLimits(min_length=1, max_length=200, pattern=ONE_LINE)]
_Url = Annotated[str, ValueLimits(min_length=1, max_length=2000, pattern=ONE_LINE)]
_TEST_TEXT = "Nothing has happened: somebody tests whether this channel reaches its people."


@dataclass(frozen=True, slots=True, kw_only=True)
class NewChannel:
    """A channel to create."""

    __pydantic_config__ = STRICT

    name: Annotated[str, ValueLimits(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]
    kind: ChannelKind = ChannelKind.WEBHOOK
    target: _Url
    """A URL; for ``github``, ``owner/repository``."""
    lineages: Annotated[tuple[_Pattern, ...], ValueLimits(max_length=50)] = ()
    """Patterns of lineages, with ``*`` and ``?``. Empty takes all."""
    allow_private: bool = False
    """Whether private addresses and plain HTTP are allowed, for receivers in your own network."""
    api_base: _Url = GITHUB_API
    """API of a GitHub Enterprise: ``https://github.example.org/api/v3``."""
    token_from: Annotated[str, ValueLimits(max_length=200, pattern=ONE_LINE)] = ""
    """Where the controller reads GitHub's token: ``env:GITHUB_TOKEN``, or ``file:NAME`` of a file
    in its ``HOME/keys``.
    """


def add_channel(context: Context, new: NewChannel) -> tuple[Channel, str | None]:
    """Store a channel. Only this call returns the signing secret; a GitHub channel has none.

    Raises InvalidDocumentError, and nothing is stored.
    """
    secret = None if new.kind is ChannelKind.GITHUB else context.gate.sender.new_secret()
    channel = filled(
        Channel,
        new,
        id=context.new_id(),
        created_at=context.clock.now(),
        secrets=(ChannelSecret(secret),) if secret else (),
    )
    problems = [Problem((field,), why) for field, why in problems_of(channel)]
    if len(context.stores.outbox.channels()) >= MOST_CHANNELS:
        problems.append(Problem((), f"there are {MOST_CHANNELS} channels: remove one first"))
    if problems:
        raise InvalidDocumentError("the channel", problems)
    if not context.stores.outbox.add(channel):
        taken = Problem(("name",), f"there is a channel {new.name!r} already")
        raise InvalidDocumentError("the channel", [taken])
    return channel, secret


def unmatched_lineages(context: Context, patterns: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the patterns that no present lineage matches, and the present lineages by name.

    Present are the lineages with a verdict, of the schedules, and each gate's own.
    """
    stores = context.stores
    present = {one.newest.lineage for one in stores.gates.lineage_heads()}
    present |= {one.lineage for one in stores.schedules.list()}
    present |= {one.gate for one in stores.gates.policies()}
    missing = [one for one in patterns if not any(fnmatchcase(name, one) for name in present)]
    return missing, sorted(present)


def find_channel(context: Context, named: str) -> Channel | None:
    """Return a channel by id or name."""
    channels = [channel for channel, _ in context.stores.outbox.channels()]
    by_id = (one for one in channels if one.id == named)
    return next(by_id, None) or next((one for one in channels if one.name == named), None)


def call_channel(context: Context, channel: Channel, *, git_sha: str = "") -> DeliveryReceipt:
    """Send a test message now, and log the attempt. A successful one enables the channel."""
    now = context.clock.now()
    told = Announcement(
        lineage="test",
        state=LineageState.PASS,
        title=f"A test of the channel {channel.name}",
        text=_TEST_TEXT,
        url="",
        at=now,
        key=context.new_id(),
        facts={"gate": "test", **({"git_sha": git_sha} if git_sha else {})},
    )
    delivery = Delivery(
        id=context.new_id(),
        channel=channel.id,
        news=News(announcement=told, previous=None),
        state=DeliveryState.WAITING,
        created_at=now,
        attempts=0,
        due_at=now,
        is_test=True,
    )
    receipt = context.gate.sender.send(channel, delivery, now=now)
    context.stores.outbox.record_test(delivery, receipt, at=context.clock.now())
    return receipt


def renew_secret(
    context: Context, channel: Channel, *, overlap: timedelta = OVERLAP
) -> tuple[Channel, str]:
    """Add a signing secret, returned only here; the old one stays valid for the overlap.

    Raises InvalidDocumentError for a channel that has none.
    """
    if channel.kind is ChannelKind.GITHUB:
        why = "has no secret of ours: renew the token where it is kept, the channel reads it anew"
        raise InvalidDocumentError(f"the channel {channel.name}", [Problem((), why)])
    secret = context.gate.sender.new_secret()
    until = context.clock.now() + overlap
    renewed = context.stores.outbox.renew(channel.id, ChannelSecret(secret), until=until)
    return renewed or channel, secret


def run_link(context: Context, run: str) -> str:
    """Return the URL of a run's page; empty without a configured public URL."""
    base = context.gate.public_url
    return f"{base}/runs/{run}" if base and run else ""


def verdict_link(context: Context, verdict: str) -> str:
    """Return the URL of a verdict's page; empty without a configured public URL."""
    base = context.gate.public_url
    return f"{base}/verdicts/{verdict}" if base else ""


logger = logging.getLogger(__name__)
AT_ONCE = 20
"""Maximum deliveries per poll; the next one follows within seconds."""


def deliver(context: Context) -> None:
    """Try every due delivery, one after the other, outside of any transaction.

    At least once: if a controller dies between sending and storing that, the next one sends the
    delivery again, with the same id. A channel that fails waits for the next look, so that it
    does not keep
    the others waiting.
    """
    outbox, clock = context.stores.outbox, context.clock
    failing: set[str] = set()
    for _ in range(AT_ONCE):
        claimed = outbox.claim(at=clock.now(), but_not=failing)
        if claimed is None:
            return
        channel, delivery = claimed
        receipt = context.gate.sender.send(channel, delivery, now=clock.now())
        outbox.settle(delivery.id, receipt, at=clock.now())
        if receipt.result is not DeliveryResult.ACCEPTED:
            failing.add(channel.id)
            logger.warning(
                "channel %s (%s): %s", channel.name, channel.id, receipt.response_excerpt
            )


def notify_people(context: Context, announcement: Announcement) -> bool:
    """Queue an announcement for every channel that wants it, in one transaction.

    Returns: Whether the lineage's state is new, or its first one. A key that was announced before,
    by this controller or another, changes nothing and returns False. `deliver` sends.
    """
    return context.stores.outbox.put(announcement, new_id=context.new_id, at=context.clock.now())


def failing_line(context: Context, verdict: Verdict | None, run: str) -> tuple[str, ...]:
    """Return one line that names the first failing tests and jobs of the verdict.

    Those of the run if there is no verdict. Empty if nothing failed.
    """
    if verdict is not None:
        found = failing_items(verdict)
    else:
        known = context.stores.failures.of_run(run) if run else []
        found = [f"{one.nodeid} ({one.job}@{one.cell})" for one in known]
    if not found:
        return ()
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return (f"Failing: {', '.join(found[:_NAMED])}{more}.",)


_NAMED = 10
"""Maximum number of failing tests that a notification names."""


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
            text="\n".join([verdict.summary, *failing_line(context, verdict, "")]),
            url=verdict_link(context, stored.id),
            at=stored.created_at,
            key=f"verdict:{stored.id}",
            evaluated_at=stored.created_at,
            facts={name: text for name, text in facts.items() if text},
        ),
    )
