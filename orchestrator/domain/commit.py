"""The commit that a run tests, as its repository or its CI names it."""

from __future__ import annotations

from dataclasses import dataclass

_SHORT = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """What of a repository a run tests; what is not known is empty."""

    sha: str = ""
    """Its name in hex."""
    branch: str = ""
    author: str = ""
    """Who wrote it, by name."""
    is_dirty: bool = False
    """Files of the checkout were changed since."""

    @property
    def short(self) -> str:
        """``1f0c2d9a41b2``, with ``+`` where files were changed since."""
        return self.sha[:_SHORT] + ("+" if self.sha and self.is_dirty else "")

    def __str__(self) -> str:
        """``1f0c2d9a41b2 on main by Ann``."""
        parts = [self.short]
        parts += [f"on {self.branch}"] if self.branch else []
        parts += [f"by {self.author}"] if self.author else []
        return " ".join(part for part in parts if part)

    def __bool__(self) -> bool:
        """Whether anything is known."""
        return bool(self.sha or self.branch or self.author)


def completed(found: Commit, ci: Commit) -> Commit:
    """What a checkout is, with what the CI that made it knows: a detached HEAD has no branch.

    The CI's words about another commit than the checkout's do not count.
    """
    if found.sha and ci.sha and found.sha != ci.sha:
        return found
    return Commit(
        sha=found.sha or ci.sha,
        branch=ci.branch or found.branch,
        author=found.author or ci.author,
        is_dirty=found.is_dirty,
    )
