"""Receive an upload into a file: bounded, checked while it comes, and gone if it does not end."""

from __future__ import annotations

import errno
import hashlib
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO

from fastapi import Request
from starlette.concurrency import run_in_threadpool

from orchestrator.api.errors import DigestMismatchError, SpoolFullError
from orchestrator.api.security import bounded


def archive_body(what: str) -> dict[str, object]:
    """What OpenAPI says of an uploaded file."""
    return {
        "requestBody": {
            "required": True,
            "content": {
                "application/octet-stream": {
                    "schema": {"type": "string", "format": "binary"},
                    "examples": {"file": {"summary": what, "value": "(the bytes of the file)"}},
                }
            },
        }
    }


_PIECE_BYTES = 1024 * 1024
"""So much is gathered before a thread is asked to write it."""


@asynccontextmanager
async def received(
    request: Request, digest: str | None, *, limit_bytes: int, scratch: Path
) -> AsyncIterator[Path]:
    """The whole body, of that digest if one is given, in a file that lives within the block.

    The file is below `scratch`, in a folder that only its owner can read.

    Raises BodyTooLargeError, DigestMismatchError, SpoolFullError, or ClientDisconnect when the
    upload is cut off; the file is gone then, too.
    """
    folder = await run_in_threadpool(
        tempfile.TemporaryDirectory, prefix="seatrial-upload-", dir=scratch
    )
    try:
        path = Path(folder.name) / "body"
        file = await run_in_threadpool(path.open, "wb")
        try:
            found = await _receive(request, file, limit_bytes)
        finally:
            await run_in_threadpool(file.close)
        if digest not in (None, found):
            raise DigestMismatchError(f"the bytes that came have the sha256 {found}")
        yield path
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise SpoolFullError("there is no room left to receive uploads") from error
        raise
    finally:
        folder.cleanup()


async def _receive(request: Request, file: IO[bytes], limit_bytes: int) -> str:
    seen = hashlib.sha256()
    piece = bytearray()
    async for chunk in bounded(request, limit_bytes):
        piece += chunk
        if len(piece) >= _PIECE_BYTES:
            await run_in_threadpool(_keep, file, seen, piece)
            piece = bytearray()
    await run_in_threadpool(_keep, file, seen, piece)
    return seen.hexdigest()


def _keep(file: IO[bytes], seen: hashlib._Hash, piece: bytearray) -> None:
    seen.update(piece)
    file.write(piece)
