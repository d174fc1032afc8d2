"""Notification channels: add, test, rotate the secret, remove; and deliver notifications.

This module writes every announcement: of a verdict, of a firing's end, of a missed deadline and of
a test message.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
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
from orchestrator.domain.copied_fields import filled
from orchestrator.domain.document_problems import InvalidDocumentError, Problem
from orchestrator.domain.field_limits import ONE_LINE, STRICT, ValueLimits
from orchestrator.domain.gate.verdict import Decision, StoredVerdict, Verdict, failing_items
from orchestrator.domain.outcome import Outcome
from orchestrator.domain.schedule import CANCELLED, ERRORED, MISSED, SKIPPED, Firing, Schedule
from orchestrator.domain.units import utc

MOST_CHANNELS = 100
_Pattern = Annotated[str, ValueLimits(min_length=1, max_length=200, pattern=ONE_LINE)]
_Url = Annotated[str, ValueLimits(min_length=1, max_length=2000, pattern=ONE_LINE)]
_TEST_TEXT = "This is a test message: no gate has changed its state."


@dataclass(frozen=True, slots=True, kw_only=True)
class NewChannel:
    """A channel to create."""

    __pydantic_config__ = STRICT

    name: Annotated[str, ValueLimits(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]
    kind: ChannelKind = ChannelKind.WEBHOOK
    target: _Url
    """The URL that messages are sent to; for ``github``, ``owner/repository``."""
    lineages: Annotated[tuple[_Pattern, ...], ValueLimits(max_length=50)] = ()
    """Patterns of lineage names, with ``*`` and ``?``; empty means every lineage."""
    allow_private: bool = False
    """Whether private addresses and plain HTTP are allowed, for receivers in your own network."""
    api_base: _Url = GITHUB_API
    """Base URL of GitHub's API; of a GitHub Enterprise ``https://github.example.org/api/v3``."""
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

    The present lineages are those with a verdict, those of the schedules, and each gate's own.
    """
    stores = context.stores
    present = {one.newest.lineage for one in stores.gates.lineage_heads()}
    present |= {one.lineage for one in stores.schedules.list()}
    present |= {one.gate for one in stores.gates.policies()}
    missing = [one for one in patterns if not any(fnmatchcase(name, one) for name in present)]
    return missing, sorted(present)


def find_channel(context: Context, named: str) -> Channel | None:
    """Return a channel by id or name; None if there is none."""
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

    A delivery is sent at least once: if a controller dies after sending and before storing the
    result, the next controller sends the delivery again, with the same id. After a failure, the
    channel's other deliveries wait for the next call, so that they do not delay other channels.
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

    `deliver` sends the queued deliveries. A key that any controller announced before changes
    nothing.

    Returns: Whether the lineage's state is its first one, or differs from the previous one.
    """
    return context.stores.outbox.put(announcement, new_id=context.new_id, at=context.clock.now())


