"""The folders of one job: created anew, given to the jobs' user, closed when the job is over."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from . import bounded_process
from .job_user import give
from .layout import JobFolder

_LONGEST_TMP = 60
"""Longer paths leave no room for the 108 bytes of a socket's name, which multiprocessing needs."""


class JobDirs:
    """The folders that a job may write to, with its temporary folder."""

    def __init__(self, folder: JobFolder, account: bounded_process.Account) -> None:
        self._folder = folder
        self._account = account

    def make(self) -> None:
        """Create every folder anew; what an earlier agent left is deleted."""
        folder = self._folder
        shutil.rmtree(folder.folder, ignore_errors=True)
        for path in (folder.artifacts, folder.tmp, folder.caches):
            path.mkdir(parents=True, mode=0o755)
        folder.given.mkdir(parents=True, exist_ok=True, mode=0o755)
        if self._account is not None:
            give(folder.folder, self._account[0], self._account[1])

    def tmp(self) -> Path:
        """Return the job's temporary folder, by a short name where its own is too long."""
        own = self._folder.tmp
        if len(str(own)) <= _LONGEST_TMP:
            return own
        short = Path(self._folder.short_tmp)
        try:
            if short.is_symlink() and short.readlink() == own:
                return short
            short.symlink_to(own)
        except OSError:
            return own
        return short

    def clear(self, tmp: Path) -> None:
        """Delete the temporary and cache folders."""
        if tmp != self._folder.tmp:
            tmp.unlink(missing_ok=True)
        for path in (self._folder.tmp, self._folder.caches):
            shutil.rmtree(path, ignore_errors=True)

    def lock_away(self) -> None:
        """Shut the job's folder: later jobs are the same user, and what it left is evidence."""
        if self._account is None or not self._folder.folder.is_dir():
            return
        os.chown(self._folder.folder, os.geteuid(), os.getegid(), follow_symlinks=False)
        self._folder.folder.chmod(0o700)
