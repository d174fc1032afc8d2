"""Collects the artifacts and sends them as one tar."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import stat
import time
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Dict, Iterator, Mapping, Optional, Sequence, Tuple

from .layout import Mark, mark_of
from .tail_json_lines import open_regular

if TYPE_CHECKING:
    import tarfile

    from .attempt_context import AttemptContext
    from .evidence_text import JsonValue

_TOTAL_BYTES = 240 * 1024 * 1024
"""Maximum bytes of a bundle; a controller accepts 256 MiB."""

_FILE_BYTES = 64 * 1024 * 1024
_OUTPUTS_BYTES = 176 * 1024 * 1024
_CUT_BYTES = 1024 * 1024
_FILES = 1_000
_NAME_CHARS = 100
_PIECE = 1024 * 1024
_UNSAFE = re.compile(r"[^A-Za-z0-9._+=@-]")


class Packer:
    """Fills the ``artifacts`` folder; returns its index."""

    def __init__(self, context: AttemptContext, *, patience_s: Optional[float] = None) -> None:
        """Prepare to pack.

        Args:
            context: What the parts of the attempt share.
            patience_s: Seconds after which no further file of a job is collected, or None.
        """
        self._context = context
        self._until = None if patience_s is None else time.monotonic() + patience_s
        self._room_bytes = _TOTAL_BYTES
        self._room_files = _FILES
        self._owners: Dict[str, str] = {
            flat_name(job.id, Path(name)): job.id
            for job in context.plan.jobs
            for name in job.metrics
        }

    def facts(self, environment: JsonValue, *, details: bool = True) -> None:
        """Store the ``environment`` event and, if available, the output of ``nvidia-smi -q``."""
        text = json.dumps(self._context.masker.data(environment), indent=2, sort_keys=True)
        self._put("environment.json", text.encode("utf-8", "replace"))
        from . import devices  # noqa: PLC0415 - the verb `bundle` looks for none

        answer = devices.nvidia_details() if details else None
        if answer is not None:
            self._put("gpu_info.txt", answer)

    def outputs(self, jobs: Sequence[str]) -> None:
        """Shorten the jobs' outputs if their sum exceeds the size limit of a bundle."""
        room = _OUTPUTS_BYTES
        for job in jobs:
            path = self._context.attempt.artifacts / output_name(job)
            size = path.stat().st_size if path.exists() else 0
            if size > room:
                self._cut(path, job)
                size = path.stat().st_size
            room = max(room - size, 0)
            self._room_bytes -= size

    def _cut(self, path: Path, job: str) -> None:
        keep = min(_CUT_BYTES, path.stat().st_size)
        os.truncate(path, keep)
        text = f"{path.name} is cut to {keep} bytes: all outputs together are too many; see the log"
        with path.open("ab") as stream:
            stream.write(f"\n[{text}]\n".encode())
        self._context.events.log("warning", text, job)

    def left_by(self, job: str) -> None:
        """Collect the regular files of a job's ``$SEATRIAL_ARTIFACTS``, with secrets masked."""
        folder = self._context.attempt.job(job).artifacts
        for path in _files_below(folder):
            if self._until is not None and time.monotonic() >= self._until:
                text = f"no more artifacts of {job} are kept: the machine is about to go"
                self._context.events.log("warning", text, job)
                return
            problem = self._take(path, job, path.relative_to(folder))
            if problem is not None:
                text = f"artifact {path.relative_to(folder)} of {job} is not kept: {problem}"
                self._context.events.log("warning", text, job)

    def measured(self, job: str, before: Mapping[str, Mark]) -> None:
        """Collect the metric files that a job wrote into its copy of the payload, masked.

        The job has ended, so that no path can change in the meantime.

        Args:
            job: Its id.
            before: The marks of its metric files when it began. A file with the same mark was
                shipped, or an earlier job wrote it.
        """
        root = self._context.attempt.payload.resolve()
        for name, mark in before.items():
            path = root / name
            if not os.path.lexists(path):
                continue  # the reader of the metrics reports the missing file
            if mark_of(path, is_link=True) == mark:
                text = (
                    f"{name} of {job} is not kept: it was there before, and {job} did not write it"
                )
                self._context.events.log("warning", text, job)
                continue
            inside = os.path.realpath(path) == str(path)
            problem = self._take(path, job, Path(name)) if inside else "it is, or is below, a link"
            if problem is not None:
                text = f"{name} of {job} is not kept: {problem}"
                self._context.events.log("warning", text, job)

    def announce(self, jobs: Sequence[str]) -> None:
        """Emit an ``artifact`` event for every file, in the order of their names."""
        outputs = {output_name(job): job for job in jobs}
        for path in sorted(self._context.attempt.artifacts.iterdir()):
            size, digest = _digest(path)
            job = self._owners.get(path.name, outputs.get(path.name))
            data: Dict[str, JsonValue] = {"name": path.name, "size_bytes": size, "sha256": digest}
            self._context.events.emit("artifact", job, data)

    def _take(self, path: Path, job: str, below: Path) -> Optional[str]:
        name = flat_name(job, below)
        if self._room_files <= 0:
            return f"more than {_FILES} files"
        if (self._context.attempt.artifacts / name).exists():
            return f"there is already one named {name}"
        fd = open_regular(path)
        if fd is None:
            return "no plain file that can be read"
        with os.fdopen(fd, "rb") as source:
            size = os.fstat(fd).st_size
            if size > min(_FILE_BYTES, self._room_bytes):
                return f"{size} bytes are too many"
            self._copy(source, self._context.attempt.artifacts / name)
        self._room_bytes -= size
        self._room_files -= 1
        self._owners[name] = job
        return None

    def _copy(self, source: BinaryIO, target: Path) -> None:
        stream = self._context.masker.stream()
        with self._writing(target) as sink:
            for piece in iter(lambda: source.read(_PIECE), b""):
                sink.write(stream.feed(piece))
            sink.write(stream.finish())

    def _put(self, name: str, data: bytes) -> None:
        with self._writing(self._context.attempt.artifacts / name) as sink:
            sink.write(data)

    def _writing(self, target: Path) -> BinaryIO:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.fdopen(os.open(target, flags, 0o600), "wb")


