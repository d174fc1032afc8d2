"""What the database can refuse, in words for a person."""

from __future__ import annotations


class StoreError(Exception):
    """The database refused or cannot be reached; nothing of the call was stored."""


class StoreUnusableError(StoreError):
    """The database cannot be used now: the same call may succeed later.

    Args:
        message: For the log: what the driver said, and where.
        advice: For anybody: what is wrong and what to do, without names, paths and values.
    """

    def __init__(self, message: str, advice: str = "the database cannot be used now") -> None:
        super().__init__(message)
        self.advice = advice


class DamagedError(StoreError):
    """What was stored cannot be read back; asking again does not help."""


class UnknownIdError(StoreError, LookupError):
    """No row has this id."""

    def __init__(self, kind: str, key: str) -> None:
        super().__init__(f"the database has no {kind} {key!r}")


class KeyTakenError(StoreError):
    """The idempotency key belongs to another run by now; nothing was stored."""


class CorruptEvidenceError(DamagedError):
    """Stored bytes are not what was stored."""


class DatabaseVersionError(StoreError):
    """The database's tables are not those of this version of the program."""

    def __init__(self, message: str, *, current: str | None, head: str) -> None:
        super().__init__(message)
        self.current = current
        self.head = head


class DatabaseOutdatedError(DatabaseVersionError):
    """The tables are older, or there are none: `seatrial db upgrade` makes them."""


class DatabaseNewerError(DatabaseVersionError):
    """The tables are newer than this version of the program knows."""
