"""A user's cloud account: what `seatrial bootstrap` creates there, and what `doctor` checks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class CheckLevel(StrEnum):
    """Result of an account check."""

    OK = "OK"
    WARN = "WARN"
    """Not needed by every matrix, or not determined."""
    FAIL = "FAIL"


@dataclass(frozen=True, slots=True)
class AccountCheck:
    """One check of `doctor`: of this computer, or of a cloud account."""

    level: CheckLevel
    name: str
    """``disk`` or ``ec2:RunInstances``."""
    text: str
    """The finding, for a person; without a command, it says how to correct it."""
    command: str = ""
    """The command that repairs it; empty if nothing is wrong."""


@dataclass(frozen=True, slots=True)
class SetupDocument:
    """A preview of the resources that the set-up creates."""

    file_name: str
    text: str
    parts: tuple[str, ...]
    """The resources, one line each."""
    account: str
    """Where they are created: account, identity, region."""


class AccountSetup(Protocol):
    """Set-up of a user's cloud account. Every method raises ProviderError."""

    def document(self) -> SetupDocument:
        """Return what `apply` would create; changes nothing."""
        ...

    def apply(self) -> Iterator[str]:
        """Create or update the resources; return what was done, one line each."""
        ...

    def remove(self) -> Iterator[str]:
        """Delete what `apply` created; return what was done, one line each."""
        ...

    def check(self) -> Iterator[AccountCheck]:
        """Check every permission and the kill switch; changes nothing."""
        ...
