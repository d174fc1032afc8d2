"""Shells: commands and bytes for a machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from orchestrator.domain.machine import (
    AuthenticationError,
    Endpoint,
    LocalEndpoint,
    Shell,
    ShellError,
    SshEndpoint,
)
from orchestrator.domain.matrix import Host
from runners.shell.local import LocalShell
from runners.shell.local_account import account_of

__all__ = ["open_shell"]


def no_private_key(lease: str) -> str | None:
    """Return None: this function has no keys of leases."""
    return None


def open_shell(
    endpoint: Endpoint,
    *,
    keys_dir: Path,
    private_key: Callable[[str], str | None] = no_private_key,
    connect_timeout_s: float = 15.0,
    local_umask: int = -1,
) -> Shell:
    """Return a shell for a machine, which connects at its first command.

    Args:
        endpoint: The machine's endpoint.
        keys_dir: The only folder from which private keys are read.
        private_key: Returns the text of a lease's private key (ed25519, OpenSSH's format), or None
            without one. It is called at every new connection to an endpoint with a lease; the text
            stays in memory.
        connect_timeout_s: For connecting, verifying and signing in together.
        local_umask: The umask of commands on this computer; -1 for the umask of this process.

    Raises:
        AuthenticationError: The endpoint's key file is not a bare file name.
        AccountError: This computer's account is unusable.
        ShellError: The machine exists in memory only.
    """
    match endpoint:
        case LocalEndpoint():
            account = account_of(endpoint.account) if endpoint.account else None
            return LocalShell(account, umask=local_umask)
        case SshEndpoint():
            return _ssh_shell(endpoint, keys_dir, private_key, connect_timeout_s)
    raise ShellError(f"machine {endpoint.machine_id} exists in memory only and has no shell")


def _ssh_shell(
    endpoint: SshEndpoint,
    keys_dir: Path,
    private_key: Callable[[str], str | None],
    connect_timeout_s: float,
) -> Shell:
    # Slow to import, and not always needed.
    from runners.shell.connection import KeyFile, LeaseKey  # noqa: PLC0415
    from runners.shell.ssh import SshShell  # noqa: PLC0415

    key = (
        LeaseKey(endpoint.lease, private_key)
        if endpoint.lease
        else KeyFile(_key_path(endpoint, keys_dir))
    )
    bastion = endpoint.bastion
    return SshShell(
        endpoint,
        key=key,
        bastion_key=KeyFile(_key_path(bastion, keys_dir)) if bastion is not None else None,
        connect_timeout_s=connect_timeout_s,
    )


def _key_path(host: SshEndpoint | Host, keys_dir: Path) -> Path:
    name = host.key_file
    if not name or name in {".", ".."} or Path(name).name != name:
        raise AuthenticationError(
            f"key_file {name!r} of {host.address} is not a file name; put the key into "
            f"{keys_dir} and give its name alone"
        )
    return keys_dir / name
