"""The audit log: who changed what, from where, when, and with which outcome."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

BEGINNING = "0" * 64
"""The `previous` of the first entry, which has no entry before it."""


class AuditOutcome(StrEnum):
    """How a call ended."""

    DONE = "done"
    REFUSED = "refused"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """An entry of the audit log; never changed or deleted."""

    number: int
    """From 1, without a gap."""
    at: datetime
    """When the call arrived, by the controller's clock."""
    actor: str
    """Owner of the caller's token, `ISSUER#SUBJECT` of a person, or the operating-system user.

    Empty for an unknown caller.
    """
    token: str
    """Id of the token, or of a person's session, or `socket`; empty for an unknown caller."""
    address: str
    """The client's address; empty for a process on this computer."""
    agent: str
    """The User-Agent header; the command line sends its version."""
    operation: str
    """Operation id of REST, or name of the page's action."""
    resource: str
    """What was changed, as a path: ``schedules/nightly``."""
    project: str
    product: str
    """Empty where the resource has none."""
    outcome: AuditOutcome
    status: int | None
    """HTTP status; null for a change that was stored with its entry."""
    reason: str
    """Why it was refused or failed, as its caller was told; empty if it was done."""
    before: Mapping[str, object] | None
    """The resource before, without secrets; null for a new one, or where no row was changed."""
    after: Mapping[str, object] | None
    """The resource afterwards, without secrets; null for a deleted one."""
    previous: str
    """Digest of the entry before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainedEntry(AuditEntry):
    """An entry with its own digest."""

    digest: str
    """sha256 of the entry's JSON without this field, as it was stored."""


@dataclass(frozen=True, slots=True)
class AuditFilters:
    """Which entries are asked for."""

    since: datetime | None = None
    actor: str = ""
    resource: str = ""
    """A path, or its beginning: ``schedules`` has ``schedules/nightly``."""


@dataclass(frozen=True, slots=True)
class AuditVerification:
    """Whether every entry is what was written, in its place."""

    entries: int
    """Number of entries that were read."""
    head: str
    """Digest of the last of them."""
    broken_at: int | None = None
    """Number of the first entry that does not fit the chain; null if all do.

    The number after the last entry if none has the digest that was asked for.
    """
    reason: str = ""
    """What is wrong there."""
