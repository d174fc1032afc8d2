"""The git commit of the checkout that a payload is packed from."""

from __future__ import annotations

from pathlib import Path

from orchestrator.adapters.files.git_work_tree import is_dirty, read_with_git
from orchestrator.domain.commit import Commit


def checkout_of(source: Path) -> Commit:
    """Return the commit of the folder's work tree; an empty one outside a work tree.

    For a folder that git ignores the commit is empty: its files belong to no commit. A work tree
    whose state git cannot tell is dirty.
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
        is_dirty=is_dirty(source),
    )


def _said(folder: Path, *words: str) -> str | None:
    """Return git's output; None if git fails or is not installed."""
    try:
        done = read_with_git(folder, *words)
    except OSError:
        return None
    return done.stdout.decode(errors="replace").strip() if done.returncode == 0 else None
