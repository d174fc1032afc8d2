"""Running pip and git for their answers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from orchestrator.application.ports.wheels import WheelsError

TIMEOUT_S = 1800.0
_QUIET = ("--no-input", "--disable-pip-version-check", "--progress-bar", "off")
_LAST_LINES = 6


def pip(verb: str, *words: str, behind: Sequence[str] = (), cwd: Path | None = None) -> None:
    """Run the controller's own pip, with its own configuration. Raises WheelsError.

    `behind` are words that start it.
    """
    command = (*behind, sys.executable, "-m", "pip", verb, *_QUIET, *words)
    run(command, what=f"pip {verb}", cwd=cwd)


def run(argv: Sequence[str], *, what: str, cwd: Path | None = None) -> str:
    """Run a program to its end and return what it printed. Raises WheelsError with its words."""
    try:
        done = subprocess.run(
            argv,
            cwd=cwd,
            capture_output=True,
            check=False,
            timeout=TIMEOUT_S,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        raise WheelsError(f"{what} did not end within {TIMEOUT_S:.0f} s") from None
    except OSError as error:
        raise WheelsError(f"{what} cannot be run: {error}") from error
    if done.returncode:
        raise WheelsError(f"{what} failed: {_said(done.stdout + done.stderr)}")
    return done.stdout.decode(errors="replace")


def _said(output: bytes) -> str:
    lines = [line.strip() for line in output.decode(errors="replace").splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR")]
    return "; ".join((errors or lines or ["it said nothing"])[-_LAST_LINES:])
