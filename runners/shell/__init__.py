"""How commands and bytes reach a machine."""

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
from runners.shell.account import account_of
from runners.shell.local import LocalShell

__all__ = ["open_shell"]


def no_private_key(lease: str) -> str | None:
    """Nobody keeps keys of leases here."""
    return None


def open_shell(
    endpoint: Endpoint,
    *,
    keys_dir: Path,
    private_key: Callable[[str], str | None] = no_private_key,
    connect_timeout_s: float = 15.0,
    local_umask: int = -1,
) -> Shell:
    """A shell for a machine. Nothing is connected before the first command.

    Args:
        endpoint: How the machine is reached.
        keys_dir: The only folder that private keys are taken from.
        private_key: Answers with the text of a lease's private key (ed25519, OpenSSH's format),
            None if there is none. Asked at every new connection of a reach that names a lease;
            the text stays in memory.
        connect_timeout_s: For connecting, verifying and signing in together.
        local_umask: What commands on this computer begin with; -1: what this process has.

    Raises:
        AuthenticationError: The reach's key file is not a bare file name.
        AccountError: This computer's account cannot be had.
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
    from runners.shell.ssh import SshShell  # noqa: PLC0415
    from runners.shell.user_key import KeyFile, LeaseKey  # noqa: PLC0415

    key = (
        LeaseKey(endpoint.lease, private_key)
        if endpoint.lease
        else KeyFile(_key_path(endpoint, keys_dir))
    )
    return SshShell(endpoint, key=key, connect_timeout_s=connect_timeout_s)


def _key_path(endpoint: SshEndpoint, keys_dir: Path) -> Path:
    name = endpoint.key_file
    if not name or name in {".", ".."} or Path(name).name != name:
        raise AuthenticationError(
            f"key_file {name!r} of {endpoint.address} is not a file name; put the key into "
            f"{keys_dir} and give its name alone"
        )
    return keys_dir / name
