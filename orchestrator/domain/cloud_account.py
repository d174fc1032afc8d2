"""A user's cloud account: its set-up by `seatrial bootstrap`, its checks by `seatrial doctor`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class CheckLevel(StrEnum):
    """Result of an account check."""

    OK = "OK"
    WARN = "WARN"
    """Not needed by every matrix, or the check had no result."""
    FAIL = "FAIL"


@dataclass(frozen=True, slots=True)
class AccountCheck:
    """The result of one check of `doctor`, of this computer or of a cloud account."""

    level: CheckLevel
    name: str
    """Name of the checked thing, such as ``disk`` or ``ec2:RunInstances``."""
    text: str
    """The finding for a person; it includes the advice if there is no command."""
    command: str = ""
    """The command that repairs it; empty if there is none."""


@dataclass(frozen=True, slots=True)
class SetupDocument:
    """A preview of the resources that the set-up creates."""

    file_name: str
    text: str
    parts: tuple[str, ...]
    """The resources, one line each."""
    account: str
    """The account, identity and region in which they are created."""


class AccountSetup(Protocol):
    """Creates and checks the resources in a user's cloud account. Methods raise ProviderError."""

    def document(self) -> SetupDocument:
        """Return a preview of `apply`; change nothing."""
        ...

    def apply(self) -> Iterator[str]:
        """Create or update the resources; yield lines that describe the steps."""
        ...

    def remove(self) -> Iterator[str]:
        """Undo `apply`, except for what others may use (APIs, AWS's spot role).

        Yields lines that describe the steps.
        """
        ...

    def check(self) -> Iterator[AccountCheck]:
        """Check every permission and the kill switch; change nothing."""
        ...
