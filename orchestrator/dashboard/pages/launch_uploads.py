"""Uploads of the launch page: a payload as a folder or an archive, and the subject's wheel."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from starlette.datastructures import FormData, UploadFile

from orchestrator.application.context import Context
from orchestrator.application.payloads import put_folder, put_payload, put_subject
from orchestrator.domain.document_problems import InvalidDocumentError, Problem
from orchestrator.domain.units import plural

_ZIP = b"PK\x03\x04"
_CHUNK_BYTES = 1024 * 1024


def store_uploads(context: Context, sent: FormData) -> dict[str, str]:
    """Store the files of a form; return their digests by the form's fields.

    Raises InvalidDocumentError: nothing of the refused file is stored.
    """
    found = {}
    folder, archive = _files(sent, "folder"), _files(sent, "archive")
    if folder and archive:
        problem = Problem(("payload",), "choose a folder or an archive, not both")
        raise InvalidDocumentError("the form", [problem])
    if folder:
        files = ((one.filename or "", one.file) for one in folder)
        found["payload"] = put_folder(context, files).digest
    if archive:
        found["payload"] = _put_archive(context, archive[0].file)
    for wheel in _files(sent, "wheel_file"):
        with _copied(context, wheel.file) as (digest, path):
            put_subject(context, digest, path)
            found["wheel"] = digest
    return found


def about_payload(context: Context, digest: str) -> str:
    """Return ``hull 1.0, 3 jobs: unit, demo, bench``; empty if it is not stored."""
    found = context.stores.payloads.get(digest)
    if found is None:
        return ""
    jobs = [job.id for job in found.manifest.job]
    named = f"{found.manifest.name} {found.manifest.version}"
    return f"{named}, {plural(len(jobs), 'job')}: {', '.join(jobs)}"


def _put_archive(context: Context, file: BinaryIO) -> str:
    with _copied(context, file) as (digest, path):
        with path.open("rb") as start:
            if start.read(len(_ZIP)) == _ZIP:
                problem = Problem(("archive",), "is a .zip: pack it as .tar.gz")
                raise InvalidDocumentError("the form", [problem])
        return put_payload(context, digest, path).digest


def _files(sent: FormData, field: str) -> list[UploadFile]:
    """Return the chosen files of a field; a browser sends an empty one where none was chosen."""
    return [one for one in sent.getlist(field) if isinstance(one, UploadFile) and one.filename]


@contextmanager
def _copied(context: Context, file: BinaryIO) -> Iterator[tuple[str, Path]]:
    """Copy a file that was sent below the context's scratch; yields its sha256 and its path."""
    with tempfile.TemporaryDirectory(prefix="seatrial-upload-", dir=context.scratch) as folder:
        path, seen = Path(folder) / "body", hashlib.sha256()
        with path.open("wb") as copy:
            while chunk := file.read(_CHUNK_BYTES):
                seen.update(chunk)
                copy.write(chunk)
        yield seen.hexdigest(), path
