"""The audit log: who changed which resource, from where, when, and with which outcome."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

BEGINNING = "0" * 64
"""The value of `previous` in the first entry."""


class AuditOutcome(StrEnum):
    """How a call ended."""

    DONE = "done"
    REFUSED = "refused"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """An entry of the audit log; never changed or deleted."""

    number: int
    """Counted from 1, without gaps."""
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
    """Operation id of the REST request, or name of the page's action."""
    resource: str
    """Path of the changed resource, such as ``schedules/nightly``."""
    project: str
    product: str
    """The product; empty if the resource belongs to none."""
    outcome: AuditOutcome
    status: int | None
    """HTTP status; null for a change that was stored with its entry."""
    reason: str
    """The message of the refusal or failure that the caller received; empty if it succeeded."""
    before: Mapping[str, object] | None
    """The resource before the change, without secrets; null if it is new or unchanged."""
    after: Mapping[str, object] | None
    """The resource after the change, without secrets; null if it was deleted."""
    previous: str
    """Digest of the previous entry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainedEntry(AuditEntry):
    """An audit entry with its own digest."""

    digest: str
    """sha256 of the entry's JSON without this field, as it was stored."""


@dataclass(frozen=True, slots=True)
class AuditFilters:
    """Filters of audit entries; empty fields select every entry."""

    since: datetime | None = None
    actor: str = ""
    resource: str = ""
    """A path or its first parts: ``schedules`` includes ``schedules/nightly``."""


@dataclass(frozen=True, slots=True)
class AuditVerification:
    """The result of verifying that no audit entry was changed, removed or moved."""

    entries: int
    """Number of verified entries."""
    head: str
    """Digest of the last verified entry."""
    broken_at: int | None = None
    """Number of the first entry that does not fit the chain; null if all fit.

    If no entry has the requested digest, it is the number after the last entry.
    """
    reason: str = ""
    """What is wrong with that entry."""
