"""What a wheel holds, whenever and however it was zipped."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Iterable
from tempfile import SpooledTemporaryFile

_IN_MEMORY = 64 * 1024 * 1024


def contents_digest(wheel: Iterable[bytes]) -> str:
    """sha256 over name, size and CRC of each file but RECORD, in hex; empty for what is no wheel.

    A wheel that is built again from the same sources has the same, and another sha256.

    Args:
        wheel: Its bytes, in pieces.
    """
    with SpooledTemporaryFile(max_size=_IN_MEMORY) as file:
        for piece in wheel:
            file.write(piece)
        try:
            with zipfile.ZipFile(file) as archive:
                entries = archive.infolist()
        except zipfile.BadZipFile:
            return ""
    told = sorted(
        f"{one.filename}\0{one.file_size}\0{one.CRC:08x}"
        for one in entries
        if not one.filename.endswith(".dist-info/RECORD")
    )
    return hashlib.sha256("\n".join(told).encode()).hexdigest()
