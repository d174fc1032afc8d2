"""What pytest had captured and not shown when its process ended: see ``on_path`` for how."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Iterator, List, Tuple

from .bounded_process import Account
from .clean_text import last_lines
from .job_output import JobOutput
from .tail_json_lines import open_regular

Section = Tuple[str, str]
"""Heading and text, as in a report of pytest."""

_PIECE = 1024 * 1024
_MAIN = "main"
_FILES = 64
"""Maximum number of files that are read: one stdout and stderr of each pytest-xdist worker."""


class CapturedOutput:
    """The folder of a suite's captured output."""

    def __init__(self, folder: Path, account: Account) -> None:
        """Prepare.

        Args:
            folder: In a folder that jobs cannot change.
            account: The jobs' user, who owns the folder and its files; None for the agent's own.
        """
        self._folder = folder
        self._account = account

    def begin_process(self) -> None:
        """Empty the folder: a new process of pytest is about to start."""
        self.clear()
        self._folder.mkdir(mode=0o700)
        if self._account is not None:
            os.chown(self._folder, *self._account[:2])

    def clear(self) -> None:
        """Delete the folder."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def drain(self, output: JobOutput, limit_bytes: int) -> List[Section]:
        """Move what an ended process left to a job's output, masked.

        Args:
            output: Receives all of it, within its own limit.
            limit_bytes: Maximum size of the end of each stream that is returned.

        Returns:
            A section for each stream that holds something.
        """
        found: List[Section] = []
        for path in sorted(self._folder.glob("*"), key=_order)[:_FILES]:
            fd = open_regular(path)
            if fd is None:
                continue
            with os.fdopen(fd, "rb") as source:
                status = os.fstat(fd)
                # A hard link could lead to a file that only the agent may read.
                if status.st_size and status.st_uid == self._owner():
                    pieces = iter(lambda: source.read(_PIECE), b"")
                    heading = _heading(path.name)
                    found.append((heading, self._move(heading, pieces, output, limit_bytes)))
        self.clear()
        return found

    def _owner(self) -> int:
        return self._account[0] if self._account is not None else os.geteuid()

    @staticmethod
    def _move(heading: str, pieces: Iterator[bytes], output: JobOutput, limit_bytes: int) -> str:
        output.banner(f"{heading}, which pytest had not shown when its process ended")
        return last_lines(output.add(pieces), limit_bytes)


def _order(path: Path) -> Tuple[str, bool]:
    """Sort by process, stdout first."""
    return path.stem, path.suffix != ".stdout"


def _heading(name: str) -> str:
    """Return pytest's heading of a file's content: its name is that of a process and a stream."""
    process, _, stream = name.rpartition(".")
    return f"Captured {stream}" + ("" if process == _MAIN else f" of {process}")
