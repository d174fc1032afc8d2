"""Ways into the lab's machines for tests: keys, user data, strict connections."""

from __future__ import annotations

import base64
import textwrap
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import paramiko

from tests.ssh_hosts import make_key

WAIT_S = 120.0


@dataclass(frozen=True, slots=True)
class Keys:
    """A host key to inject and a user key to let in, made for one test."""

    host: Path
    user: Path

    @property
    def host_key(self) -> str:
        """The public half, as known_hosts has it."""
        return public(self.host)

    @property
    def user_key(self) -> str:
        """The public half, as authorized_keys has it."""
        return public(self.user)

    def cloud_config(self, more: str = "") -> str:
        """User data that gives a machine the host key and lets the user key in."""
        private = textwrap.indent(self.host.read_text(), "    ")
        return (
            "#cloud-config\nssh_deletekeys: true\nssh_genkeytypes: [ed25519]\nusers: [default]\n"
            f"ssh_keys:\n  ed25519_private: |\n{private}  ed25519_public: {self.host_key}\n"
            f'ssh_authorized_keys: ["{self.user_key}"]\n{more}'
        )


def make_keys(folder: Path) -> Keys:
    return Keys(make_key(folder / "host"), make_key(folder / "user"))


def public(key: Path) -> str:
    return " ".join(key.with_name(key.name + ".pub").read_text().split()[:2])


def connect(
    address: str, keys: Keys, *, host_key: str | None = None, user: str = "ubuntu",
    timeout_s: float = 5.0,
) -> paramiko.SSHClient:  # fmt: skip
    """Sign in with the host key pinned; whoever connects closes."""
    kind, blob = (host_key or keys.host_key).split()
    client = paramiko.SSHClient()
    client.set_missing_host_key_policy(paramiko.RejectPolicy())
    known = paramiko.Ed25519Key(data=base64.b64decode(blob))
    client.get_host_keys().add(address, kind, known)
    client.connect(
        address, username=user, key_filename=str(keys.user), timeout=timeout_s,
        banner_timeout=timeout_s, auth_timeout=timeout_s, allow_agent=False, look_for_keys=False,
    )  # fmt: skip
    return client


def run(client: paramiko.SSHClient, command: str, timeout_s: float = 60.0) -> str:
    """Run a command and return its output; an exit code other than 0 fails the test."""
    _, output, errors = client.exec_command(command, timeout=timeout_s)
    text = output.read().decode()
    code = output.channel.recv_exit_status()
    assert code == 0, f"{command}: exit code {code}\n{text}\n{errors.read().decode()}"
    return text


def wait_until(true: Callable[[], bool], what: str, limit_s: float = WAIT_S) -> float:
    """Wait for it, and return how long that took."""
    started = time.monotonic()
    while not true():
        waited = time.monotonic() - started
        assert waited < limit_s, f"not within {limit_s} s: {what}"
        time.sleep(0.05)
    return time.monotonic() - started
