"""The revisions of a repository between two of them, and a wheel of each."""

from __future__ import annotations

from pathlib import Path

from orchestrator.adapters.files.pip_commands import run
from orchestrator.adapters.files.subject import build_revision
from orchestrator.application.ports.wheels import Revision, SubjectWheel, WheelsError
from orchestrator.domain.matrix import GitSource

_SEPARATOR = "\x1f"


class GitRevisions:
    """Implements `orchestrator.application.ports.wheels.Revisions` in an empty folder."""

    def __init__(self, url: str, folder: Path) -> None:
        """Clone the repository. Raises WheelsError."""
        self._folder = folder
        self._clone = folder / "clone"
        words = ("git", "clone", "--quiet", "--", url, str(self._clone))
        run(words, what=f"git clone {url}")
        self._url = url
        self._built: dict[str, SubjectWheel] = {}

    def between(self, good: str, bad: str) -> tuple[Revision, ...]:
        """See the port."""
        first, last = self._commit(good), self._commit(bad)
        if first == last:
            raise WheelsError(f"{good} and {bad} are the same revision, {first[:12]}")
        git = ("git", "-C", str(self._clone))
        base = run((*git, "merge-base", first, last), what="git merge-base").strip()
        if base != first:
            raise WheelsError(
                f"{good} is not among the ancestors of {bad}: name another with --good"
            )
        words = ("log", "--reverse", "--first-parent", f"--format=%H{_SEPARATOR}%s")
        said = run((*git, *words, f"{first}..{last}"), what="git log")
        rows = (line.split(_SEPARATOR, 1) for line in said.splitlines() if _SEPARATOR in line)
        found = tuple(Revision(commit, title) for commit, title in rows)
        return (Revision(first, self._title(first)), *found)

    def wheel(self, commit: str) -> SubjectWheel:
        """See the port."""
        if commit not in self._built:
            into = self._folder / commit
            into.mkdir()
            source = GitSource(url=str(self._clone), rev=commit)
            self._built[commit] = build_revision(source, into)
        return self._built[commit]

    def _title(self, commit: str) -> str:
        git = ("git", "-C", str(self._clone))
        return run((*git, "show", "-s", "--format=%s", commit), what="git show").strip()

    def _commit(self, revision: str) -> str:
        if revision.startswith("-"):
            raise WheelsError(f"{revision!r} is no revision")
        git = ("git", "-C", str(self._clone), "rev-parse", "--verify", "--quiet")
        for name in (f"origin/{revision}", revision):
            try:
                return run((*git, f"{name}^{{commit}}"), what="git rev-parse").strip()
            except WheelsError:
                continue
        raise WheelsError(f"{self._url} has no commit, tag or branch {revision!r}")
