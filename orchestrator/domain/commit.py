"""The commit that a run tests, and the names of git repositories and branches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated
from urllib.parse import urlsplit

from orchestrator.domain.field_limits import ValueLimits

_SHORT = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """The commit that a run tests; unknown fields are empty."""

    sha: Annotated[str, ValueLimits(pattern="^([0-9a-f]{7,64})?$")] = ""
    """Hex digest of the commit."""
    branch: Annotated[str, ValueLimits(max_length=250)] = ""
    author: Annotated[str, ValueLimits(max_length=200)] = ""
    """Name of the author."""
    is_dirty: bool = False
    """Whether files of the checkout differ from the commit."""

    @property
    def short(self) -> str:
        """The first digits of the commit, ``1f0c2d9a41b2``; with ``+`` for a dirty checkout."""
        return self.sha[:_SHORT] + ("+" if self.sha and self.is_dirty else "")

    def __str__(self) -> str:
        """Return ``1f0c2d9a41b2 on main by Ann``; ``..., with local changes`` if it is dirty."""
        parts = [self.short]
        parts += [f"on {self.branch}"] if self.branch else []
        parts += [f"by {self.author}"] if self.author else []
        text = " ".join(part for part in parts if part)
        return f"{text}, with local changes" if self.sha and self.is_dirty else text

    def __bool__(self) -> bool:
        """Return whether any field is known."""
        return bool(self.sha or self.branch or self.author)


def completed(commit: Commit, ci: Commit) -> Commit:
    """Return the commit of a checkout, completed by the variables of the CI.

    A detached HEAD has no branch, but the CI knows it. Variables of another commit are ignored.
    """
    if commit.sha and ci.sha and commit.sha != ci.sha:
        return commit
    return Commit(
        sha=commit.sha or ci.sha,
        branch=ci.branch or commit.branch,
        author=commit.author or ci.author,
        is_dirty=commit.is_dirty,
    )


_BRANCH_BREAKS = frozenset(" ~^:?*[\\")


def url_fault(url: str) -> str:
    """Return why a repository's URL is not allowed; empty if it is allowed.

    The URL is stored, displayed and part of error messages, so that it must not contain a
    secret.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        return "is no address"
    if parts.password or (parts.username and parts.scheme in ("http", "https")):
        return "must not hold a name or a token: let git's credential helper or an SSH key answer"
    return ""


def branch_fault(branch: str) -> str:
    """Return why a name of a branch is not allowed; empty if it is allowed."""
    odd = branch.startswith("-") or not branch.isprintable() or _BRANCH_BREAKS & set(branch)
    return f"{branch!r} cannot be the name of a branch" if odd else ""
