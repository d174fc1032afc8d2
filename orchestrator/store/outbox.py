"""Announcements, channels and deliveries."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from datetime import datetime

from sqlalchemy import ColumnElement, Select, delete, func, insert, or_, select, update
from sqlalchemy.orm import Session, aliased

from orchestrator.domain.channel import (
    Announcement,
    Channel,
    ChannelHealth,
    ChannelKind,
    ChannelSecret,
    Delivery,
    DeliveryAttempt,
    DeliveryReceipt,
    DeliveryResult,
    DeliveryState,
    LineageState,
    News,
    belongs_to_repository,
    commit_of,
    next_look,
    status_word,
)
from orchestrator.domain.copied_fields import filled
from orchestrator.store.column_types import short
from orchestrator.store.sessions import Sessions
from orchestrator.store.sql import (
    ListPage,
    PageAsked,
    changed,
    database_time_s,
    insert_into,
    page_of,
)
from orchestrator.store.tables import (
    AnnouncementRow,
    ChannelRow,
    DeliveryAttemptRow,
    DeliveryRow,
    LineageStateRow,
)

LEASE_S = 60.0
"""Seconds of a claim, longer than any attempt: after it the sender is considered dead."""


_DONE = {
    DeliveryResult.ACCEPTED: DeliveryState.DELIVERED,
    DeliveryResult.FAILED: DeliveryState.FAILED,
    DeliveryResult.REFUSED: DeliveryState.FAILED,
    DeliveryResult.GONE: DeliveryState.DISCARDED,
}


class OutboxStore:
    """Channels and their deliveries.

    Each method is one transaction.
    """

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def put(self, announcement: Announcement, *, new_id: Callable[[], str], at: datetime) -> bool:
        """Queue an announcement for every matching channel, if the state of the lineage is new.

        Returns whether the lineage's state changed. A repeated key changes nothing. A commit's
        status is sent if the commit had another one, even if the lineage's state is the same.
        """
        with self._sessions.write() as session:
            return announced(session, announcement, new_id=new_id, at=at)

    def claim(
        self, *, at: datetime, but_not: Collection[str] = (), lease_s: float = LEASE_S
    ) -> tuple[Channel, Delivery] | None:
        """Claim the delivery that is due longest, exclusively until the claim expires.

        Deliveries of the channels `but_not` are not claimed. None if no delivery is due.

        Not idempotent. The claim is timed by the database's clock, so that controllers with
        different clocks do not send one delivery twice. Deliveries of one subject reach a channel
        in their order: a later one is not due before the earlier one is finished.
        """
        query = _due(at, but_not)
        with self._sessions.write() as session:
            now_s = database_time_s(session)
            free = or_(DeliveryRow.claimed_until_s.is_(None), DeliveryRow.claimed_until_s <= now_s)
            query = query.where(free).limit(1)
            taken = session.execute(
                query.with_for_update(skip_locked=True, of=DeliveryRow, key_share=True)
            ).one_or_none()
            if taken is None:
                return None
            row, channel = taken
            mine = update(DeliveryRow).where(DeliveryRow.pk == row.pk)
            changed(session, mine.values(claimed_until_s=now_s + lease_s))
            return channel, _delivery(row)

    def settle(self, delivery_id: str, receipt: DeliveryReceipt, *, at: datetime) -> None:
        """Store an attempt to send, and update its delivery and channel."""
        with self._sessions.write() as session:
            its = DeliveryRow.id == delivery_id
            channel_id = session.scalar(select(DeliveryRow.channel).where(its))
            if channel_id is None:
                return
            channel = _locked(session, channel_id)
            row = session.scalar(select(DeliveryRow).where(its).with_for_update())
            if channel is not None and row is not None:
                _settle(session, row, receipt, at)
                _judge(session, channel, receipt, at, was_test=row.is_test)

    def add(self, channel: Channel) -> bool:
        """Store a channel; False if the name is taken."""
        values = {
            "id": channel.id,
            "name": channel.name,
            "channel": channel,
            "created_at": channel.created_at,
            "disabled_reason": "",
        }
        with self._sessions.write() as session:
            new = insert_into(session, ChannelRow).values(values)
            return changed(session, new.on_conflict_do_nothing()) == 1

    def channel(self, channel_id: str) -> Channel | None:
        """Return the channel, or None."""
        with self._sessions.read() as session:
            row = session.get(ChannelRow, channel_id)
            return row.channel if row else None

    def channels(self) -> list[tuple[Channel, ChannelHealth]]:
        """Return every channel, oldest first."""
        waiting = (
            select(DeliveryRow.channel, func.count().label("number"))
            .where(DeliveryRow.state == DeliveryState.WAITING)
            .group_by(DeliveryRow.channel)
            .subquery()
        )
        query = (
            select(ChannelRow, func.coalesce(waiting.c.number, 0))
            .join(waiting, waiting.c.channel == ChannelRow.id, isouter=True)
            .order_by(ChannelRow.created_at, ChannelRow.id)
        )
        return [(row.channel, _health(row, number)) for row, number in self._sessions.rows(query)]

    def remove(self, channel_id: str) -> bool:
        """Delete a channel with its deliveries and log; False for an unknown one."""
        with self._sessions.write() as session:
            its = select(DeliveryRow.pk).where(DeliveryRow.channel == channel_id)
            # The channel first: an announcement locks the channel before its deliveries, too.
            locked = select(ChannelRow.id).where(ChannelRow.id == channel_id).with_for_update()
            if session.scalar(locked) is None:
                return False
            changed(session, delete(DeliveryAttemptRow).where(DeliveryAttemptRow.delivery.in_(its)))
            changed(session, delete(DeliveryRow).where(DeliveryRow.channel == channel_id))
            return changed(session, delete(ChannelRow).where(ChannelRow.id == channel_id)) == 1

    def renew(self, channel_id: str, secret: ChannelSecret, *, until: datetime) -> Channel | None:
        """Sign with a new secret from now on.

        The previous one stays valid until then, older ones end.

        Not idempotent.
        """
        with self._sessions.write() as session:
            row = session.get(ChannelRow, channel_id, with_for_update=True)
            if row is None:
                return None
            before = tuple(ChannelSecret(one.value, until) for one in row.channel.secrets[:1])
            row.channel = replace(row.channel, secrets=(secret, *before))
            return row.channel

    def log(
        self, channel_id: str, *, limit: int, before: int | None = None, only_tests: bool = False
    ) -> ListPage[tuple[Delivery, list[DeliveryAttempt]], int]:
        """Return the channel's newest deliveries, or tests of it, with their attempts.

        `before` is a cursor.
        """
        query = select(DeliveryRow).where(DeliveryRow.channel == channel_id)
        if only_tests:
            query = query.where(DeliveryRow.is_test)
        asked = PageAsked(limit, before)
        with self._sessions.read() as session:
            found = page_of(session, query, DeliveryRow.pk, asked, newest_first=True)
            tried: dict[int, list[DeliveryAttemptRow]] = {row.pk: [] for (row,) in found}
            attempts = select(DeliveryAttemptRow).where(DeliveryAttemptRow.delivery.in_(tried))
            for one in session.scalars(attempts.order_by(DeliveryAttemptRow.number)):
                tried[one.delivery].append(one)
            return found.each(lambda row: (_delivery(row), list(_logged(row.id, tried[row.pk]))))

    def record_test(self, delivery: Delivery, receipt: DeliveryReceipt, *, at: datetime) -> None:
        """Store a test message's attempt; a successful one enables the channel."""
        with self._sessions.write() as session:
            row = DeliveryRow(
                id=delivery.id,
                channel=delivery.channel,
                subject="",
                news=delivery.news,
                state=DeliveryState.WAITING,
                created_at=delivery.created_at,
                due_at=delivery.due_at,
                attempts=0,
                is_test=True,
            )
            channel = _locked(session, delivery.channel)
            if channel is not None:
                session.add(row)
                session.flush()
                _settle(session, row, receipt, at)
                _judge(session, channel, receipt, at, was_test=True)


