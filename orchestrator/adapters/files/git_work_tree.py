"""The git command that reads a payload's work tree."""

from __future__ import annotations

import subprocess
from pathlib import Path

# A git hook sets these variables, and they would point git to another repository.
_UNSET = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE")
_SETTINGS = (
    "core.fsmonitor=false",
    "core.hooksPath=/dev/null",
    "log.showSignature=false",
    "safe.bareRepository=explicit",
)
_GIT = (
    "env",
    *(word for name in _UNSET for word in ("-u", name)),
    "GIT_ALLOW_PROTOCOL=none",  # a partial clone would fetch what it lacks
    "git",
    "--no-optional-locks",
    *(word for setting in _SETTINGS for word in ("-c", setting)),
)


def read_with_git(folder: Path, *words: str) -> subprocess.CompletedProcess[bytes]:
    """Run a git command that only reads, in a folder of a work tree.

    The configuration of the repository can name programs for git to run, and a folder that is
    packed can hold another repository, such as a bare one within a commit. So no file system
    monitor, hook, check of signatures or transport is run, and no bare repository is used. The
    filters of files (such as Git LFS) are those of the work tree's own configuration: `git status`
    cannot compare files without them.

    Raises:
        OSError: Git is not installed.
    """
    return subprocess.run((*_GIT, "-C", str(folder), *words), capture_output=True, check=False)
