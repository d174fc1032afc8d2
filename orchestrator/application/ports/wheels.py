"""What is installed beside an interpreter's own packages, found out before anything is shipped."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from orchestrator.domain.manifest import Environment, Manifest
from orchestrator.domain.matrix import Subject
from orchestrator.domain.reuse_inputs import Interpreter


class WheelsError(Exception):
    """Packages cannot be had for the machine; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The interpreter that is used, or why there is none."""

    interpreter: Interpreter | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Resolution:
    """What the machine is to install, and from what."""

    requirements: tuple[str, ...]
    """Of the environment, those that the interpreter does not meet already."""
    constraints: tuple[str, ...]
    """Exact versions of what the interpreter has and keeps."""
    wheels: str | None = None
    """Digest of the wheelhouse's archive; None where nothing needs to be shipped."""
    packages: Mapping[str, str] = field(default_factory=dict)
    """What is in the wheelhouse."""
    subject: Mapping[str, str] | None = None
    """``{"distribution", "version", "requirement"}``, as the agent's plan has it."""
    note: str = ""
    """Why the machine's own index is needed, where it is."""


@dataclass(frozen=True, slots=True)
class SubjectWheel:
    """A subject's wheel, ready to be uploaded."""

    path: Path
    digest: str
    """sha256 of the file."""
    distribution: str
    version: str
    commit: str | None = None
    """Of a subject that was built from a revision."""
    built: str = ""
    """Where it was built, as whom and from what, where a controller did it; for a person."""


@dataclass(frozen=True, slots=True)
class Revision:
    """One commit of a subject's repository."""

    commit: str
    title: str
    """First line of its message."""


Opener = Callable[[], Iterable[bytes]]
"""Opens bytes anew."""


class Wheels(Protocol):
    """Resolves environments on the controller, so that machines need no index."""

    def choose(self, probe: Mapping[str, object], manifest: Manifest, environment: str) -> Choice:
        """The first interpreter of the probe that has what the payload requires."""
        ...

    def resolve(
        self,
        interpreter: Interpreter,
        environment: Environment,
        *,
        subject: Subject,
        wheel: Opener | None = None,
    ) -> Resolution:
        """Find and keep all that is missing. May take minutes. Raises WheelsError.

        Args:
            interpreter: The chosen one.
            environment: What it is to have.
            subject: Of the matrix; with a source it is installed, whatever the image has.
            wheel: The subject's wheel where it was uploaded.
        """
        ...

    def open(self, digest: str) -> Iterator[bytes]:
        """A wheelhouse's archive (an uncompressed tar of wheels). Raises WheelsError."""
        ...


class Revisions(Protocol):
    """The revisions of one repository, for a bisection."""

    def between(self, good: str, bad: str) -> tuple[Revision, ...]:
        """From the good one to the bad one, both included, along first parents.

        Raises WheelsError where one is unknown, or the good one is no ancestor of the bad.
        """
        ...

    def wheel(self, commit: str) -> SubjectWheel:
        """A wheel of it. Raises WheelsError."""
        ...