def _due(at: datetime, but_not: Collection[str]) -> Select[DeliveryRow, Channel]:
    """Return due deliveries, the longest due first."""
    earlier = aliased(DeliveryRow)
    is_next: ColumnElement[bool] = ~(
        select(earlier.pk)
        .where(
            earlier.channel == DeliveryRow.channel,
            earlier.subject == DeliveryRow.subject,
            earlier.state == DeliveryState.WAITING,
            earlier.pk < DeliveryRow.pk,
        )
        .exists()
    )
    return (
        select(DeliveryRow, ChannelRow.channel)
        .join(ChannelRow, ChannelRow.id == DeliveryRow.channel)
        .where(DeliveryRow.state == DeliveryState.WAITING, DeliveryRow.due_at <= at)
        .where(ChannelRow.disabled_at.is_(None), ChannelRow.id.not_in(list(but_not)), is_next)
        .order_by(DeliveryRow.due_at, DeliveryRow.pk)
    )


def _settle(session: Session, row: DeliveryRow, receipt: DeliveryReceipt, at: datetime) -> None:
    """Store the attempt's result; a finished delivery is unchanged."""
    look = next_look(_delivery(row), receipt, at)
    row.attempts += 1
    row.claimed_until_s = None
    session.add(
        DeliveryAttemptRow(
            delivery=row.pk,
            number=row.attempts,
            at=at,
            result=receipt.result,
            status=receipt.status,
            response_excerpt=receipt.response_excerpt,
            seconds=receipt.seconds,
        )
    )
    if row.state is DeliveryState.WAITING:
        if look is not None and not row.is_test:
            row.due_at = look
        else:
            row.state, row.done_at = _DONE[receipt.result], at
    session.flush()


def _locked(session: Session, channel_id: str) -> ChannelRow | None:
    """Lock the channel before any delivery of it; announcements may be queued at the same time."""
    query = select(ChannelRow).where(ChannelRow.id == channel_id)
    return session.scalar(query.with_for_update(key_share=True))


