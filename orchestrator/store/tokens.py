"""API tokens and browser sessions, both by the sha256 of their secret."""

from __future__ import annotations

import builtins
from datetime import datetime

from sqlalchemy import delete, or_, select, update

from orchestrator.domain.caller_identity import Token
from orchestrator.domain.extend_record import filled
from orchestrator.store.sessions import Sessions
from orchestrator.store.sql import changed, insert_into, values_of
from orchestrator.store.tables import BrowserSessionRow, TokenRow


class TokenStore:
    """Tokens by the sha256 of their secret."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def add(self, token: Token, secret_sha256: str) -> None:
        """Store a token, once per secret."""
        row = values_of(TokenRow, token, secret_sha256=secret_sha256)
        with self._sessions.write() as session:
            insert = insert_into(session, TokenRow).values(row)
            session.execute(insert.on_conflict_do_nothing())

    def find(self, secret_sha256: str) -> Token | None:
        """Return the token of this secret, expired and revoked ones included."""
        query = select(TokenRow).where(TokenRow.secret_sha256 == secret_sha256)
        with self._sessions.read() as session:
            row = session.scalar(query)
            return token_of_row(row) if row else None

    def used(self, token_id: str, *, at: datetime) -> None:
        """Store the time of its last use; never moves backwards."""
        earlier = or_(TokenRow.last_used_at.is_(None), TokenRow.last_used_at < at)
        statement = update(TokenRow).where(TokenRow.id == token_id, earlier)
        with self._sessions.write() as session:
            changed(session, statement.values(last_used_at=at))

    def list(self) -> builtins.list[Token]:
        """Return every token, revoked ones included."""
        query = select(TokenRow).order_by(TokenRow.created_at, TokenRow.id)
        with self._sessions.read() as session:
            return [token_of_row(row) for row in session.scalars(query)]

    def revoke(self, token_id: str, *, at: datetime) -> bool:
        """Revoke a token; False for an unknown or revoked one."""
        statement = update(TokenRow).where(TokenRow.id == token_id, TokenRow.revoked_at.is_(None))
        with self._sessions.write() as session:
            return changed(session, statement.values(revoked_at=at)) == 1


def token_of_row(row: TokenRow) -> Token:
    """Return the token of a row."""
    return filled(Token, row)


class BrowserSessionStore:
    """Sessions of signed-in browsers, by the sha256 of their secret."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def add(self, secret_sha256: str, token_id: str, *, at: datetime, expires_at: datetime) -> None:
        """Store a session, and delete expired ones."""
        with self._sessions.write() as session:
            over = delete(BrowserSessionRow).where(BrowserSessionRow.expires_at <= at)
            changed(session, over)
            row = BrowserSessionRow(
                secret_sha256=secret_sha256, token=token_id, expires_at=expires_at
            )
            session.add(row)

    def token_of(self, secret_sha256: str, *, at: datetime) -> Token | None:
        """Return the token of a valid session, revoked or not; None without one."""
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
        """End a session; idempotent."""
        mine = BrowserSessionRow.secret_sha256 == secret_sha256
        with self._sessions.write() as session:
            changed(session, delete(BrowserSessionRow).where(mine))
