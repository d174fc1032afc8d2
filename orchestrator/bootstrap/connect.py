"""The Python client of a controller, for programs that are not the command line."""

from __future__ import annotations

from pathlib import Path

from pydantic import SecretStr

from orchestrator.adapters.clock import SystemClock
from orchestrator.adapters.files.archive import FilePayloadArchives
from orchestrator.adapters.files.documents import FileDocuments
from orchestrator.application.ports.archives import PackedPayload
from orchestrator.client.connection import RemoteConnection
from orchestrator.client.seatrial import Seatrial


def connect(url: str, token: str | None = None) -> Seatrial:
    """Return a client of the controller at a URL; nothing is sent yet."""
    return Seatrial(RemoteConnection(url, SecretStr(token) if token else None), SystemClock())


def pack(folder: Path, *, into: Path) -> PackedPayload:
    """Pack a payload folder as the commands do, for `upload_payload`.

    Args:
        folder: The folder with ``payload.toml``.
        into: An existing folder for the archive.

    Raises ArchiveError and InvalidDocumentError.
    """
    return FilePayloadArchives(FileDocuments()).pack(folder, into=into)
