"""Port of uploads: files and archives that are sent for ingestion, unpacked safely."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from orchestrator.application.ports.result_parsers import Artifact
from orchestrator.domain.assembly.results_pass import RecordStore


class IntakeError(ValueError):
    """The upload was rejected; the message says what, where, and what to do."""


class IntakeFullError(RuntimeError):
    """The disk is too full for the upload; nothing was stored."""


@dataclass(frozen=True, slots=True)
class UploadedFile:
    """One file of an upload, as it came and as parsers read it."""

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


class UnpackedUpload(Protocol):
    """An unpacked upload in a temporary folder, until it is closed."""

    @property
    def files(self) -> tuple[UploadedFile, ...]:
        """Return the files by name, notes included."""
        ...

    @property
    def notes(self) -> UploadedFile | None:
        """Return ``ingest.yaml``."""
        ...

    def record_store(self) -> RecordStore:
        """Return a new record store."""
        ...

    def spool(self, lines: Iterator[bytes]) -> Path:
        """Write lines to a file. Raises IntakeFullError."""
        ...


class UploadUnpacker(Protocol):
    """Unpacks uploads safely."""

    def open(self, body: Path, name: str) -> AbstractContextManager[UnpackedUpload]:
        """Unpack an archive, or take a single file of that name.

        Raises IntakeError if it is empty, too large or plays tricks, IntakeFullError.
        """
        ...
