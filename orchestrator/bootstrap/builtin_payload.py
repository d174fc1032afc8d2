"""The payload that comes with Seatrial, stored like any other."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.adapters.files.archive import file_chunks
from orchestrator.application.ports.archives import PayloadArchives
from orchestrator.application.ports.blobs import Blobs
from orchestrator.application.ports.clock import Clock
from orchestrator.store.payloads import PayloadStore, StoredPayload


@dataclass(slots=True)
class BuiltinPayload:
    """Answers with its digest; packs and stores it on the first call."""

    folder: Path
    archives: PayloadArchives
    payloads: PayloadStore
    blobs: Blobs
    clock: Clock
    _digest: str = field(default="", init=False)

    def __call__(self) -> str:
        """Digest of the archive. Raises ArchiveError or InvalidDocumentError."""
        if not self._digest:
            with tempfile.TemporaryDirectory() as scratch:
                packed = self.archives.pack(self.folder, into=Path(scratch))
                self.blobs.put(file_chunks(packed.path), digest=packed.digest)
            stored = StoredPayload(packed.digest, packed.size_bytes, packed.manifest)
            self.payloads.put(stored, at=self.clock.now())
            self._digest = packed.digest
        return self._digest
