"""Workspaces by how their machine is reached: one connection each, kept between looks."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from orchestrator.application.ports.workspaces import Workspace as WorkspacePort
from orchestrator.domain.machine import LocalReach, Login, Reach, UnreachableError
from runners.shell import open_shell
from runners.workspace import Workspace


class WorkspacePool:
    """Hands out workspaces; `disconnect` of one drops its connection."""

    def __init__(
        self,
        *,
        keys: Path,
        local_base: Path,
        login: Callable[[str], Login | None],
        local_umask: int = -1,
    ) -> None:
        """`local_umask` is what jobs on this computer begin with; -1: what this process has."""
        self._keys = keys
        self._local_umask = local_umask
        self._login = login
        self._local_base = local_base
        self._open: dict[Reach, WorkspacePort] = {}
        self._lock = threading.Lock()

    def open(self, reach: Reach) -> WorkspacePort:
        """The workspace of a machine; nothing is connected before its first call.

        Raises ShellError where it cannot be reached from here at all.
        """
        with self._lock:
            if reach not in self._open:
                self._open[reach] = self._made(reach)
            return self._open[reach]

    def _made(self, reach: Reach) -> WorkspacePort:
        shell = open_shell(
            reach,
            keys_dir=self._keys,
            private_key=self._private_key,
            local_umask=self._local_umask,
        )
        if isinstance(reach, LocalReach):
            if reach.hostname != socket.gethostname():
                here = socket.gethostname()
                raise UnreachableError(f"the machine is the computer {reach.hostname}, not {here}")
            base = str(self._local_base)
            return Workspace(shell, base=base, candidates=(sys.executable,))
        return Workspace(shell)

    def _private_key(self, lease_id: str) -> str | None:
        login = self._login(lease_id)
        return login.private_key if login else None
