"""Whether an announcement is news, and whom it is written for: one transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime

from sqlalchemy import insert, select
from sqlalchemy.orm import Session

from orchestrator.domain.announcement import Announcement, LineageState, News
from orchestrator.domain.channel import (
    Channel,
    ChannelKind,
    DeliveryState,
    commit_of,
    is_of,
    status_word,
)
from orchestrator.store.column_types import short
from orchestrator.store.sql import changed, insert_into
from orchestrator.store.tables import AnnouncementRow, ChannelRow, DeliveryRow, StandingRow


def announced(
    session: Session, told: Announcement, *, new_id: Callable[[], str], at: datetime
) -> bool:
    """Write its deliveries; True if its line stood elsewhere. A key that is known does nothing.

    Rows are locked in one order: the key, the line, channels by id, what commits stand at.
    """
    if not _is_new(session, told, at):
        return False
    before, is_news = _stand(session, f"line:{told.lineage}", told.state.value, told, at)
    if is_news:
        known = session.get_one(AnnouncementRow, short(told.key))
        known.is_news = True
    previous = LineageState(before) if before else None
    news = News(announcement=told, previous=previous)
    for channel in _channels(session):
        subject = _subject(session, channel, told, is_news=is_news, at=at)
        if subject is not None:
            _write(session, channel, subject, news, delivery_id=new_id(), at=at)
    return is_news


def _is_new(session: Session, told: Announcement, at: datetime) -> bool:
    values = {
        "key": short(told.key),
        "lineage": told.lineage,
        "state": told.state.value,
        "is_news": False,
        "at": at,
    }
    new = insert_into(session, AnnouncementRow).values(values).on_conflict_do_nothing()
    return changed(session, new) == 1


def _stand(
    session: Session, name: str, state: str, told: Announcement, at: datetime
) -> tuple[str, bool]:
    """Let it stand so from now, unless a newer verdict was told.

    Returns:
        How it stood before, empty for never, and whether it stands elsewhere now.
    """
    name = short(name)
    never = {"name": name, "state": "", "since": at}
    session.execute(insert_into(session, StandingRow).values(never).on_conflict_do_nothing())
    row = session.get_one(StandingRow, name, with_for_update=True)
    before = row.state
    if told.judged_at is not None:
        if row.judged_at is not None and told.judged_at < row.judged_at:
            return before, False
        row.judged_at = told.judged_at
    if before != state:
        row.state, row.since = state, at
    session.flush()
    return before, before != state


def _channels(session: Session) -> Iterator[Channel]:
    """Those that are not disabled; they stay until the end of the transaction."""
    query = select(ChannelRow).where(ChannelRow.disabled_at.is_(None)).order_by(ChannelRow.id)
    for row in session.scalars(query.with_for_update(read=True, key_share=True)):
        yield row.channel


def _subject(
    session: Session, channel: Channel, told: Announcement, *, is_news: bool, at: datetime
) -> str | None:
    """What the delivery is about, where there is one for this channel."""
    if not channel.wants(told.lineage):
        return None
    if channel.kind is not ChannelKind.GITHUB:
        return told.lineage if is_news else None
    if not is_of(channel, told):
        return None
    # A status belongs to its commit: a new commit has none, however the line stands.
    subject = f"{commit_of(told)}:{told.facts.get('gate') or told.lineage}"
    state = f"{told.state.value}/{status_word(told)}"
    _, is_elsewhere = _stand(session, f"commit:{channel.id}:{subject}", state, told, at)
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
