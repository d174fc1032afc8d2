"""Keys of leases, which live in memory only, and pinned host keys that are none."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.domain.machine import AuthenticationError, HostKeyError, SshEndpoint
from runners.shell import open_shell
from tests.ssh_hosts import SshHost, make_key

pytestmark = pytest.mark.needs_sshd


def leased(host: SshHost) -> SshEndpoint:
    return replace(host.endpoint(), key_file="", lease="l-7")


def test_a_leases_key_opens_its_machine(ssh_host: SshHost, tmp_path: Path) -> None:
    text = (ssh_host.keys_dir / ssh_host.endpoint().key_file).read_text()
    asked: list[str] = []

    def private_key(lease: str) -> str:
        asked.append(lease)
        return text

    empty = tmp_path / "keys"
    shell = open_shell(leased(ssh_host), keys_dir=empty, private_key=private_key)
    assert asked == [], "not before it is needed"
    assert shell.run("echo in").stdout == b"in\n"
    shell.run("true")
    assert asked == ["l-7"], "once for a connection"
    shell.close()
    shell.run("true")
    assert asked == ["l-7", "l-7"], "and never kept"
    shell.close()
    assert not empty.exists()


@pytest.mark.parametrize("private_key", [{}, {"private_key": lambda _: None}])
def test_a_lease_without_a_key_is_named(ssh_host: SshHost, private_key) -> None:
    shell = open_shell(leased(ssh_host), keys_dir=ssh_host.keys_dir, **private_key)
    with pytest.raises(AuthenticationError, match=r"nobody has the private key of lease l-7"):
        shell.run("true")


def damaged(text: str) -> str:
    lines = text.splitlines()
    return "\n".join([lines[0], *lines[2:]])


@pytest.mark.parametrize("spoil", [lambda _: "", lambda _: "hidden words", damaged])
def test_a_key_that_cannot_be_read_is_not_repeated(
    ssh_host: SshHost, spoil: Callable[[str], str]
) -> None:
    text = spoil((ssh_host.keys_dir / ssh_host.endpoint().key_file).read_text())
    shell = open_shell(leased(ssh_host), keys_dir=ssh_host.keys_dir, private_key=lambda _: text)
    with pytest.raises(AuthenticationError, match="lease l-7 is no ed25519 key") as caught:
        shell.run("true")
    assert not [line for line in text.splitlines() if line in str(caught.value)]
    assert caught.value.__cause__ is None


def test_another_leases_key_is_refused_by_the_machine(ssh_host: SshHost, tmp_path: Path) -> None:
    text = make_key(tmp_path / "other").read_text()
    shell = open_shell(leased(ssh_host), keys_dir=tmp_path, private_key=lambda _: text)
    with pytest.raises(AuthenticationError, match=r"does not accept the key of lease l-7.*`image"):
        shell.run("true")


def short(key: str) -> str:
    kind, blob = key.split()
    return f"{kind} {base64.b64encode(base64.b64decode(blob)[:-4]).decode()}"


def long(key: str) -> str:
    kind, blob = key.split()
    return f"{kind} {base64.b64encode(base64.b64decode(blob) + b'more').decode()}"


def test_a_host_key_that_is_none_is_refused_before_connecting(
    new_host: Callable[..., SshHost],
) -> None:
    host = new_host()
    connections, key = host.log.count("Connection from"), host.host_key()
    nonsense = ["", "ssh-ed25519", "ssh-ed25519 not-base64!", "ssh-ed25519 schlüssel"]
    nonsense += ["ssh-dss AAAAB3NzaC1kc3M=", key.replace("ssh-ed25519", "ssh-rsa")]
    for none in (*nonsense, short(key), long(key)):
        with pytest.raises(HostKeyError):
            open_shell(replace(host.endpoint(), host_key=none), keys_dir=host.keys_dir).run("true")
    assert host.log.count("Connection from") == connections
    open_shell(host.endpoint(), keys_dir=host.keys_dir).run("true")
    assert host.log.count("Connection from") == connections + 1
