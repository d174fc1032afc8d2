"""A user's cloud account: what is set up there once, and what is checked there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class CheckLevel(StrEnum):
    """How one check of the account went."""

    OK = "OK"
    WARN = "WARN"
    """Not needed by every matrix, or could not be found out."""
    FAIL = "FAIL"


@dataclass(frozen=True, slots=True)
class AccountCheck:
    """One thing that was looked at in the account."""

    level: CheckLevel
    name: str
    """``ec2:RunInstances``."""
    text: str
    """What was found, for a person."""
    command: str = ""
    """The command that puts it right; empty where nothing is wrong."""


@dataclass(frozen=True, slots=True)
class SetupDocument:
    """What would be set up in an account, to be read before it is consented to."""

    file_name: str
    text: str
    parts: tuple[str, ...]
    """What it makes, a line each."""
    account: str
    """Where it would be made: the account, who signs in, the region."""


class AccountSetup(Protocol):
    """What a cloud's package offers for the user's account. Every verb raises ProviderError."""

    def document(self) -> SetupDocument:
        """What `apply` would make; changes nothing."""
        ...

    def apply(self) -> Iterator[str]:
        """Make it, or bring it up to date; tells what was done, a line each."""
        ...

    def remove(self) -> Iterator[str]:
        """Take away what `apply` made; tells what was done, a line each."""
        ...

    def check(self) -> Iterator[AccountCheck]:
        """Look at every permission and at the kill switch; changes nothing."""
        ...
