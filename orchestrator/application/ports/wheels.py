"""Ports of packages: the subject under test, and dependencies resolved in advance."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from orchestrator.domain.launch_plan import SHIPPED_LIMIT_BYTES
from orchestrator.domain.manifest import Environment, Manifest
from orchestrator.domain.matrix import Subject
from orchestrator.domain.reuse_inputs import Interpreter


class WheelsError(Exception):
    """Packages are unavailable for the machine; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The chosen interpreter, or the reason for which none was chosen."""

    interpreter: Interpreter | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Resolution:
    """The packages that a machine installs, and their source."""

    requirements: tuple[str, ...]
    """Requirements that the interpreter does not meet."""
    constraints: tuple[str, ...]
    """Exact versions of the interpreter's packages, which are kept; of those that are replaced,
    the payload's requirements."""
    wheels: str | None = None
    """Digest of the wheelhouse's archive; None if nothing must be shipped."""
    size_bytes: int = 0
    """Size of that archive."""
    packages: Mapping[str, str] = field(default_factory=dict)
    """Packages in the wheelhouse."""
    subject: Mapping[str, str] | None = None
    """``{"distribution", "version", "requirement"}`` as in the agent's plan."""
    note: str = ""
    """Why the machine's own index is needed; empty if it is not."""


@dataclass(frozen=True, slots=True)
class WheelSizes:
    """What would be sent to a machine, without the subject's own wheel."""

    packages: Mapping[str, str]
    """Versions of the distributions, by canonical name."""
    size_bytes: int
    """Of those whose size is known."""
    unknown: Mapping[str, str]
    """Distributions whose size or requirements no index states, with the reason."""


@dataclass(frozen=True, slots=True)
class SubjectWheel:
    """A subject's wheel, ready for upload."""

    path: Path
    digest: str
    """sha256 of the file."""
    distribution: str
    version: str
    commit: str | None = None
    """Commit of a subject built from a revision."""
    built: str = ""
    """Where, by whom and from what a controller built it; for a person."""


@dataclass(frozen=True, slots=True)
class Revision:
    """A commit of a subject's repository."""

    commit: str
    title: str
    """First line of the commit message."""


Opener = Callable[[], Iterable[bytes]]
"""Reopens the bytes."""


class Wheels(Protocol):
    """Resolves environments on the controller, so that machines need no index."""

    def choose(self, probe: Mapping[str, object], manifest: Manifest, environment: str) -> Choice:
        """Return the first probed interpreter that meets the payload's requirements."""
        ...

    def resolve(
        self,
        interpreter: Interpreter,
        environment: Environment,
        *,
        subject: Subject,
        wheel: Opener | None = None,
        requires: Sequence[str] = (),
        limit_bytes: int = SHIPPED_LIMIT_BYTES,
    ) -> Resolution:
        """Resolve and store all missing packages. May take minutes. Raises WheelsError.

        Args:
            interpreter: The chosen interpreter.
            environment: The packages to have.
            subject: Of the matrix; with a source it is installed, whatever the image has.
            wheel: The subject's wheel where it was uploaded.
            requires: What the payload requires of the interpreter. Like the environment's packages,
                it is met by what is installed in the end, whatever the subject needs.
            limit_bytes: Maximum size of all wheels.
        """
        ...

    def sizes(
        self,
        interpreter: Interpreter,
        environment: Environment,
        *,
        subject: Subject,
        wheel: Opener | None = None,
        requires: Sequence[str] = (),
    ) -> WheelSizes:
        """Return what `resolve` would fetch, without fetching it; takes seconds.

        Raises WheelsError if it cannot be resolved here.
        """
        ...

    def assume(self, manifest: Manifest, environment: str, *, torch: str) -> Interpreter:
        """Return the expected interpreter of a platform without an earlier machine.

        It is of the version that the environment names, else of the controller's, with what the
        payload requires of it and the image's torch (empty: it has none).
        """
        ...

    def open(self, digest: str) -> Iterator[bytes]:
        """Open a wheelhouse's archive (an uncompressed tar of wheels). Raises WheelsError."""
        ...


class Revisions(Protocol):
    """Revisions of a repository, for a bisection."""

    def between(self, good: str, bad: str) -> tuple[Revision, ...]:
        """Return the revisions from the good to the bad one, inclusive, along first parents.

        Raises WheelsError if one is unknown, or the good one is no ancestor of the bad.
        """
        ...

    def wheel(self, commit: str) -> SubjectWheel:
        """Build a wheel of a revision. Raises WheelsError."""
        ...


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
