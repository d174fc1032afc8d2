"""What a branch or ``latest`` means now, and a wheel of it."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from orchestrator.application.ports.wheels import SubjectWheel


class SubjectGoneError(Exception):
    """There is no such branch, package or version, or it cannot be built: waiting does not help."""


class SubjectUnreachableError(Exception):
    """The index or the repository did not answer: it may do so later."""


class Subjects(Protocol):
    """What a branch or ``latest`` means now, and a wheel of it.

    Every method but `refusal` raises SubjectGoneError or SubjectUnreachableError.
    """

    def refusal(self, url: str) -> str:
        """Why this controller asks no such repository and builds nothing of it; empty if it does.

        For a person, with what to do instead. May resolve the repository's name.
        """
        ...

    def newest(self, package: str, *, prereleases: bool) -> str:
        """The newest version of a package by pip's index, as the controller's pip is set up."""
        ...

    def head(self, url: str, branch: str) -> str:
        """The commit that a branch is at."""
        ...

    def build(self, url: str, commit: str, into: Path) -> SubjectWheel:
        """A wheel of a commit, in an empty folder. May take minutes."""
        ...
