"""The login on a machine: its work folder, a Python for the agent, and its privileges."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.domain.machine import CommandResult, MachineError, Shell

PROBE_PROGRAM = Path(__file__).with_name("probe_login.py")
OLDEST_PYTHON = (3, 9)
NO_PYTHON = 4
FOUND, FAILED = 83, 84
"""Exit codes of an interpreter: new enough, and new enough but failed."""
MARKER = "SEATRIAL-PYTHON:"
LOOK_TIMEOUT_S = 90.0
NOT_ROOT = "SEATRIAL_NOT_ROOT"
"""Variable with the reason why the agent is not root."""

_CARRIED = (
    *("LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH"),
    *("CUDA_HOME", "CUDA_PATH", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"),
    *("ROCM_PATH", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"),
    *("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_CERT"),
    *("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"),
)
_SUDO = "exec sudo -n -H -- env " + " ".join(
    ['PATH="$PATH"', 'SEATRIAL_LOGIN_HOME="$HOME"', *(f'${{{n}+"{n}=${n}"}}' for n in _CARRIED)]
)
"""Command that repeats, word by word, the variables that jobs inherit: sudo clears the environment,
and ld.so clears variables of sudo itself.
"""


class GroundError(MachineError):
    """The agent cannot work on this machine; the message gives the reason."""


@dataclass(frozen=True, slots=True)
class WorkFolderFacts:
    """Facts about the machine from one probe."""

    base: str
    """Absolute path of the work folder."""
    python: str
    sudo: bool = False
    """Whether commands run as root by sudo; then the work folder belongs to root."""
    not_root: str = ""
    """Why the agent is not root; empty if it is, or if that was not probed."""

    def command(self, script: str) -> str:
        """Return a POSIX shell command that runs `script` as the agent's user."""
        if self.sudo:
            return f"{_SUDO} /bin/sh -c {shlex.quote(script)}"
        if self.not_root:
            return f"export {NOT_ROOT}={shlex.quote(self.not_root)}; {script}"
        return script


def look(shell: Shell, *, base: str | None, candidates: Sequence[str]) -> WorkFolderFacts:
    """Probe a machine with one command.

    Args:
        shell: Runs commands on it.
        base: The work folder, if it is given; then the agent runs as the login user.
        candidates: Interpreters that may run the agent, in order of preference.

    Raises:
        GroundError: No Python is new enough, or sudo worked before and fails now.
        ShellError: The machine could not be reached.
    """
    done = shell.run(_script(candidates, is_requested=base is None), timeout_s=LOOK_TIMEOUT_S)
    if done.status == NO_PYTHON:
        raise GroundError(
            "the machine has no Python 3.9 or newer for the agent (tried "
            f"{', '.join(candidates)}); install one, or name it in the payload's "
            "python.candidates"
        )
    told = done.stdout.decode(errors="surrogateescape").rpartition(MARKER)[2]
    python, _, said = told.partition("\n")
    if base is not None and done.status == 0:
        return WorkFolderFacts(base=base, python=python)
    return _ground(python, _answer(done, said))


_FIRST = f"""import sys
if sys.version_info < {OLDEST_PYTHON}: sys.exit(1)
try:
    sys.stdout.write("\\n{MARKER}" + sys.argv[1] + "\\n")
    exec(sys.argv[2])
    sys.stdout.flush()
except BaseException:
    import traceback
    traceback.print_exc()
    sys.exit({FAILED})
sys.exit({FOUND})
"""
"""Works in every version of Python; only one that is new enough runs the program in it."""


def _script(candidates: Sequence[str], *, is_requested: bool) -> str:
    """Return a script that starts each candidate once, up to the first that is new enough."""
    program = PROBE_PROGRAM.read_text(encoding="utf-8") if is_requested else ""
    return (
        f"for name in {' '.join(map(shlex.quote, candidates))}; do "
        'python=$(command -v "$name") || continue; '
        f'"$python" -E -s -S -c {shlex.quote(_FIRST)} "$python" {shlex.quote(program)} </dev/null; '
        f"case $? in {FOUND}) exit 0;; {FAILED}) exit 1;; esac; done; exit {NO_PYTHON}"
    )


def _answer(done: CommandResult, output: str) -> dict[str, object]:
    try:
        found = json.loads(output)
    except ValueError:
        found = None
    if done.status != 0 or not isinstance(found, dict):
        heard = done.stderr.decode(errors="replace").strip()[-2000:] or output[-500:]
        raise GroundError(
            "the machine does not say where the agent can work (exit code "
            f"{done.status}): {heard or 'no output'}"
        )
    return found


def _ground(python: str, answer: dict[str, object]) -> WorkFolderFacts:
    if answer["fault"] is not None:
        raise GroundError(str(answer["fault"]))
    return WorkFolderFacts(
        base=str(answer["base"]),
        python=python,
        sudo=answer["sudo"] is True,
        not_root=str(answer["reason"]),
    )
