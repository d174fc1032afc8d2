"""What the database can refuse, in words for a person."""

from __future__ import annotations

from orchestrator.application.ports.stores import DamagedError, StoreError


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
