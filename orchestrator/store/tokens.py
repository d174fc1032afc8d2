"""API tokens, and the sessions of browsers; both by the sha256 of their secret."""

from __future__ import annotations

import builtins
from datetime import datetime

from sqlalchemy import delete, or_, select, update

from orchestrator.domain.extended import filled
from orchestrator.domain.token import Token
from orchestrator.store.sessions import Sessions
from orchestrator.store.sql import changed, insert_into, values_of
from orchestrator.store.tables import BrowserSessionRow, TokenRow


class TokenStore:
    """Tokens by the sha256 of their secret."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def add(self, token: Token, secret_sha256: str) -> None:
        """Store it, once: of those who come at once with one secret, the first."""
        row = values_of(TokenRow, token, secret_sha256=secret_sha256)
        with self._sessions.write() as session:
            insert = insert_into(session, TokenRow).values(row)
            session.execute(insert.on_conflict_do_nothing())

    def find(self, secret_sha256: str) -> Token | None:
        """The token of this secret, expired and revoked ones too."""
        query = select(TokenRow).where(TokenRow.secret_sha256 == secret_sha256)
        with self._sessions.read() as session:
            row = session.scalar(query)
            return token_of_row(row) if row else None

    def used(self, token_id: str, *, at: datetime) -> None:
        """Remember when it was last used; never backwards."""
        earlier = or_(TokenRow.last_used_at.is_(None), TokenRow.last_used_at < at)
        statement = update(TokenRow).where(TokenRow.id == token_id, earlier)
        with self._sessions.write() as session:
            changed(session, statement.values(last_used_at=at))

    def list(self) -> builtins.list[Token]:
        """Every token, revoked ones too."""
        query = select(TokenRow).order_by(TokenRow.created_at, TokenRow.id)
        with self._sessions.read() as session:
            return [token_of_row(row) for row in session.scalars(query)]

    def revoke(self, token_id: str, *, at: datetime) -> bool:
        """End it; False if there is none, or it is revoked already."""
        statement = update(TokenRow).where(TokenRow.id == token_id, TokenRow.revoked_at.is_(None))
        with self._sessions.write() as session:
            return changed(session, statement.values(revoked_at=at)) == 1


def token_of_row(row: TokenRow) -> Token:
    """What a row says."""
    return filled(Token, row)


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
