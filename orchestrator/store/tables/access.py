"""Tables of payloads, tokens, controllers, blobs and the audit log."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from orchestrator.domain.caller_identity import Scope
from orchestrator.domain.manifest import Manifest
from orchestrator.store.column_types import DocumentColumn, Name, OneOf
from orchestrator.store.tables.shared_columns import Id, KeyNumber, Long, TableBase, UniqueId


class PayloadRow(TableBase):
    """An uploaded payload."""

    __tablename__ = "payload"

    digest: Mapped[Id]
    size_bytes: Mapped[Long]
    manifest: Mapped[Manifest] = mapped_column(DocumentColumn(Manifest))
    uploaded_at: Mapped[datetime]


class TokenRow(TableBase):
    """An API token."""

    __tablename__ = "token"

    id: Mapped[Id]
    secret_sha256: Mapped[UniqueId]
    name: Mapped[str]
    scope: Mapped[Scope] = mapped_column(OneOf(Scope))
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime | None]
    last_used_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]
    prefix: Mapped[str]


class BrowserSessionRow(TableBase):
    """A session of a signed-in browser."""

    __tablename__ = "browser_session"

    id: Mapped[Id]
    secret_sha256: Mapped[UniqueId]
    name: Mapped[str]
    display_name: Mapped[str]
    scope: Mapped[Scope] = mapped_column(OneOf(Scope))
    token: Mapped[str | None] = mapped_column(Name, ForeignKey("token.id"))
    """The token that began the session; the session ends when the token is revoked."""
    roles_digest: Mapped[str]
    """Digest of the issuer and its groups' roles; a change ends the issuer's sessions."""
    created_at: Mapped[datetime]
    last_used_at: Mapped[datetime]
    expires_at: Mapped[datetime]
    address: Mapped[str]
    agent: Mapped[str]
    id_token: Mapped[str | None]
    """The issuer's ID token, which its logout requires."""


class PersonRow(TableBase):
    """Somebody who has signed in at the issuer."""

    __tablename__ = "person"

    name: Mapped[Id]
    display_name: Mapped[str]
    """Display name at the latest sign-in."""


class AuditRow(TableBase):
    """An entry of the audit log; the database refuses to change or delete one."""

    __tablename__ = "audit_entry"
    __table_args__ = (
        Index("ix_audit_entry_actor", "actor", "number"),
        Index("ix_audit_entry_resource", "resource", "number"),
    )

    number: Mapped[KeyNumber]
    at: Mapped[datetime] = mapped_column(index=True)
    actor: Mapped[str] = mapped_column(Name)
    resource: Mapped[str] = mapped_column(Name)
    document: Mapped[str]
    """The entry as JSON, with the digest of the entry before."""
    digest: Mapped[UniqueId]
    """sha256 of the document."""


class ChangeMarkRow(TableBase):
    """A mark; every transaction that changes an answer changes one of these rows."""

    __tablename__ = "change_mark"

    id: Mapped[KeyNumber]
    mark: Mapped[str]
    """Random text, so that a restored database never has a mark of the replaced one."""


class ControllerRow(TableBase):
    """A controller, alive or dead."""

    __tablename__ = "controller"

    id: Mapped[Id]
    last_seen_s: Mapped[float]
    """Seconds since the epoch by the database's clock."""


class BlobRow(TableBase):
    """A stored blob: its digest, its size and its last use."""

    __tablename__ = "blob"

    digest: Mapped[Id]
    size_bytes: Mapped[Long]
    touched_s: Mapped[float]
    """Time of the last store or claim, in seconds by the database's clock."""


class PrunedBlobRow(TableBase):
    """A payload or wheel of a run that was pruned, and why, until it is uploaded again."""

    __tablename__ = "pruned_blob"

    digest: Mapped[Id]
    at: Mapped[datetime]
    rule: Mapped[str]


class BlobChunkRow(TableBase):
    """A compressed part of a blob."""

    __tablename__ = "blob_chunk"

    digest: Mapped[str] = mapped_column(Name, ForeignKey("blob.digest"), primary_key=True)
    number: Mapped[KeyNumber]
    body: Mapped[bytes]
