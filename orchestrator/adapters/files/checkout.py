"""The git commit of the checkout that a payload is packed from."""

from __future__ import annotations

import subprocess
from pathlib import Path

from orchestrator.domain.commit import Commit

# A git hook sets these variables, and they would point git to another repository.
_GIT = ("env", "-u", "GIT_DIR", "-u", "GIT_WORK_TREE", "-u", "GIT_INDEX_FILE", "git")


def checkout_of(source: Path) -> Commit:
    """Return the commit of the folder's work tree; an empty one outside a work tree.

    For a folder that git ignores the commit is empty: its files belong to no commit.
    """
    if not source.is_dir() or _said(source, "check-ignore", "--quiet", ".") is not None:
        return Commit()
    sha = _said(source, "rev-parse", "--verify", "--quiet", "HEAD")
    if not sha:
        return Commit()
    return Commit(
        sha=sha,
        branch=_said(source, "symbolic-ref", "--short", "--quiet", "HEAD") or "",
        author=_said(source, "log", "-1", "--format=%an") or "",
        is_dirty=bool(_said(source, "status", "--porcelain", "--", ".")),
    )


def _said(folder: Path, *words: str) -> str | None:
    """Return git's output; None if git fails or is not installed."""
    try:
        done = subprocess.run((*_GIT, "-C", str(folder), *words), capture_output=True, check=False)
    except OSError:
        return None
    return done.stdout.decode(errors="replace").strip() if done.returncode == 0 else None
