"""Stores uploaded payloads and wheels, and payload reviews."""

from __future__ import annotations

import posixpath
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Annotated, BinaryIO

from orchestrator.application.context import Context
from orchestrator.application.ports.archives import ArchiveError
from orchestrator.application.ports.blobs import file_chunks
from orchestrator.domain.caller_identity import Person
from orchestrator.domain.document_problems import InvalidDocumentError, Problem
from orchestrator.domain.field_limits import STRICT, Filled, ValueLimits
from orchestrator.domain.gate.payload_review import (
    LEVELS,
    LONGEST_REVIEW,
    PayloadLevel,
    PayloadReview,
)
from orchestrator.domain.manifest import StoredPayload


@dataclass(frozen=True, slots=True, kw_only=True)
class NewReview:
    """A person's review of a payload."""

    __pydantic_config__ = STRICT

    payload: Filled
    """sha256 of its archive, as in verdicts and `PUT /payloads/{sha256}`."""
    level: PayloadLevel
    """The level; `untrusted` withdraws all earlier reviews."""
    days: Annotated[int, ValueLimits(ge=1, le=LONGEST_REVIEW.days)]
    note: Annotated[str, ValueLimits(max_length=2000)] = ""
    """The parts that the reviewer read; shown in verdicts."""


def review_payload(context: Context, new: NewReview, *, by: Person) -> PayloadReview:
    """Store a review, valid from now on. Not idempotent.

    Raises InvalidDocumentError, and nothing is stored: for longer than a year, or of a payload that
    was never uploaded.
    """
    digest = new.payload.strip().removeprefix("sha256:").lower()
    problems = list(_problems(context, new, digest))
    if problems:
        raise InvalidDocumentError("the review", problems)
    at = context.clock.now()
    review = PayloadReview(
        id="",
        payload=digest,
        level=new.level,
        by=by.name,
        token=by.token,
        note=new.note.strip(),
        at=at,
        expires=at + timedelta(days=new.days),
    )
    return context.stores.gates.add_review(review)


def _problems(context: Context, new: NewReview, digest: str) -> Iterator[Problem]:
    if new.level not in LEVELS:
        yield Problem(("level",), f"must be one of {', '.join(LEVELS)}")
    if not 1 <= new.days <= LONGEST_REVIEW.days:
        yield Problem(("days",), f"must be from 1 to {LONGEST_REVIEW.days}")
    if context.stores.payloads.get(digest) is None:
        message = "no payload of this digest was uploaded; `seatrial gate explain` prints the one"
        yield Problem(("payload",), f"{message} that a verdict is about")


MANIFEST = "payload.toml"
PAYLOAD_LIMIT_BYTES = 2 * 1024**3
SUBJECT_LIMIT_BYTES = 4 * 1024**3


def put_payload(context: Context, digest: str, spooled: Path) -> StoredPayload:
    """Store an uploaded archive after reading its manifest.

    Raises InvalidDocumentError for an archive that is no payload, BlobMismatchError or
    BlobTooLargeError; nothing is stored then.
    """
    manifest = context.read_payload(spooled)
    chunks = file_chunks(spooled)
    _, size = context.blobs.put(chunks, digest=digest, limit_bytes=PAYLOAD_LIMIT_BYTES)
    payload = StoredPayload(digest, size, manifest)
    context.stores.payloads.put(payload, at=context.clock.now())
    return payload


def put_folder(context: Context, files: Iterable[tuple[str, BinaryIO]]) -> StoredPayload:
    """Pack the files of a folder that a browser sent, and store them as a payload.

    What git, caches and virtual environments hold is left out, as when a folder is packed.

    Args:
        context: The context.
        files: Paths that begin with the folder's name, and contents.

    Raises:
        InvalidDocumentError: They are no payload; nothing is stored.
    """
    with tempfile.TemporaryDirectory(prefix="seatrial-folder-", dir=context.scratch) as scratch:
        folder, into = Path(scratch) / "payload", Path(scratch)
        folder.mkdir()
        try:
            for name, content in files:
                _write_below(folder, name, content)
            _check_root(context, folder)
            packed = context.pack_payload(folder, into)
        except ArchiveError as error:
            text = str(error).replace(str(folder), "the folder")
            raise InvalidDocumentError("payload", [Problem((), text)]) from error
        return put_payload(context, packed.digest, packed.path)


def _write_below(folder: Path, name: str, content: BinaryIO) -> None:
    _, *parts = name.split("/")
    if not parts:
        raise ArchiveError(f"{name!r} came without its folder: choose a folder, not files")
    if any(part in ("", ".", "..") or "\\" in part or not part.isprintable() for part in parts):
        raise ArchiveError(f"the name {name!r} cannot be packed")
    if ".git" in parts:
        return
    path = folder.joinpath(*parts)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as file:
            shutil.copyfileobj(content, file)
    except OSError as error:
        raise ArchiveError(f"{name!r} cannot be written: {error.strerror or error}") from error


def _check_root(context: Context, folder: Path) -> None:
    """Refuse a manifest that names another root: it would be outside of what was sent."""
    path = folder / MANIFEST
    if not path.is_file():
        raise ArchiveError(f"there is no {MANIFEST} at the top of the folder; choose the one of it")
    text = path.read_bytes().decode("utf-8", "replace")
    root = context.documents.read_manifest(text, MANIFEST).root
    if posixpath.normpath(root) != ".":
        raise ArchiveError(
            f"{MANIFEST} says root = {root!r}, outside of this folder: send an archive of the"
            " whole, or use `seatrial run`"
        )


def put_subject(context: Context, digest: str, spooled: Path) -> int:
    """Store an uploaded wheel; return its size in bytes.

    Raises BlobMismatchError or BlobTooLargeError; nothing is stored then.
    """
    chunks = file_chunks(spooled)
    _, size = context.blobs.put(chunks, digest=digest, limit_bytes=SUBJECT_LIMIT_BYTES)
    context.stores.retention.blob_is_back(digest)
    return size
