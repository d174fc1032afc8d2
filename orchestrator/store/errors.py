"""Errors of the database, as messages for a person."""

from __future__ import annotations

RESTORE_ADVICE = "restore the last backup into a new home (docs/how-to/backup.md)"
"""Correction for a damaged database."""


class StoreError(Exception):
    """The database rejected the call, or is unreachable; nothing was stored."""


class StoreUnusableError(StoreError):
    """The database is unavailable now; the same call may succeed later.

    Args:
        message: For the log: the driver's message and its place.
        advice: For every caller: what is wrong and what to do, without names, paths and values.
    """

    def __init__(self, message: str, advice: str = "the database cannot be used now") -> None:
        super().__init__(message)
        self.advice = advice


class DamagedError(StoreError):
    """A stored value cannot be read; retrying does not help."""


class UnknownIdError(StoreError, LookupError):
    """No row has this id."""

    def __init__(self, kind: str, key: str) -> None:
        super().__init__(f"the database has no {kind} {key!r}")


class KeyTakenError(StoreError):
    """The idempotency key belongs to another run; nothing was stored."""


class CorruptEvidenceError(DamagedError):
    """Stored bytes do not match their checksum."""


class DatabaseVersionError(StoreError):
    """The database's schema is not of this version."""

    def __init__(self, message: str, *, current: str | None, head: str) -> None:
        super().__init__(message)
        self.current = current
        self.head = head


class DatabaseOutdatedError(DatabaseVersionError):
    """The schema is older, or missing: `seatrial db upgrade` creates it."""


class DatabaseNewerError(DatabaseVersionError):
    """The schema is newer than this version of the program."""


class PreconditionFailedError(Exception):
    """The resource has another version than the caller expects; nothing was stored."""

    def __init__(self, resource: str) -> None:
        super().__init__(
            f"{resource} was changed since it was read: read it again, and send the ETag of that"
        )


class PrunedError(LookupError):
    """The requested data was pruned; the text names the time and the rule."""
