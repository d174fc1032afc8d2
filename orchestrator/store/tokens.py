"""API tokens and browser sessions, both by the sha256 of their secret."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from functools import cache, partial

from sqlalchemy import Select, bindparam, delete, or_, select, update

from orchestrator.domain.caller_identity import BrowserSession, Token
from orchestrator.domain.copied_fields import filled
from orchestrator.store.sessions import UNMARKED, Sessions
from orchestrator.store.sql import ListPage, PageAsked, changed, insert_into, values_of
from orchestrator.store.tables import BrowserSessionRow, PersonRow, TokenRow


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
        with self._sessions.read() as session:
            row = session.scalar(_of_secret(), {"secret_sha256": secret_sha256})
            return token_of_row(row) if row else None

    def used(self, token_id: str, *, at: datetime) -> None:
        """Store the time of the token's last use; an earlier time changes nothing."""
        earlier = or_(TokenRow.last_used_at.is_(None), TokenRow.last_used_at < at)
        statement = update(TokenRow).where(TokenRow.id == token_id, earlier)
        with self._sessions.write() as session:
            changed(session, statement.values(last_used_at=at).execution_options(**UNMARKED))

    def list(self, page: PageAsked[str] | None = None) -> ListPage[Token, str]:
        """Return tokens by id, oldest first, including revoked ones."""
        return self._sessions.page(select(TokenRow), TokenRow.id, page).each(token_of_row)

    def revoke(self, token_id: str, *, at: datetime) -> bool:
        """Revoke a token; False for an unknown or revoked one."""
        statement = update(TokenRow).where(TokenRow.id == token_id, TokenRow.revoked_at.is_(None))
        with self._sessions.write() as session:
            return changed(session, statement.values(revoked_at=at)) == 1


@cache
def _of_secret() -> Select[TokenRow]:
    """Return the query for a token; each request asks it, and making it takes longer."""
    return select(TokenRow).where(TokenRow.secret_sha256 == bindparam("secret_sha256"))


def token_of_row(row: TokenRow) -> Token:
    """Return the token of a row."""
    return filled(Token, row)


class BrowserSessionStore:
    """Sessions of signed-in browsers, by the sha256 of their secret."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def add(self, begun: BrowserSession, secret_sha256: str, *, id_token: str | None) -> None:
        """Store a session, and delete expired sessions.

        Args:
            begun: The session.
            secret_sha256: Digest of its secret.
            id_token: The issuer's token, for the logout there.
        """
        row = values_of(BrowserSessionRow, begun, secret_sha256=secret_sha256, id_token=id_token)
        over = delete(BrowserSessionRow).where(BrowserSessionRow.expires_at <= begun.created_at)
        with self._sessions.write() as session:
            changed(session, over)
            session.execute(insert_into(session, BrowserSessionRow).values(row))
            if begun.token is None:
                named = {"display_name": begun.display_name}
                person = insert_into(session, PersonRow).values(name=begun.name, **named)
                session.execute(person.on_conflict_do_update(index_elements=["name"], set_=named))

    def find(self, secret_sha256: str) -> BrowserSession | None:
        """Return the session with this secret, unless the session's token is revoked."""
        query = _OF_VALID_TOKENS.where(BrowserSessionRow.secret_sha256 == secret_sha256)
        with self._sessions.read() as session:
            row = session.scalar(query)
            return filled(BrowserSession, row) if row else None

    def list(self, page: PageAsked[str] | None = None) -> ListPage[BrowserSession, str]:
        """Return the sessions without a revoked token, oldest first."""
        found = self._sessions.page(_OF_VALID_TOKENS, BrowserSessionRow.id, page)
        return found.each(partial(filled, BrowserSession))

    def display_names(self, names: Collection[str]) -> dict[str, str]:
        """Return the issuer's display names of the people who have signed in, by name."""
        query = select(PersonRow).where(PersonRow.name.in_(set(names)))
        return {row.name: row.display_name for row in self._sessions.scalars(query)}

    def used(self, session_id: str, *, at: datetime) -> None:
        """Store the time of the session's last use; an earlier time changes nothing."""
        mine = BrowserSessionRow.id == session_id, BrowserSessionRow.last_used_at < at
        with self._sessions.write() as session:
            use = update(BrowserSessionRow).where(*mine).values(last_used_at=at)
            changed(session, use.execution_options(**UNMARKED))

    def id_token(self, session_id: str) -> str | None:
        """Return the issuer's token of a session."""
        query = select(BrowserSessionRow.id_token).where(BrowserSessionRow.id == session_id)
        return self._sessions.scalar(query)

    def end(self, session_id: str) -> BrowserSession | None:
        """End a session and return it; None for an unknown or ended one."""
        with self._sessions.write() as session:
            row = session.get(BrowserSessionRow, session_id, with_for_update=True)
            if row is None:
                return None
            ended = filled(BrowserSession, row)
            session.delete(row)
            return ended


_OF_VALID_TOKENS = (
    select(BrowserSessionRow)
    .outerjoin(TokenRow, BrowserSessionRow.token == TokenRow.id)
    .where(TokenRow.revoked_at.is_(None))
)
