"""Workspaces by how their machine is reached: one connection each, kept between looks."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from orchestrator.application.ports.workspaces import Workspace as WorkspacePort
from orchestrator.bootstrap.local_jobs import AS_OURSELVES, LocalJobs
from orchestrator.domain.machine import (
    ConfigError,
    Endpoint,
    LocalEndpoint,
    Login,
    Shell,
    UnreachableError,
)
from runners.shell import open_shell
from runners.shell.account import account_of
from runners.workspace import Workspace


class EndingWorkspace(Workspace):
    """One in which what was begun is brought home and ended, and nothing is begun."""

    def __init__(self, shell: Shell, refusal: str, *, base: str, candidates: Sequence[str]) -> None:
        """`refusal` says why, to a person."""
        super().__init__(shell, base=base, candidates=candidates)
        self._refusal = refusal

    def probe(self, candidates: Sequence[str] = ()) -> dict[str, object]:
        """Refuse it: it runs the interpreters that a payload names. Raises ConfigError."""
        raise ConfigError(self._refusal)

    def start(
        self, attempt: str, plan: Mapping[str, object], secrets: Mapping[str, str] | None = None
    ) -> None:
        """Refuse it. Raises ConfigError."""
        raise ConfigError(self._refusal)


class WorkspacePool:
    """Hands out workspaces; `disconnect` of one drops its connection."""

    def __init__(
        self,
        *,
        keys: Path,
        local_base: Path,
        login: Callable[[str], Login | None],
        local: LocalJobs = AS_OURSELVES,
    ) -> None:
        """`local_base` is the work folder of jobs that run as the controller's own user."""
        self._keys = keys
        self._local = local
        self._login = login
        self._local_base = local_base
        self._open: dict[Endpoint, WorkspacePort] = {}
        self._lock = threading.Lock()

    def open(self, endpoint: Endpoint) -> WorkspacePort:
        """The workspace of a machine; nothing is connected before its first call.

        Raises ShellError where it cannot be reached from here at all.
        """
        with self._lock:
            if endpoint not in self._open:
                self._open[endpoint] = self._made(endpoint)
            return self._open[endpoint]

    def _made(self, endpoint: Endpoint) -> WorkspacePort:
        shell = open_shell(
            endpoint,
            keys_dir=self._keys,
            private_key=self._private_key,
            local_umask=self._local.umask,
        )
        if isinstance(endpoint, LocalEndpoint):
            return self._here(endpoint, shell)
        return Workspace(shell)

    def _here(self, endpoint: LocalEndpoint, shell: Shell) -> WorkspacePort:
        """What was begun as one user is gone on with as that one, whatever is permitted now."""
        if endpoint.hostname != socket.gethostname():
            here = socket.gethostname()
            raise UnreachableError(f"the machine is the computer {endpoint.hostname}, not {here}")
        base = account_of(endpoint.account).work if endpoint.account else str(self._local_base)
        refusal = self._local.refusal_as(endpoint.account)
        if refusal:
            return EndingWorkspace(shell, refusal, base=base, candidates=(sys.executable,))
        return Workspace(shell, base=base, candidates=(sys.executable,))

    def _private_key(self, lease_id: str) -> str | None:
        login = self._login(lease_id)
        return login.private_key if login else None
