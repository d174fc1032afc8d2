"""Forms: their values, the errors of each field, and uploaded files."""

from __future__ import annotations

import hashlib
import re
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import BinaryIO

from starlette.datastructures import FormData, UploadFile
from starlette.requests import Request

from orchestrator.application.context import Context
from orchestrator.application.payloads import put_folder, put_payload, put_subject
from orchestrator.domain.document_problems import InvalidDocumentError, Problem
from orchestrator.domain.units import plural

LONGEST = 300
"""Maximum characters of a word or name in a form."""
_PLAIN = re.compile(r"[^\x00-\x1f\x7f]*")
_URL = re.compile(r"(https?://[!-~]+)?")


@dataclass(slots=True)
class Form:
    """The values of a form by field name."""

    values: Mapping[str, str] = field(default_factory=dict)
    mistakes: dict[str, str] = field(default_factory=dict)
    """The correction to make, by field."""
    problem: str = ""
    """The problem of the form as a whole."""

    @property
    def is_refused(self) -> bool:
        """Whether the form has errors."""
        return bool(self.mistakes or self.problem)

    def value(self, name: str) -> str:
        """Return the value of a field."""
        return self.values.get(name, "")

    def word(self, name: str, *, longest: int = LONGEST) -> str:
        """Return a field's value as one line of at most `longest` characters."""
        text = self.value(name).strip()
        if len(text) > longest:
            self.mistakes[name] = f"is {len(text):,} characters long: at most {longest:,}"
        elif not _PLAIN.fullmatch(text):
            self.mistakes[name] = "must be one line without control characters"
        return text

    def filled(self, name: str, *, longest: int = LONGEST) -> str:
        """Return a field's value as one line; an empty one is an error of the field."""
        text = self.word(name, longest=longest)
        if not text:
            self.mistakes[name] = "must be filled in"
        return text

    def names(self, name: str) -> tuple[str, ...]:
        """Return the comma-separated names of a field."""
        text = self.word(name, longest=2_000)
        return tuple(part for part in (one.strip() for one in text.split(",")) if part)

    def url(self, name: str) -> str:
        """Return a field's HTTP(S) URL; empty without one."""
        text = self.word(name, longest=1_000)
        if not _URL.fullmatch(text):
            self.mistakes[name] = "must begin with https:// or http://, without spaces"
        return text

    def day(self, name: str) -> date:
        """Return a field's date; an invalid one is an error of the field."""
        try:
            return date.fromisoformat(self.value(name).strip())
        except ValueError:
            self.mistakes[name] = "must be a day such as 2026-11-30"
            return date.max

    def number(self, name: str, *, least: int, most: int) -> int:
        """Return a whole number; for an invalid one note the mistake and return `least`."""
        text = self.value(name).strip()
        known = int(text) if text.isascii() and text.isdigit() and len(text) < 12 else None
        if known is None or not least <= known <= most:
            self.mistakes[name] = f"must be a whole number from {least:,} to {most:,}"
            return least
        return known

    def refuse(self, error: InvalidDocumentError) -> None:
        """Add the problems that an operation found to the mistakes of their fields."""
        rest = []
        for problem in error.problems:
            name = next((str(part) for part in reversed(problem.path) if part in self.values), "")
            if name:
                self.mistakes[name] = problem.message
            else:
                rest.append(str(problem))
        self.problem = "\n".join(rest)


_ZIP = b"PK\x03\x04"
_CHUNK_BYTES = 1024 * 1024


def form_of(fields: Iterable[str]) -> Callable[[Request], Awaitable[Form]]:
    """Return a dependency of routes: the submitted form, without files and unknown fields."""

    async def submitted(request: Request) -> Form:
        sent = await request.form()
        return Form({name: str(sent.get(name) or "") for name in fields})

    return submitted


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
    """Return a description such as ``hull 1.0, 2 jobs: unit, demo``; empty if not stored."""
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
    """Return the chosen files of a field; without a choice browsers send one without a name."""
    return [one for one in sent.getlist(field) if isinstance(one, UploadFile) and one.filename]


@contextmanager
def _copied(context: Context, file: BinaryIO) -> Iterator[tuple[str, Path]]:
    """Copy an uploaded file to a temporary folder; yield its sha256 and the copy's path."""
    with tempfile.TemporaryDirectory(prefix="seatrial-upload-", dir=context.scratch) as folder:
        path, seen = Path(folder) / "body", hashlib.sha256()
        with path.open("wb") as copy:
            while chunk := file.read(_CHUNK_BYTES):
                seen.update(chunk)
                copy.write(chunk)
        yield seen.hexdigest(), path
