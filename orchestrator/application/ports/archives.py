"""Archives: payloads on their way to a machine, artifacts on their way back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from orchestrator.domain.manifest import Manifest, StoredPayload


class ArchiveError(ValueError):
    """A folder or an archive was refused; the message says what to mend."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much an archive may hold."""

    members: int = 100_000
    total_bytes: int = 8 * 1024**3
    """Unpacked."""
    file_bytes: int = 8 * 1024**3
    """Any one file, unpacked."""
    ratio: int = 200
    """Unpacked by packed, once it is more than one GiB."""


ARTIFACT_LIMITS = Limits(members=2_000, total_bytes=1024**3, file_bytes=256 * 1024**2)
"""What a machine may send home of one attempt."""


@dataclass(frozen=True, slots=True)
class PackedPayload(StoredPayload):
    """A payload's archive (.tar.gz), ready to be uploaded."""

    path: Path


class PayloadArchives(Protocol):
    """Packs payloads and reads them. Raises ArchiveError, or InvalidDocumentError of a manifest."""

    def pack(self, source: Path, *, into: Path) -> PackedPayload:
        """Pack a folder into a new file in `into`; a ready .tar.gz is checked and left in place."""
        ...

    def read_manifest(self, chunks: Iterable[bytes]) -> Manifest:
        """Check a whole archive and return the manifest in it."""
        ...

    def read_file(self, path: Path) -> Manifest:
        """The same for an archive that was uploaded; raises only InvalidDocumentError."""
        ...


class BundleError(Exception):
    """The archive is too large, not an archive, or plays tricks with paths."""


UnpackBundle = Callable[[Iterable[bytes]], Iterator[tuple[str, Iterable[bytes]]]]
"""Yields (flat file name, its chunks), bounded in number and size. Raises BundleError."""