def _judge(
    session: Session, channel: ChannelRow, receipt: DeliveryReceipt, at: datetime, *, was_test: bool
) -> None:
    """Update the channel's health by the attempt."""
    if receipt.result is DeliveryResult.ACCEPTED:
        channel.failing_since, channel.last_success_at = None, at
        if was_test:
            channel.disabled_at, channel.disabled_reason = None, ""
        return
    channel.failing_since = channel.failing_since or at
    if receipt.result is not DeliveryResult.GONE:
        return
    channel.disabled_at, channel.disabled_reason = (
        channel.disabled_at or at,
        receipt.response_excerpt,
    )
    its = (DeliveryRow.channel == channel.id, DeliveryRow.state == DeliveryState.WAITING)
    dropped = update(DeliveryRow).where(*its)
    changed(session, dropped.values(state=DeliveryState.DISCARDED, done_at=at))


def _delivery(row: DeliveryRow) -> Delivery:
    return filled(Delivery, row)


def _health(row: ChannelRow, waiting: int) -> ChannelHealth:
    return ChannelHealth(
        failing_since=row.failing_since,
        last_success_at=row.last_success_at,
        disabled_at=row.disabled_at,
        disabled_reason=row.disabled_reason,
        waiting=waiting,
    )


def _logged(delivery_id: str, rows: list[DeliveryAttemptRow]) -> Iterator[DeliveryAttempt]:
    for row in rows:
        receipt = DeliveryReceipt(
            result=row.result,
            response_excerpt=row.response_excerpt,
            status=row.status,
            seconds=row.seconds,
        )
        yield DeliveryAttempt(delivery_id, row.number, row.at, receipt)


def announced(
    session: Session, announcement: Announcement, *, new_id: Callable[[], str], at: datetime
) -> bool:
    """Queue deliveries; True if the lineage's state changed. A known key does nothing.

    Rows are locked in one order: the key, the lineage, channels by id, commit statuses.
    """
    if not _insert_announcement(session, announcement, at):
        return False
    before, is_news = _stand(
        session, f"line:{announcement.lineage}", announcement.state.value, announcement, at
    )
    if is_news:
        known = session.get_one(AnnouncementRow, short(announcement.key))
        known.is_news = True
    previous = LineageState(before) if before else None
    news = News(announcement=announcement, previous=previous)
    for channel in _channels(session):
        subject = _subject(session, channel, announcement, is_news=is_news, at=at)
        if subject is not None:
            _write(session, channel, subject, news, delivery_id=new_id(), at=at)
    return is_news


def _insert_announcement(session: Session, announcement: Announcement, at: datetime) -> bool:
    values = {
        "key": short(announcement.key),
        "lineage": announcement.lineage,
        "state": announcement.state.value,
        "is_news": False,
        "at": at,
    }
    new = insert_into(session, AnnouncementRow).values(values).on_conflict_do_nothing()
    return changed(session, new) == 1


def _stand(
    session: Session, name: str, state: str, announcement: Announcement, at: datetime
) -> tuple[str, bool]:
    """Set the lineage's state, unless a newer verdict was announced.

    Returns:
        The earlier state, empty if there is none, and whether the state changed.
    """
    name = short(name)
    never = {"name": name, "state": "", "since": at}
    session.execute(insert_into(session, LineageStateRow).values(never).on_conflict_do_nothing())
    row = session.get_one(LineageStateRow, name, with_for_update=True)
    before = row.state
    if announcement.evaluated_at is not None:
        if row.evaluated_at is not None and announcement.evaluated_at < row.evaluated_at:
            return before, False
        row.evaluated_at = announcement.evaluated_at
    if before != state:
        row.state, row.since = state, at
    session.flush()
    return before, before != state


def _channels(session: Session) -> Iterator[Channel]:
    """Return enabled channels, locked until the transaction ends."""
    query = select(ChannelRow).where(ChannelRow.disabled_at.is_(None)).order_by(ChannelRow.id)
    for row in session.scalars(query.with_for_update(read=True, key_share=True)):
        yield row.channel


def _subject(
    session: Session, channel: Channel, announcement: Announcement, *, is_news: bool, at: datetime
) -> str | None:
    """Return the subject of the delivery; None if this channel gets none."""
    if not channel.wants(announcement.lineage):
        return None
    if channel.kind is not ChannelKind.GITHUB:
        return announcement.lineage if is_news else None
    if not belongs_to_repository(channel, announcement):
        return None
    # A status belongs to its commit: a new commit has none, whatever the lineage's state is.
    subject = f"{commit_of(announcement)}:{announcement.facts.get('gate') or announcement.lineage}"
    state = f"{announcement.state.value}/{status_word(announcement)}"
    _, is_elsewhere = _stand(session, f"commit:{channel.id}:{subject}", state, announcement, at)
    return subject if is_elsewhere else None


def _write(
    session: Session, channel: Channel, subject: str, news: News, *, delivery_id: str, at: datetime
) -> None:
    values = {
        "id": delivery_id,
        "channel": channel.id,
        "subject": short(subject),
        "news": news,
        "state": DeliveryState.WAITING,
        "created_at": at,
        "attempts": 0,
        "due_at": at,
        "is_test": False,
    }
    session.execute(insert(DeliveryRow).values(values))
