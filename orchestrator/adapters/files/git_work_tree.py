"""The git command that reads a payload's work tree."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

# A git hook sets these variables, and they would point git to another repository.
_UNSET = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE")
_SETTINGS = (
    "core.fsmonitor=false",
    "core.hooksPath=/dev/null",
    "log.showSignature=false",
    "safe.bareRepository=explicit",
)
_ENV = ("env", *(word for name in _UNSET for word in ("-u", name)))
_GIT = (
    "GIT_ALLOW_PROTOCOL=none",  # a partial clone would fetch what it lacks
    "git",
    "--no-optional-locks",
    *(word for setting in _SETTINGS for word in ("-c", setting)),
)


_PROGRAMS = r"^(filter\..*\.(clean|process)|lfs\.extension\..*)$"
_LFS = ("git-lfs clean -- %f", "git-lfs filter-process", "git-lfs filter-process --skip")
"""The commands that `git lfs install` configures."""


def read_with_git(
    folder: Path, *words: str, variables: Sequence[str] = ()
) -> subprocess.CompletedProcess[bytes]:
    """Run a git command that only reads, in a folder of a work tree.

    The configuration of the repository can name programs for git to run, and a folder that is
    packed can hold another repository, such as a bare one within a commit. So no file system
    monitor, hook, check of signatures or transport is run, and no bare repository is used. A
    command that compares files runs filters, too: see `is_dirty`.

    Args:
        folder: In a work tree.
        words: The command.
        variables: More of the environment, as ``NAME=value``.

    Raises:
        OSError: Git is not installed.
    """
    command = (*_ENV, *variables, *_GIT, "-C", str(folder), *words)
    return subprocess.run(command, capture_output=True, check=False)


def is_dirty(folder: Path) -> bool:
    """Whether files of the folder differ from its commit, or cannot be compared with it.

    `git status` compares by the filters that the configuration defines, which are programs. None
    is run but Git LFS's own: a changed file of another filter cannot be compared, which is dirty.
    Submodules, which have a configuration of their own, are looked at one by one.

    Raises:
        OSError: Git is not installed.
    """
    listed = read_with_git(folder, "config", "-z", "--get-regexp", _PROGRAMS)
    if listed.returncode not in (0, 1):
        return True
    options = ("--porcelain", "--no-renames", "--ignore-submodules=dirty")
    disabled = _without_filters(listed.stdout)
    told = read_with_git(folder, "status", *options, "--", ".", variables=disabled)
    if told.returncode != 0 or told.stdout.strip():
        return True
    staged = read_with_git(folder, "ls-files", "-z", "--stage", "--", ".")
    entries = (entry.partition(b"\t") for entry in staged.stdout.split(b"\0"))
    inner = (os.fsdecode(name) for facts, _, name in entries if facts.startswith(b"160000"))
    checked_out = (folder / name for name in inner if (folder / name / ".git").exists())
    return staged.returncode != 0 or any(map(is_dirty, checked_out))


def _without_filters(listed: bytes) -> list[str]:
    """Return the variables that disable the filters of a configuration, other than Git LFS."""
    settings = [entry.partition("\n") for entry in os.fsdecode(listed).split("\0") if entry]
    is_extended = any(key.startswith("lfs.extension.") for key, _, _ in settings)
    foreign = {
        key.rpartition(".")[0]
        for key, _, value in settings
        if key.startswith("filter.") and (is_extended or value not in _LFS)
    }
    disabled = [
        (f"{name}.{key}", value)
        for name in sorted(foreign)
        for key, value in (("clean", ""), ("process", ""), ("required", "false"))
    ]
    variables = [f"GIT_CONFIG_COUNT={len(disabled)}"] if disabled else []
    for number, (key, value) in enumerate(disabled):
        variables += [f"GIT_CONFIG_KEY_{number}={key}", f"GIT_CONFIG_VALUE_{number}={value}"]
    return variables