def output_name(job: str) -> str:
    """Return the name of the file with a job's whole output."""
    return f"{job}.txt"


def flat_name(job: str, below: Path) -> str:
    """Return the name of a job's file in the flat folder: safe characters, limited in length."""
    name = _UNSAFE.sub("_", f"{job}.{'-'.join(below.parts)}")
    if len(name) > _NAME_CHARS:
        mark = hashlib.sha256(name.encode()).hexdigest()[:8]
        name = f"{name[: _NAME_CHARS - 41]}-{mark}-{name[-31:]}"
    return name


def bundle(folder: Path, out: BinaryIO) -> None:
    """Write a tar of the plain files in a folder, by name, links left out."""
    import tarfile  # noqa: PLC0415 - the verb `start` makes none

    paths = sorted(folder.iterdir()) if folder.is_dir() else []
    with tarfile.open(fileobj=out, mode="w|", format=tarfile.USTAR_FORMAT) as tar:
        for path in paths:
            fd = open_regular(path)
            if fd is None:
                continue
            with os.fdopen(fd, "rb") as source:
                _add(tar, path.name, source)


def _add(tar: tarfile.TarFile, name: str, source: BinaryIO) -> None:
    """Add a file that may still grow or shrink, with its size at the beginning."""
    status = os.fstat(source.fileno())
    entry = tar.tarinfo(name)
    entry.size, entry.mtime, entry.mode = status.st_size, int(status.st_mtime), 0o644
    tar.addfile(entry, io.BufferedReader(_Exactly(source, entry.size)))


class _Exactly(io.RawIOBase):
    """Reads an exact number of bytes, and zeros if the file has become shorter."""

    def __init__(self, source: BinaryIO, size: int) -> None:
        self._source = source
        self._left = size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        wanted = min(len(buffer), self._left)
        data = self._source.read(wanted)
        data += bytes(wanted - len(data)) if not data else b""
        buffer[: len(data)] = data
        self._left -= len(data)
        return len(data)


def _files_below(folder: Path) -> Iterator[Path]:
    """Walk a folder in a stable order; links to folders are yielded, not followed."""
    for parent, folders, files in os.walk(folder):
        folders.sort()
        links = [name for name in folders if (Path(parent) / name).is_symlink()]
        for name in sorted([*files, *links]):
            yield Path(parent) / name


def _digest(path: Path) -> Tuple[int, str]:
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as stream:
        assert stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
        for piece in iter(lambda: stream.read(_PIECE), b""):
            digest.update(piece)
            size += len(piece)
    return size, digest.hexdigest()
