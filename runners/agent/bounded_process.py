"""Run a helper program with a time-out and a limit on its output."""

from __future__ import annotations

import os
import select
import subprocess
import time
from pathlib import Path
from typing import IO, Callable, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from . import processes

_LOOK_S = 0.2
_PIECE = 65_536
_KEPT = 4 * 1024 * 1024

Account = Optional[Tuple[int, int, Tuple[int, ...]]]
"""User id, group id and supplementary groups; None is the agent's own user."""


class ProgramOutput(NamedTuple):
    """Exit code and output of a helper program."""

    exit_code: int
    output: bytes
    timed_out: bool

    @property
    def ok(self) -> bool:
        """Whether the process exited with code 0."""
        return self.exit_code == 0 and not self.timed_out

    @property
    def text(self) -> str:
        """The complete output as text."""
        return self.output.decode("utf-8", "replace")


def nothing(_: bytes = b"") -> None:
    """Do nothing (the usual ``tick`` and ``sink``)."""


def spawn(
    argv: Sequence[str],
    *,
    stdout: Union[int, IO[bytes]],
    env: Mapping[str, str],
    cwd: Optional[Path] = None,
    account: Account = None,
) -> subprocess.Popen[bytes]:
    """Start a program as leader of a new session, stderr joined with stdout.

    Raises:
        OSError: it cannot be started.
    """
    if account is None:
        child = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.STDOUT,
            env=dict(env), cwd=cwd, start_new_session=True,
        )  # fmt: skip
    else:
        uid, gid, groups = account
        child = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.STDOUT,
            env=dict(env), cwd=cwd, start_new_session=True,
            user=uid, group=gid, extra_groups=list(groups),
        )  # fmt: skip
    processes.keep_for_caller(child.pid)
    return child


def run(
    argv: Sequence[str],
    *,
    timeout_s: float,
    env: Optional[Mapping[str, str]] = None,
    cwd: Optional[Path] = None,
    account: Account = None,
    tick: Callable[[], None] = nothing,
    sink: Callable[[bytes], None] = nothing,
) -> ProgramOutput:
    """Run a program to its end.

    Args:
        argv: Program and arguments.
        timeout_s: After this many seconds it is killed, with all that it started.
        env: Its environment; the agent's own if None.
        cwd: Its working directory.
        account: The user it runs as.
        tick: Called five times a second; an exception from it ends the program.
        sink: Receives the output in pieces.

    Returns:
        The answer; a program that cannot be started answers with exit code 127.
    """
    try:
        child = spawn(
            argv,
            stdout=subprocess.PIPE,
            env=os.environ if env is None else env,
            cwd=cwd,
            account=account,
        )
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        return ProgramOutput(127, f"{argv[0]} cannot be started: {error}".encode(), timed_out=False)
    deadline = time.monotonic() + timeout_s
    kept = bytearray()
    try:
        while _listen(child, kept, sink) and time.monotonic() < deadline:
            tick()
        timed_out = child.poll() is None and time.monotonic() >= deadline
    finally:
        _finish(child)
    stuck = child.returncode is None
    return ProgramOutput(
        -1 if stuck else child.returncode, bytes(kept), timed_out=timed_out or stuck
    )


def _listen(child: subprocess.Popen[bytes], kept: bytearray, sink: Callable[[bytes], None]) -> bool:
    """Read the available output; return whether more may follow."""
    assert child.stdout is not None
    if not select.select([child.stdout], [], [], _LOOK_S)[0]:
        return child.poll() is None
    piece = os.read(child.stdout.fileno(), _PIECE)
    kept += piece
    del kept[:-_KEPT]
    if piece:
        sink(piece)
        return True
    try:
        child.wait(timeout=_LOOK_S)
    except subprocess.TimeoutExpired:
        return True
    return False


def _finish(child: subprocess.Popen[bytes]) -> None:
    leader = child.pid

    def left() -> set[int]:
        child.poll()
        return {
            pid
            for pid, stat in processes.table().items()
            if leader in (pid, stat.group, stat.session)
        }

    if child.poll() is None:
        try:
            os.killpg(leader, 9)
        except (ProcessLookupError, PermissionError):
            child.kill()
    processes.kill_all(left)
    try:
        child.wait(timeout=_LOOK_S)
        processes.release(leader)
    except subprocess.TimeoutExpired:
        pass  # stuck in the kernel, as a device tool may be: waiting would not end
    if child.stdout is not None:
        child.stdout.close()
