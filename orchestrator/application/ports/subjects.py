"""Port of subject resolution: the commit of a branch, the newest version, and wheels."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from orchestrator.application.ports.wheels import SubjectWheel


class SubjectGoneError(Exception):
    """The branch, package or version does not exist, or cannot be built; waiting does not help."""


class SubjectUnreachableError(Exception):
    """The index or the repository did not answer; retry later."""


class Subjects(Protocol):
    """Port of subject resolution: the commit of a branch, the newest version, and wheels.

    Every method but `refusal` raises SubjectGoneError or SubjectUnreachableError.
    """

    def refusal(self, url: str) -> str:
        """Return why this controller does not use the repository; empty if it does.

        For a person, with what to do instead. May resolve the repository's name.
        """
        ...

    def newest(self, package: str, *, prereleases: bool) -> str:
        """Return the newest version of a package in pip's index."""
        ...

    def head(self, url: str, branch: str) -> str:
        """Return the head commit of a branch."""
        ...

    def build(self, url: str, commit: str, into: Path) -> SubjectWheel:
        """Build a wheel of a commit in an empty folder. May take minutes."""
        ...
