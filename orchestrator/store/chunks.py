"""Chunks of evidence and of logs, as they are packed."""

from __future__ import annotations

import zlib

from orchestrator.store.errors import CorruptEvidenceError


def unpack(body: bytes) -> bytes:
    """The bytes as they came. Raises CorruptEvidenceError."""
    try:
        return zlib.decompress(body)
    except zlib.error as error:
        raise CorruptEvidenceError(f"a stored chunk cannot be unpacked: {error}") from error
