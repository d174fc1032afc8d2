"""Subjects that are resolved when they are needed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from orchestrator.adapters.files.subject import build_revision
from orchestrator.application.ports.subjects import SubjectGoneError, SubjectUnreachableError
from orchestrator.application.ports.wheels import SubjectWheel, WheelsError
from orchestrator.domain.matrix import GitSource

_TIMEOUT_S = 120.0
_NO_SUCH_REF = 2
_PACKAGE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_FOUND = re.compile(r"^Available versions: (?P<newest>[^,\s]+)", re.MULTILINE)
_COMMIT = re.compile(r"^(?P<commit>[0-9a-f]{40}|[0-9a-f]{64})\t", re.MULTILINE)


class GitAndPipSubjects:
    """Implements the Subjects."""

    def newest(self, package: str, *, prereleases: bool) -> str:
        """See the port."""
        if not _PACKAGE.fullmatch(package):
            raise SubjectGoneError(f"{package!r} is no name of a package")
        pip = (sys.executable, "-m", "pip", "index", "versions", "--no-input", "--no-color")
        words = ("--disable-pip-version-check", *(("--pre",) if prereleases else ()), "--", package)
        done = _run((*pip, *words), what=f"pip's index of {package}")
        found = _FOUND.search(done.stdout)
        if done.returncode == 0 and found:
            return found["newest"]
        if "No matching distribution" in done.stderr and "Retrying" not in done.stderr:
            kind = "version" if prereleases else "version that is no pre-release"
            raise SubjectGoneError(f"pip's index has no {kind} of {package}")
        raise SubjectUnreachableError(f"pip's index did not answer for {package}: {_said(done)}")

    def head(self, url: str, branch: str) -> str:
        """See the port."""
        ref = f"refs/heads/{branch}"
        git = ("git", "ls-remote", "--exit-code", "--", url, ref)
        done = _run(("env", "GIT_TERMINAL_PROMPT=0", *git), what=f"git ls-remote {url}")
        if done.returncode == _NO_SUCH_REF:
            raise SubjectGoneError(f"{url} has no branch {branch!r} (any more)")
        found = _COMMIT.search(done.stdout)
        if done.returncode or not found:
            raise SubjectUnreachableError(f"{url} did not answer: {_said(done)}")
        return found["commit"]

    def build(self, url: str, commit: str, into: Path) -> SubjectWheel:
        """See the port."""
        try:
            return build_revision(GitSource(url=url, rev=commit), into)
        except WheelsError as error:
            # A repository that is away now answered a moment ago: whatever it is, one more try
            # is cheap, and what stays is told.
            raise SubjectUnreachableError(str(error)) from error


def _run(argv: tuple[str, ...], *, what: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
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


def _said(done: subprocess.CompletedProcess[str]) -> str:
    lines = [line.strip() for line in (done.stderr + done.stdout).splitlines() if line.strip()]
    return "; ".join(lines[-2:]) or f"it said nothing and ended with {done.returncode}"
