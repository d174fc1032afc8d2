"""Machines without an address that the controller reaches: bastions and programs in between."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.domain.machine import HostKeyError, SshEndpoint, UnreachableError
from orchestrator.domain.matrix import Host
from runners.shell import open_shell
from runners.shell.proxy_command import ProxySocket
from runners.shell.ssh import SshShell
from tests.ssh_hosts import LOOPBACK, Relay, SshHost, another_key, free_port
from tests.waiting import until

NewHost = Callable[..., SshHost]
MIB = 1024 * 1024
RELAY = """
import os, socket, sys, threading
print("tunnel", *sys.argv[1:], file=sys.stderr, flush=True)
link = socket.create_connection(("127.0.0.1", int(sys.argv[-1])))
def up():
    while data := os.read(0, 65536):
        link.sendall(data)
    link.shutdown(socket.SHUT_WR)
threading.Thread(target=up, daemon=True).start()
while data := link.recv(65536):
    while data:
        data = data[os.write(1, data):]
"""


def as_bastion(host: SshHost, **other: str) -> Host:
    return Host(
        address=LOOPBACK,
        user=host.user,
        key_file=f"{host.name}_key",
        host_key=other.get("host_key", host.host_key()),
        port=host.port,
    )


def opened(endpoint: SshEndpoint, host: SshHost) -> SshShell:
    shell = open_shell(endpoint, keys_dir=host.keys_dir)
    assert isinstance(shell, SshShell)
    return shell


@pytest.fixture
def host(new_host: NewHost) -> SshHost:
    return new_host()


@pytest.fixture
def bastion(new_host: NewHost) -> SshHost:
    return new_host("bastion")


@pytest.fixture
def shell(host: SshHost, bastion: SshHost) -> Iterator[SshShell]:
    made = opened(replace(host.endpoint(), bastion=as_bastion(bastion)), host)
    yield made
    made.close()


# a bastion


def test_commands_run_behind_a_bastion(host: SshHost, bastion: SshHost, shell: SshShell) -> None:
    assert shell.run("echo $((6*7)); exit 3").status == 3
    body = os.urandom(4 * MIB)
    assert shell.run("cat", stdin=[body]).stdout == body
    assert "Accepted publickey" in bastion.log
    assert "session" not in bastion.log.lower().split("accepted publickey")[-1], "no shell there"
    ports = [line for line in host.log.splitlines() if "Accepted publickey" in line]
    assert len(ports) == 1, "one connection serves both commands"


def test_the_bastion_never_sees_the_machines_key(
    host: SshHost, bastion: SshHost, shell: SshShell
) -> None:
    shell.run("true")
    assert bastion.log.count("Accepted publickey") == 1
    assert "Failed publickey" not in bastion.log
    assert "Failed publickey" not in host.log


def test_another_host_key_of_the_bastion_is_no_way(host: SshHost, bastion: SshHost) -> None:
    wrong = as_bastion(bastion, host_key=another_key(bastion.host_key()))
    with pytest.raises(UnreachableError, match=r"the bastion is not reached.*another machine"):
        opened(replace(host.endpoint(), bastion=wrong), host).run("true")
    assert "Accepted" not in bastion.log + host.log


def test_another_host_key_behind_the_bastion_is_refused(host: SshHost, bastion: SshHost) -> None:
    pinned = host.endpoint(host_key=another_key(host.host_key()))
    with pytest.raises(HostKeyError, match="through"):
        opened(replace(pinned, bastion=as_bastion(bastion)), host).run("true")
    assert "Accepted" not in host.log


def test_a_bastion_that_does_not_forward_is_named(host: SshHost, new_host: NewHost) -> None:
    strict = new_host("strict", options=("AllowTcpForwarding no",))
    with pytest.raises(UnreachableError, match="AllowTcpForwarding"):
        opened(replace(host.endpoint(), bastion=as_bastion(strict)), host).run("true")


def test_a_machine_that_is_down_behind_its_bastion(host: SshHost, bastion: SshHost) -> None:
    way = replace(host.endpoint(port=free_port()), bastion=as_bastion(bastion))
    with pytest.raises(UnreachableError, match="does not connect to the machine"):
        opened(way, host).run("true")


def test_a_bastion_that_breaks_the_connection_is_passed_again(
    host: SshHost, bastion: SshHost
) -> None:
    with Relay(bastion.port) as relay:
        through = replace(as_bastion(bastion), port=relay.port)
        shell = opened(replace(host.endpoint(), bastion=through), host)
        assert shell.run("echo one").stdout == b"one\n"
        relay.cut()
        relay.heal()
        until(lambda: not shell._transport or not shell._transport.is_active())
        assert shell.run("echo two").stdout == b"two\n"
        shell.close()


def test_closing_leaves_no_connection_to_the_bastion(bastion: SshHost, shell: SshShell) -> None:
    shell.run("true")
    shell.close()
    until(lambda: "Disconnected from user" in bastion.log or "Connection closed" in bastion.log)


# a program in between


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tunnel program on PATH that connects to the port that is its last argument."""
    path = tmp_path / "bin" / "tunnel"
    path.parent.mkdir()
    path.write_text(f"#!{sys.executable}\n{RELAY}")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{path.parent}:{os.environ['PATH']}")
    return path


@pytest.mark.usefixtures("program")
def test_commands_run_over_a_programs_streams(host: SshHost) -> None:
    way = replace(host.endpoint(port=1), proxy_command=("tunnel", str(host.port)))
    shell = opened(way, host)
    body = os.urandom(4 * MIB)
    assert shell.run("cat", stdin=[body]).stdout == body
    assert shell._transport is not None
    link = shell._transport.sock
    assert isinstance(link, ProxySocket)
    shell.close()
    until(lambda: link._process.poll() is not None)


@pytest.mark.usefixtures("program")
def test_what_a_failing_program_says_is_told(host: SshHost) -> None:
    way = replace(host.endpoint(), proxy_command=("tunnel", "--zone=a", str(free_port())))
    with pytest.raises(UnreachableError, match=r"through tunnel.*ConnectionRefusedError"):
        opened(way, host).run("true")


def test_a_program_that_is_missing_is_named(host: SshHost) -> None:
    way = replace(host.endpoint(), proxy_command=("no-such-tunnel", "1"))
    with pytest.raises(UnreachableError, match="no-such-tunnel is not on the PATH"):
        opened(way, host).run("true")


def test_closing_ends_a_program_that_ignores_the_end_of_its_input() -> None:
    link = ProxySocket(["sleep", "1000"])
    assert isinstance(link, socket.socket)
    link.close()
    assert link._process.returncode is not None