def failing_line(context: Context, verdict: Verdict | None, run: str) -> tuple[str, ...]:
    """Return one line that names the first failing tests and jobs of the verdict.

    Without a verdict, the line names failing tests of the run. Empty if nothing failed.
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
    state = LineageState.from_decision(verdict.decision)
    subject = verdict.subject
    about = f"{subject.get('name', '')} {subject.get('version', '')}".strip()
    facts = _facts(
        subject,
        gate=stored.gate,
        product=verdict.product,
        verdict=stored.id,
        runs=" ".join(stored.runs),
    )
    return notify_people(
        context,
        Announcement(
            lineage=stored.lineage,
            state=state,
            title=_title(_gate(stored.gate), state, about),
            text="\n".join([verdict.summary, *failing_line(context, verdict, "")]),
            url=verdict_link(context, stored.id),
            at=stored.created_at,
            key=f"verdict:{stored.id}",
            evaluated_at=stored.created_at,
            facts=facts,
        ),
    )


_BROKEN = (ERRORED, MISSED)
_RUN_STATES = {
    Outcome.PASSED: LineageState.PASS,
    Outcome.FAILED: LineageState.FAIL,
    Outcome.TIMED_OUT: LineageState.FAIL,
}


def end_of_firing(context: Context, schedule: Schedule, firing: Firing) -> Announcement | None:
    """Return the announcement of an ended firing; None if a later firing supersedes it."""
    if firing.superseded or (not firing.run and firing.outcome in (SKIPPED, CANCELLED)):
        return None
    verdict = context.stores.gates.verdict(firing.verdict) if firing.verdict else None
    state = _state(firing)
    about = firing.resolved.subject if firing.resolved else ""
    remarks = firing.resolved.remarks if firing.resolved else ()
    why = verdict.verdict.summary if verdict else firing.reason or _of_run(firing)
    failing = failing_line(context, verdict.verdict if verdict else None, firing.run)
    return Announcement(
        lineage=schedule.lineage,
        state=state,
        title=_title(_heading(schedule), state, about),
        text="\n".join([why, *failing, *remarks, *_late(firing), _origin(firing)]),
        url=run_link(context, firing.run),
        at=context.clock.now(),
        key=f"{firing.key}:end",
        evaluated_at=verdict.created_at if verdict else None,
        facts=_firing_facts(schedule, firing, verdict),
    )


def no_verdict(context: Context, schedule: Schedule, firing: Firing) -> Announcement:
    """Return the announcement of a missed deadline."""
    deadline = firing.deadline_at or firing.due_at
    where = f"it is {firing.state}" + (f", run {firing.run}" if firing.run else "")
    if firing.verdict:
        where = f"{firing.verdict} is {firing.outcome}, and run {firing.confirmation_run} asks why"
    doing = f"it waits after {firing.tries} faults: {firing.reason}" if firing.tries else where
    return Announcement(
        lineage=schedule.lineage,
        state=LineageState.LATE,
        title=f"{_heading(schedule)}: no verdict by {utc(deadline)}",
        text=f"The firing of {utc(firing.due_at)} has come to no final verdict: {doing}.",
        url=run_link(context, firing.run),
        at=context.clock.now(),
        key=f"{firing.key}:deadline",
        facts=_firing_facts(schedule, firing, None),
    )


def _state(firing: Firing) -> LineageState:
    if firing.outcome in _BROKEN:
        return LineageState.ERRORED
    if firing.verdict:
        return LineageState.from_decision(Decision(firing.outcome))
    return _RUN_STATES.get(Outcome(firing.outcome), LineageState.INCONCLUSIVE)


def _of_run(firing: Firing) -> str:
    return f"Run {firing.run} is {firing.outcome.replace('_', ' ')}."


def _late(firing: Firing) -> tuple[str, ...]:
    if not firing.overdue or firing.deadline_at is None:
        return ()
    return (f"It comes after the deadline, {utc(firing.deadline_at)}.",)


def _origin(firing: Firing) -> str:
    cause = f"triggered by {firing.by}" if firing.by else f"due at {utc(firing.due_at)}"
    return f"Schedule {firing.schedule}, {cause}."


def _heading(schedule: Schedule) -> str:
    return f"{_gate(schedule.gate)}, {schedule.name}" if schedule.gate else schedule.name


def _firing_facts(
    schedule: Schedule, firing: Firing, verdict: StoredVerdict | None
) -> dict[str, str]:
    resolved = firing.resolved.known if firing.resolved else {}
    subject = verdict.verdict.subject if verdict else resolved
    return _facts(
        subject,
        gate=schedule.gate,
        product=verdict.verdict.product if verdict else "",
        verdict=firing.verdict,
        runs=firing.run,
        schedule=schedule.name,
        firing=f"{firing.due_at:%Y-%m-%dT%H:%M:%SZ}",
        owner=schedule.owner,
    )


def _title(heading: str, state: LineageState, about: str) -> str:
    return f"{heading}: {state.words}" + (f" for {about}" if about else "")


def _gate(name: str) -> str:
    return f"{name} gate"


def _facts(subject: Mapping[str, str], *, gate: str, product: str, **more: str) -> dict[str, str]:
    """Return the known facts by name, without empty ones, for receivers that are programs."""
    facts = {
        "gate": gate,
        "product": product,
        "subject": subject.get("name", ""),
        "version": subject.get("version", ""),
        "git_sha": subject.get("git_sha", ""),
        **more,
    }
    return {name: text for name, text in facts.items() if text}
