"""Browsers that are signed in, by the sha256 of their session's secret."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import delete, select

from orchestrator.store.sessions import Sessions
from orchestrator.store.sql import changed
from orchestrator.store.tables import BrowserSessionRow, TokenRow
from orchestrator.store.tokens import Token, token_of_row


class BrowserSessionStore:
    """Browsers that are signed in, by the sha256 of their session's secret."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def add(self, secret_sha256: str, token_id: str, *, at: datetime, expires_at: datetime) -> None:
        """Begin one, and forget those that are over by then."""
        with self._sessions.write() as session:
            over = delete(BrowserSessionRow).where(BrowserSessionRow.expires_at <= at)
            changed(session, over)
            row = BrowserSessionRow(
                secret_sha256=secret_sha256, token=token_id, expires_at=expires_at
            )
            session.add(row)

    def token_of(self, secret_sha256: str, *, at: datetime) -> Token | None:
        """The token of a session that lasts still, revoked or not; None where there is none."""
        query = (
            select(TokenRow)
            .join(BrowserSessionRow, BrowserSessionRow.token == TokenRow.id)
            .where(BrowserSessionRow.secret_sha256 == secret_sha256)
            .where(BrowserSessionRow.expires_at > at)
        )
        with self._sessions.read() as session:
            row = session.scalar(query)
            return token_of_row(row) if row else None

    def end(self, secret_sha256: str) -> None:
        """End it; again changes nothing."""
        mine = BrowserSessionRow.secret_sha256 == secret_sha256
        with self._sessions.write() as session:
            changed(session, delete(BrowserSessionRow).where(mine))
