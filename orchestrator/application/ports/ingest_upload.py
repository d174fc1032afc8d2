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
    """The upload was rejected; the message says what, where, and what to do."""


class IntakeFullError(RuntimeError):
    """The disk is too full for the upload; nothing was stored."""


@dataclass(frozen=True, slots=True)
class Handed:
    """An uploaded file."""

    name: str
    """Path below the folder or archive."""
    digest: str
    """sha256 of the bytes as they came."""
    size_bytes: int
    raw: Path
    """The raw file."""
    artifact: Artifact
    """The file for parsers: the same, or uncompressed."""
    remarks: tuple[str, ...] = ()


class Tray(Protocol):
    """An unpacked upload in a temporary folder, until it is closed."""

    @property
    def files(self) -> tuple[Handed, ...]:
        """Return the files by name, notes included."""
        ...

    @property
    def notes(self) -> Handed | None:
        """Return ``ingest.yaml``."""
        ...

    def tape(self) -> Tape:
        """Return a new tape."""
        ...

    def spool(self, lines: Iterator[bytes]) -> Path:
        """Write lines to a file. Raises IntakeFullError."""
        ...


class Intake(Protocol):
    """Unpacks uploads safely."""

    def open(self, body: Path, name: str) -> AbstractContextManager[Tray]:
        """Unpack an archive, or take a single file of that name.

        Raises IntakeError where it is empty, too large or plays tricks, IntakeFullError.
        """
        ...
