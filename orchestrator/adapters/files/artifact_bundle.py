"""Artifacts from a machine: an untrusted tar stream."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from orchestrator.adapters.files.tar_stream import Kind, read_members
from orchestrator.application.ports.archives import (
    ARTIFACT_LIMITS,
    ArchiveError,
    BundleError,
    Limits,
)


def unpack_bundle(
    chunks: Iterable[bytes], limits: Limits = ARTIFACT_LIMITS
) -> Iterator[tuple[str, Iterable[bytes]]]:
    """Yield (flat file name, its chunks); see `orchestrator.application.ports.archives`.

    The unread rest of a file is skipped when the next file is requested.
    """
    seen: set[str] = set()
    try:
        for member in read_members(chunks, limits):
            if member.kind is Kind.FOLDER and not member.name:
                continue
            if member.kind is not Kind.FILE or not member.name or "/" in member.name:
                raise BundleError(f"{member.name!r} is no plain file at the top of the bundle")
            if member.name in seen:
                raise BundleError(f"{member.name!r} stands in the bundle twice")
            seen.add(member.name)
            yield member.name, _content(member.content)
    except ArchiveError as error:
        raise BundleError(str(error)) from error


def _content(chunks: Iterator[bytes]) -> Iterator[bytes]:
    try:
        yield from chunks
    except ArchiveError as error:
        raise BundleError(str(error)) from error
