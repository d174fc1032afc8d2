"""Ports of stored bytes: blobs, payload archives and artifact bundles."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from orchestrator.domain.blobs import CLAIM_S, StoredBlob
from orchestrator.domain.manifest import Manifest, StoredPayload


class ArchiveError(ValueError):
    """A folder or an archive was rejected; the message says what to fix."""


@dataclass(frozen=True, slots=True)
class ArchiveLimits:
    """Limits of an archive."""

    members: int = 100_000
    total_bytes: int = 8 * 1024**3
    """Total unpacked size."""
    file_bytes: int = 8 * 1024**3
    """Unpacked size of one file."""
    ratio: int = 200
    """Maximum ratio of unpacked to packed size, above one GiB."""


ARTIFACT_LIMITS = ArchiveLimits(members=2_000, total_bytes=1024**3, file_bytes=256 * 1024**2)
"""Limits of one attempt's artifacts."""


@dataclass(frozen=True, slots=True)
class PackedPayload(StoredPayload):
    """A packed payload (.tar.gz), ready for upload."""

    path: Path
    unshipped: tuple[str, ...] = ()
    """Modules that shipped files import and that are not shipped, since git ignores them."""


class PayloadArchives(Protocol):
    """Packs and reads payloads. Raises ArchiveError, or InvalidDocumentError for a manifest."""

    def pack(self, source: Path, *, into: Path) -> PackedPayload:
        """Pack a folder into a new file in `into`.

        An existing .tar.gz is validated and left in place.
        """
        ...

    def read_manifest(self, chunks: Iterable[bytes]) -> Manifest:
        """Validate a whole archive and return the manifest in it."""
        ...

    def read_file(self, path: Path) -> Manifest:
        """Validate an uploaded archive; raises only InvalidDocumentError."""
        ...


class BundleError(Exception):
    """The archive is invalid, too large, or has unsafe paths."""


UnpackBundle = Callable[[Iterable[bytes]], Iterator[tuple[str, Iterable[bytes]]]]
"""Yields (flat file name, its chunks), bounded in number and size. Raises BundleError."""


class Blobs(Protocol):
    """Stores payload archives, subjects and artifacts: chunked, compressed, named by sha256."""

    def put(
        self, chunks: Iterable[bytes], *, digest: str | None = None, limit_bytes: int | None = None
    ) -> tuple[str, int]:
        """Store the bytes; return (sha256, size in bytes). Idempotent.

        Raises BlobMismatchError or BlobTooLargeError.
        """
        ...

    def open(self, digest: str) -> Iterator[bytes]:
        """Yield the bytes. Raises BlobMissingError at once."""
        ...

    def has(self, digest: str) -> bool:
        """Whether the blob is stored."""
        ...

    def claim(self, digest: str) -> bool:
        """Whether the blob is stored; if so, a row may refer to it within `CLAIM_S`.

        Until then it is not removed.
        """
        ...

    def stored(self, *, idle_s: float = CLAIM_S) -> Iterator[StoredBlob]:
        """Yield the blobs that were neither stored nor claimed for so long, by digest."""
        ...

    def remove(self, digest: str, *, idle_s: float = CLAIM_S) -> bool:
        """Remove a blob, unless it was stored or claimed since; return whether it was removed."""
        ...
