"""Connections over the standard input and output of a program, as OpenSSH's ProxyCommand."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Sequence

from orchestrator.domain.machine import ConfigError, Extent, UnreachableError

END_S = 2.0
"""Maximum seconds for the program to end when it is asked to."""
MESSAGE_BYTES = 2000
"""Maximum bytes that are kept of the end of its messages."""


class ProxySocket(socket.socket):
    """A socket whose other end is a program's standard input and output."""

    def __init__(self, command: Sequence[str]) -> None:
        """Start the program.

        Args:
            command: Program and arguments.

        Raises:
            UnreachableError: The program is not on PATH.
        """
        program = shutil.which(command[0])
        if program is None:
            raise UnreachableError(_missing(command[0]))
        self._ending = threading.Lock()
        self._stderr_text = ""
        ours, theirs = socket.socketpair()
        super().__init__(fileno=ours.detach())
        self._messages = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `close`
        try:
            self._process = subprocess.Popen(
                [program, *command[1:]],
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=self._messages,
                start_new_session=True,
            )
        except BaseException:
            super().close()
            self._messages.close()
            raise
        finally:
            theirs.close()

    def close(self) -> None:
        """Close the socket and end the program with all that it started. Any thread may call it."""
        with self._ending:
            super().close()
            if self._messages.closed:
                return
            self._end()
            self._stderr_text = self._read_messages()
            self._messages.close()

    def messages(self) -> str:
        """Return the end of the program's standard error so far, on one line."""
        with self._ending:
            return self._stderr_text if self._messages.closed else self._read_messages()

    def _end(self) -> None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self._process.pid, number)
                self._process.wait(END_S)
            except ProcessLookupError:
                self._process.wait()
            except subprocess.TimeoutExpired:
                continue
            return

    def _read_messages(self) -> str:
        size = os.fstat(self._messages.fileno()).st_size
        found = os.pread(self._messages.fileno(), MESSAGE_BYTES, max(0, size - MESSAGE_BYTES))
        return " ".join(found.decode(errors="replace").split())


def require_programs(*programs: str) -> None:
    """Raise ConfigError for a program that is not on PATH."""
    for program in programs:
        if shutil.which(program) is None:
            raise ConfigError(_missing(program), extent=Extent.PROJECT)


def _missing(program: str) -> str:
    return (
        f"{program} is not on the PATH of the controller, and connections to the machine go "
        "through it; install it there (docs/how-to/clouds.md)"
    )
