"""Resolves subjects when they are needed."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from shlex import join
from urllib.request import getproxies

from orchestrator.adapters.files.requirements import read_wheel
from orchestrator.adapters.git_repositories import Repositories, bounded
from orchestrator.adapters.guarded_proxy import guarded_proxy
from orchestrator.application.ports.wheels import (
    SubjectGoneError,
    SubjectUnreachableError,
    SubjectWheel,
    WheelsError,
)
from orchestrator.domain.machine import MachineError, Shell

_TIMEOUT_S = 120.0
_BUILD_TIMEOUT_S = 1800.0
_OUTPUT_BYTES = 16 * 1024 * 1024
_WHEEL_LIMIT_BYTES = 1024**3
_NO_SUCH_REF = 2
_PACKAGE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_FOUND = re.compile(r"^Available versions: (?P<newest>[^,\s]+)", re.MULTILINE)
_COMMIT = re.compile(r"^(?P<commit>[0-9a-f]{40}|[0-9a-f]{64})\t", re.MULTILINE)
_NOT_BUILT = (
    "a subject from git is built by running its own code, and others can reach this controller:"
    " build its wheel where you trust the repository and give the matrix that (`wheel:`), or let"
    " the controller build it as another account, with `serve --local-jobs-as ACCOUNT`"
)


@dataclass(frozen=True, slots=True)
class BuildFolder:
    """The folder, account and interpreters with which git and pip run for subjects."""

    shell: Shell
    """Runs commands on the controller's computer."""
    folder: str
    """Their working folder; created at first use."""
    account: str = ""
    """Account that runs their commands; empty for the controller's user."""
    pythons: tuple[str, ...] = (sys.executable, "python3")
    """Interpreters that may build; the first one with pip is used."""


@dataclass(frozen=True, slots=True)
class _CommandOutput:
    status: int
    output: str
    errors: str

    @property
    def last(self) -> str:
        """Return the last error lines of the output, for a person."""
        lines = [line.strip() for line in (self.errors + self.output).splitlines() if line.strip()]
        told = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR")]
        return "; ".join((told or lines)[-3:]) or f"it said nothing and ended with {self.status}"


@dataclass(frozen=True, slots=True)
class GitAndPipSubjects:
    """Finds and builds versions of a subject with git and pip (`Subjects`)."""

    room: BuildFolder | None
    """None if builds are not allowed."""
    repositories: Repositories = field(default_factory=Repositories)

    def newest(self, package: str, *, prereleases: bool) -> str:
        """Return the newest version of a package in pip's index.

        Raises SubjectGoneError or SubjectUnreachableError.
        """
        if not _PACKAGE.fullmatch(package):
            raise SubjectGoneError(f"{package!r} is no name of a package")
        pip = (sys.executable, "-m", "pip", "index", "versions", "--no-input", "--no-color")
        words = ("--disable-pip-version-check", *(("--pre",) if prereleases else ()), "--", package)
        done = _run_pip((*pip, *words), what=f"pip's index of {package}")
        found = _FOUND.search(done.output)
        if done.status == 0 and found:
            return found["newest"]
        if "No matching distribution" in done.errors and "Retrying" not in done.errors:
            kind = "version" if prereleases else "version that is no pre-release"
            raise SubjectGoneError(f"pip's index has no {kind} of {package}")
        raise SubjectUnreachableError(f"pip's index did not answer for {package}: {done.last}")

    def refusal(self, url: str) -> str:
        """Return the reason why this controller may not use the repository; empty if it may."""
        return self.repositories.refusal(url) if self.room else _NOT_BUILT

    def head(self, url: str, branch: str) -> str:
        """Return the head commit of a branch.

        Raises SubjectGoneError or SubjectUnreachableError.
        """
        room = self._room(url)
        ref = f"refs/heads/{branch}"
        with self._git(url) as git:
            done = _run(room, (*git, "ls-remote", "--exit-code", "--", url, ref), _TIMEOUT_S)
        if done.status == _NO_SUCH_REF:
            raise SubjectGoneError(f"{url} has no branch {branch!r} (any more)")
        found = _COMMIT.search(done.output)
        if done.status or not found:
            raise SubjectUnreachableError(f"{url} did not answer: {done.last}")
        return found["commit"]

    def build(self, url: str, commit: str, into: Path) -> SubjectWheel:
        """Build a wheel of a commit in an empty folder. May take minutes."""
        room = self._room(url)
        _ask(room, ("mkdir", "-p", room.folder), "making a folder")
        made = _ask(room, ("mktemp", "-d", f"{room.folder}/build-XXXXXX"), "making a folder")
        folder = made.strip()
        try:
            with self._git(url) as git:
                source = _checked_out(room, git, url, commit, folder)
                wheel = _built(room, git, source, commit, folder)
            fetched = _fetch(room, wheel, into)
        finally:
            _run(room, ("rm", "-rf", folder), _TIMEOUT_S)
        whom = f"as the account {room.account}" if room.account else "as its own user"
        built = f"on the controller's computer, {whom}, from {url} at {commit}"
        return replace(_described(fetched, commit), built=built)

    def _room(self, url: str) -> BuildFolder:
        refusal = self.refusal(url)
        if self.room is None or refusal:
            raise SubjectGoneError(refusal)
        return self.room

    @contextmanager
    def _git(self, url: str) -> Iterator[tuple[str, ...]]:
        """Yield git's command prefix for a URL, with a proxy that limits its addresses."""
        outward = getproxies().get("https", "")
        if not self.repositories.is_guarded(url):
            yield self.repositories.git(url)
        elif outward:  # the operator's proxy resolves names and limits what is reachable
            yield self.repositories.git(url, outward)
        else:
            repositories = self.repositories
            with guarded_proxy(repositories.resolve, repositories.look) as proxy:
                yield repositories.git(url, proxy)


