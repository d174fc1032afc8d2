"""Ports of archives: payloads as they are shipped, and bundles of artifacts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

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
    unshipped_tests: tuple[str, ...] = ()
    """Files with a test's name among shipped tests that are not shipped, since git ignores them."""
    unshipped_data: tuple[str, ...] = ()
    """Other files, and folders of them, among shipped tests that git ignores."""
    missing_tests: tuple[str, ...] = ()
    """Sentences about paths of suites that are not shipped, and that an earlier job may write."""


class PayloadArchives(Protocol):
    """Packs and reads payloads. Raises ArchiveError, or InvalidDocumentError for a manifest."""

    def pack(self, source: Path, *, into: Path, manifest_from: Path | None = None) -> PackedPayload:
        """Pack a folder into a new file in `into`.

        An existing .tar.gz is validated and left in place. With `manifest_from`, that folder's
        ``payload.toml`` is packed in place of the source's own.
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
