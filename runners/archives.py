"""Archives whose bytes depend on their content alone, so that a digest can name them."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath

AGENT_FOLDER = Path(__file__).parent / "agent"
AGENT_PACKAGE = "seatrial_agent"
ON_PATH = "on_path"


@dataclass(frozen=True, slots=True)
class Archive:
    """A tar file in memory."""

    digest: str
    """sha256 of `data`, in hexadecimal."""
    data: bytes


def pack(files: Iterable[tuple[str, bytes]]) -> Archive:
    """Return an uncompressed tar of (name, content): sorted, with fixed times, owner and mode."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, content in sorted(files):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            entry.mode = 0o644
            archive.addfile(entry, io.BytesIO(content))
    data = buffer.getvalue()
    return Archive(hashlib.sha256(data).hexdigest(), data)


@cache
def agent_archive() -> Archive:
    """The agent's archive: its package, and the modules on the jobs' path."""
    return pack(
        (_shipped_name(path), path.read_bytes())
        for path in AGENT_FOLDER.rglob("*.py")
        if "__pycache__" not in path.parts
    )


def _shipped_name(path: Path) -> str:
    inside = PurePosixPath(path.relative_to(AGENT_FOLDER).as_posix())
    return str(inside if inside.parts[0] == ON_PATH else PurePosixPath(AGENT_PACKAGE) / inside)