def _checked_out(
    room: BuildFolder, git: tuple[str, ...], url: str, commit: str, folder: str
) -> str:
    """Return a work tree of the commit."""
    source = f"{folder}/source"
    clone = (*git, "clone", "--quiet", "--no-recurse-submodules", "--", url, source)
    _ask(room, clone, f"git clone {url}", _BUILD_TIMEOUT_S)
    checkout = (*git, "-C", source, "checkout", "--quiet", "--detach", commit)
    _ask(room, checkout, f"git checkout {commit[:12]}")
    return source


def _built(room: BuildFolder, git: tuple[str, ...], source: str, commit: str, folder: str) -> str:
    """Return the path of the built wheel."""
    asked = (*git, "-C", source, "show", "-s", "--format=%ct", commit)
    when = _ask(room, asked, "git show").strip()
    # The same commit must give the same bytes, so files in the wheel get the commit's time.
    build = ("env", f"SOURCE_DATE_EPOCH={when}", _python(room), "-m", "pip", "wheel")
    wheels = f"{folder}/built"
    words = ("--no-deps", "--no-input", "--disable-pip-version-check", "--wheel-dir", wheels)
    _ask(room, (*build, *words, source), f"building a wheel at {commit[:12]}", _BUILD_TIMEOUT_S)
    found = [name for name in _ask(room, ("ls", wheels), "ls").split() if name.endswith(".whl")]
    if len(found) != 1:
        raise SubjectGoneError(f"{commit[:12]} builds {len(found)} wheels, and one is needed")
    return f"{wheels}/{found[0]}"


def _python(room: BuildFolder) -> str:
    for python in room.pythons:
        if _run(room, (python, "-m", "pip", "--version"), _TIMEOUT_S).status == 0:
            return python
    whom = room.account or "the controller's user"
    raise SubjectGoneError(f"no Python with pip was found for {whom}: install python3 and pip")


def _fetch(room: BuildFolder, wheel: str, into: Path) -> Path:
    into.mkdir(parents=True, exist_ok=True)
    path = into / Path(wheel).name
    try:
        done = room.shell.run(
            join(("cat", wheel)), timeout_s=_TIMEOUT_S, output_limit_bytes=_WHEEL_LIMIT_BYTES
        )
    except MachineError as error:
        raise SubjectGoneError(f"the wheel cannot be fetched: {error}") from error
    path.write_bytes(done.stdout)
    return path


def _described(path: Path, commit: str) -> SubjectWheel:
    try:
        wheel = read_wheel(path)
    except WheelsError as error:
        raise SubjectGoneError(str(error)) from error
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return SubjectWheel(path, digest, wheel.distribution, str(wheel.version), commit)


def _ask(
    room: BuildFolder, words: tuple[str, ...], what: str, timeout_s: float = _TIMEOUT_S
) -> str:
    done = _run(room, words, timeout_s)
    if done.status:
        # The repository answered a moment ago, so a failure may be temporary: another try is
        # cheap, and a lasting failure is reported by it.
        raise SubjectUnreachableError(f"{what} failed: {done.last}")
    return done.output


def _run(room: BuildFolder, words: tuple[str, ...], timeout_s: float) -> _CommandOutput:
    try:
        done = room.shell.run(bounded(words), timeout_s=timeout_s, output_limit_bytes=_OUTPUT_BYTES)
    except MachineError as error:
        raise SubjectUnreachableError(str(error)) from error
    return _CommandOutput(
        done.status, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
    )


def _run_pip(argv: tuple[str, ...], *, what: str) -> _CommandOutput:
    try:
        done = subprocess.run(
            argv,
            capture_output=True,
            check=False,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_S,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        raise SubjectUnreachableError(f"{what} did not end within {_TIMEOUT_S:.0f} s") from None
    except OSError as error:
        raise SubjectGoneError(f"{what} cannot be run: {error}") from error
    return _CommandOutput(done.returncode, done.stdout, done.stderr)
