"""Uploads of foreign artifacts: a folder, an archive or a single file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from orchestrator.application.ports.result_parsers import Artifact
from orchestrator.domain.assembly.results_pass import Tape


class IntakeError(ValueError):
    """The upload is refused; the message says what, where, and what to do next."""


class IntakeFullError(RuntimeError):
    """There is no room left to unpack or to read it; nothing was stored."""


@dataclass(frozen=True, slots=True)
class Handed:
    """One file of what was handed in."""

    name: str
    """Its path below the folder or archive."""
    digest: str
    """sha256 of the bytes as they came."""
    size_bytes: int
    raw: Path
    """The bytes as they came."""
    artifact: Artifact
    """What a dialect reads: the same, or uncompressed."""
    remarks: tuple[str, ...] = ()


class Tray(Protocol):
    """Everything that was handed in, unpacked below a folder of ours until it is closed."""

    @property
    def files(self) -> tuple[Handed, ...]:
        """By name; the notes are among them."""
        ...

    @property
    def notes(self) -> Handed | None:
        """``ingest.yaml``."""
        ...

    def tape(self) -> Tape:
        """An empty tape."""
        ...

    def spool(self, lines: Iterator[bytes]) -> Path:
        """Write the lines to a file. Raises IntakeFullError."""
        ...


class Intake(Protocol):
    """Unpacks what was handed in, safely."""

    def open(self, body: Path, name: str) -> AbstractContextManager[Tray]:
        """Unpack an archive, or take a single file of that name.

        Raises IntakeError where it is empty, too large or plays tricks, IntakeFullError.
        """
        ...
