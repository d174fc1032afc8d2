"""Stores uploaded payloads and wheels, and payload reviews."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from orchestrator.application.context import Context
from orchestrator.domain.caller_identity import Person
from orchestrator.domain.document_problems import InvalidDocumentError, Problem
from orchestrator.domain.gate.payload_review import (
    LEVELS,
    LONGEST_REVIEW,
    PayloadLevel,
    PayloadReview,
)
from orchestrator.domain.manifest import StoredPayload


@dataclass(frozen=True, slots=True, kw_only=True)
class NewReview:
    """A review to add."""

    payload: str
    """sha256 of its archive, in hex; the prefix ``sha256:`` is allowed."""
    level: PayloadLevel
    by: Person
    days: int
    note: str = ""


def review_payload(context: Context, new: NewReview) -> PayloadReview:
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
        by=new.by.name,
        token=new.by.token,
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


PAYLOAD_LIMIT_BYTES = 2 * 1024**3
SUBJECT_LIMIT_BYTES = 4 * 1024**3
_CHUNK_BYTES = 1024 * 1024


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


def put_subject(context: Context, digest: str, spooled: Path) -> int:
    """Store an uploaded wheel; return its size in bytes.

    Raises BlobMismatchError or BlobTooLargeError; nothing is stored then.
    """
    chunks = file_chunks(spooled)
    _, size = context.blobs.put(chunks, digest=digest, limit_bytes=SUBJECT_LIMIT_BYTES)
    return size


def file_chunks(path: Path) -> Iterator[bytes]:
    """Yield the bytes of a file in pieces."""
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            yield chunk
