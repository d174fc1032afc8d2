"""The wheel of a matrix's subject: found by its pattern, or built from a git revision."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from packaging.tags import Tag
from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import InvalidVersion

from orchestrator.adapters.files.archive import file_digest
from orchestrator.adapters.files.pip import run
from orchestrator.adapters.files.requirements import WheelFile, read_wheel
from orchestrator.adapters.files.wheels import check_subject
from orchestrator.application.ports.wheels import (
    Revision,
    SubjectWheel,
    WheelsError,
)
from orchestrator.domain.matrix import GitSource, Subject


class FileSubjects:
    """Implements `orchestrator.application.ports.wheels.Subjects`."""

    def prepare(self, subject: Subject, *, base: Path, into: Path) -> SubjectWheel | None:
        """Find the subject's wheel below `base`, or build its revision in `into`."""
        if subject.wheel:
            return _described(_matching(subject.wheel, base), subject, None)
        if subject.git:
            path, commit = _built(subject.git, into)
            return _described(path, subject, commit)
        return None


def build_revision(source: GitSource, into: Path) -> SubjectWheel:
    """Build the wheel of a revision in an empty folder, of any distribution. Raises WheelsError."""
    path, commit = _built(source, into)
    wheel = read_wheel(path)
    return SubjectWheel(path, file_digest(path), wheel.distribution, str(wheel.version), commit)


def _matching(pattern: str, base: Path) -> Path:
    where = Path(pattern)
    if where.is_absolute():
        base, pattern = Path(where.anchor), str(where.relative_to(where.anchor))
    found = sorted(path for path in base.glob(pattern) if path.is_file())
    if len(found) == 1:
        return found[0]
    names = f": {', '.join(path.name for path in found[:5])}" if found else ""
    message = f"{pattern!r} must match one file; it matches {len(found)}{names}"
    if not found:
        folder = Path(pattern).parent
        message += f"; `pip wheel --no-deps -w {folder} .` in the project builds one"
    raise WheelsError(message)


def _built(source: GitSource, into: Path) -> tuple[Path, str]:
    if source.rev.startswith("-"):
        raise WheelsError(f"{source.rev!r} is no revision")
    clone, wheels = into / "source", into / "built"
    run(("git", "clone", "--quiet", "--", source.url, str(clone)), what=f"git clone {source.url}")
    git = ("git", "-C", str(clone))
    commit = _commit(git, source)
    run((*git, "checkout", "--quiet", "--detach", commit), what=f"git checkout {source.rev}")
    when = run((*git, "show", "-s", "--format=%ct", commit), what="git show").strip()
    # The same commit must give the same bytes, so the files in the wheel get the commit's time.
    build = ("env", f"SOURCE_DATE_EPOCH={when}", sys.executable, "-m", "pip", "wheel")
    words = ("--no-deps", "--no-input", "--disable-pip-version-check", "--wheel-dir", str(wheels))
    run((*build, *words, str(clone)), what=f"building a wheel of {source.url} at {commit[:12]}")
    return _matching("*.whl", wheels), commit


def _commit(git: tuple[str, ...], source: GitSource) -> str:
    for revision in (f"origin/{source.rev}", source.rev):
        asked = (*git, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
        try:
            return run(asked, what="git rev-parse").strip()
        except WheelsError:
            continue
    raise WheelsError(f"{source.url} has no commit, tag or branch {source.rev!r}")


def _described(path: Path, subject: Subject, commit: str | None) -> SubjectWheel:
    wheel = read_wheel(path)
    check_subject(wheel, subject)
    _check_file_name(wheel)
    return SubjectWheel(path, file_digest(path), wheel.distribution, str(wheel.version), commit)


def _check_file_name(wheel: WheelFile) -> None:
    """Raise WheelsError if installers would refuse the file by its name."""
    try:
        name, version, _, tags = parse_wheel_filename(wheel.path.name)
    except (InvalidWheelFilename, InvalidVersion):
        problem = "its file name is not that of a wheel"
    else:
        problem = ""
        if (name, version) != (wheel.name, wheel.version):
            own = f"{wheel.distribution} {wheel.version}"
            problem = f"its file name says {name} {version}, and its METADATA {own}"
        elif tags != frozenset(wheel.tags):
            problem = (
                f"its file name has {_listed(tags)}, and its WHEEL file has {_listed(wheel.tags)}"
            )
    if problem:
        raise WheelsError(
            f"{wheel.path.name} cannot be installed: {problem}. Fix: build it again, or name it"
            f" {wheel.filename}"
        )


def _listed(tags: Iterable[Tag]) -> str:
    names = sorted({str(tag) for tag in tags})
    return f"the {'tag' if len(names) == 1 else 'tags'} {', '.join(names)}"


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
        """Return the revisions from the good to the bad one, inclusive, along first parents.

        Raises WheelsError.
        """
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
        """Build a wheel of a revision. Raises WheelsError."""
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
