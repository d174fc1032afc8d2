"""What only a connection can get wrong: another machine, a refused key, a cut, a silence."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.domain.machine import (
    AuthenticationError,
    CommandTimeoutError,
    ConnectionLostError,
    HostKeyError,
    SshEndpoint,
    UnreachableError,
)
from runners.shell import open_shell
from runners.shell.connection import KeyFile
from runners.shell.ssh import SshShell
from tests.ssh_hosts import (
    LOOPBACK,
    Relay,
    SshHost,
    another_key,
    can_isolate,
    fingerprint,
    free_port,
    make_key,
)
from tests.waiting import until

NewHost = Callable[..., SshHost]
SIGNED_IN = "Accepted publickey"
ATTEMPT = "userauth-request"
"""What a server at DEBUG1 logs for every attempt to sign in."""


@pytest.fixture
def host(new_host: NewHost) -> SshHost:
    return new_host()


@pytest.fixture
def relay(host: SshHost) -> Iterator[Relay]:
    with Relay(host.port) as made:
        yield made


def shell_to(host: SshHost, endpoint: SshEndpoint | None = None, **options: float) -> SshShell:
    endpoint = endpoint or host.endpoint()
    return SshShell(endpoint, key=KeyFile(host.keys_dir / endpoint.key_file), **options)


def once(true: Callable[[], object], act: Callable[[], None]) -> None:
    """Do something in the background as soon as it is true."""

    def wait() -> None:
        until(true)
        act()

    threading.Thread(target=wait).start()


@pytest.fixture
def started(tmp_path: Path) -> Path:
    """What a command touches when it runs."""
    return tmp_path / "started"


# the host key


def test_another_host_key_is_refused_before_anything_is_sent(
    new_host: NewHost, tmp_path: Path
) -> None:
    host = new_host(options=("LogLevel DEBUG1",))
    expected = " ".join(make_key(tmp_path / "other").with_suffix(".pub").read_text().split()[:2])
    shell = shell_to(host, host.endpoint(host_key=expected))
    with pytest.raises(HostKeyError) as caught:
        shell.run("true")
    words = str(caught.value)
    assert fingerprint(expected) in words
    assert fingerprint(host.host_key()) in words
    assert f"{host.user}@{LOOPBACK}:{host.port}" in words
    assert "pin" in words
    until(lambda: "Connection closed by" in host.log or "Connection reset by" in host.log)
    assert ATTEMPT not in host.log


def test_the_same_server_with_the_right_key_is_asked(new_host: NewHost) -> None:
    """The proof above reads the log; this shows that the log would have told."""
    host = new_host(options=("LogLevel DEBUG1",))
    assert shell_to(host).run("echo hi").stdout == b"hi\n"
    until(lambda: ATTEMPT in host.log and SIGNED_IN in host.log)


def test_a_key_that_differs_in_one_bit_is_another_key(host: SshHost) -> None:
    with pytest.raises(HostKeyError):
        shell_to(host, host.endpoint(host_key=another_key(host.host_key()))).run("true")
    assert SIGNED_IN not in host.log


def test_any_one_of_several_host_keys_can_be_pinned(new_host: NewHost) -> None:
    kinds = ("rsa", "ecdsa", "ed25519")
    host = new_host(host_key_kinds=kinds)
    for kind in kinds:
        shell = shell_to(host, host.endpoint(host_key=host.host_key(kind)))
        assert shell.run("echo hi").stdout == b"hi\n", kind


def test_a_machine_without_a_key_of_the_pinned_type_is_another_machine(
    new_host: NewHost, host: SshHost
) -> None:
    other = new_host("other", host_key_kinds=("rsa",))
    with pytest.raises(HostKeyError) as caught:
        shell_to(other, other.endpoint(host_key=host.host_key())).run("true")
    assert fingerprint(host.host_key()) in str(caught.value)
    assert fingerprint(other.host_key()) in str(caught.value)
    assert SIGNED_IN not in other.log


# signing in


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (make_key, "does not accept the key given.*authorized"),
        (lambda path: None, "keys/given does not exist"),
        (lambda path: path.write_text("not a key"), "given holds no private key"),
        (Path.touch, "given holds no private key"),
        (lambda path: make_key(path, passphrase="secret words"), "given is protected by a passph"),
    ],
)
def test_a_key_that_does_not_open_the_machine_is_named(
    ssh_host: SshHost, tmp_path: Path, make: Callable[[Path], object], words: str
) -> None:
    path = tmp_path / "keys" / "given"
    path.parent.mkdir()
    make(path)
    with pytest.raises(AuthenticationError, match=words):
        SshShell(ssh_host.endpoint(), key=KeyFile(path)).run("true")


def test_only_the_given_key_is_offered(new_host: NewHost, monkeypatch: pytest.MonkeyPatch) -> None:
    host = new_host(options=("LogLevel DEBUG1",))
    ssh_folder = make_key(host.folder / ".ssh" / "id_ed25519").parent
    monkeypatch.setenv("HOME", str(ssh_folder.parent))
    make_key(host.keys_dir / "stranger")
    with pytest.raises(AuthenticationError):
        shell_to(host, replace(host.endpoint(), key_file="stranger")).run("true")
    until(lambda: "Connection closed by" in host.log or "Connection reset by" in host.log)
    assert host.log.count("Failed publickey") == 1


@pytest.mark.parametrize("name", ["../keys/own_key", "/etc/passwd", "..", ""])
def test_keys_come_from_the_keys_folder_only(tmp_path: Path, name: str) -> None:
    endpoint = SshEndpoint(LOOPBACK, "me", "ssh-ed25519 AAAA", name)
    with pytest.raises(AuthenticationError, match="not a file name"):
        open_shell(endpoint, keys_dir=tmp_path)


# reaching


def test_a_closed_port_is_unreachable(ssh_host: SshHost) -> None:
    endpoint = replace(ssh_host.endpoint(), port=free_port())
    with pytest.raises(UnreachableError, match=r"no connection.*nothing listens there"):
        shell_to(ssh_host, endpoint).run("true")


def test_a_port_without_ssh_behind_it_is_unreachable_in_time(host: SshHost, relay: Relay) -> None:
    relay.stall()
    shell = shell_to(host, host.endpoint(port=relay.port), connect_timeout_s=1.0)
    with pytest.raises(UnreachableError, match="within 1 s"):
        shell.run("true", timeout_s=600)


def test_a_frozen_machine_is_unreachable_in_time_and_reachable_again(host: SshHost) -> None:
    host.freeze()
    with pytest.raises(UnreachableError):
        shell_to(host, connect_timeout_s=1.0).run("true", timeout_s=600)
    host.thaw()
    assert shell_to(host).run("echo up").stdout == b"up\n"


# losing it


def test_a_server_killed_in_the_middle_is_a_lost_connection(host: SshHost, started: Path) -> None:
    shell = shell_to(host)
    once(started.exists, host.kill)
    with pytest.raises(ConnectionLostError, match="attach again"):
        shell.run(f"touch {started}; sleep 100", timeout_s=90)
    with pytest.raises(UnreachableError):
        shell.run("true")


@pytest.mark.skipif(not can_isolate(), reason="a PID namespace of its own needs root")
def test_a_host_dies_with_what_was_detached_on_it(host: SshHost, tmp_path: Path) -> None:
    beat = tmp_path / "beat"
    inner = f"while :; do date +%s%N > {beat}; sleep 0.05; done"
    shell_to(host).run(f"setsid sh -c '{inner}' </dev/null >/dev/null 2>&1 &")
    until(beat.exists)
    host.kill_sessions()
    before = beat.read_text()
    until(lambda: beat.read_text() not in {before, ""})
    host.kill()
    before = beat.read_text()
    time.sleep(0.3)
    assert beat.read_text() == before


def test_a_killed_session_is_a_lost_connection_and_the_next_command_reconnects(
    host: SshHost, started: Path
) -> None:
    shell = shell_to(host)
    once(started.exists, host.kill_sessions)
    with pytest.raises(ConnectionLostError):
        shell.run(f"touch {started}; sleep 100", timeout_s=90)
    assert shell.run("echo back").stdout == b"back\n"


def test_an_idle_connection_that_was_lost_is_made_again_unnoticed(host: SshHost) -> None:
    shell = shell_to(host)
    assert shell.run("true").status == 0
    host.kill_sessions()
    until(lambda: len(host.processes()) <= 2)
    assert shell.run("echo back").stdout == b"back\n"
    assert host.log.count(SIGNED_IN) == 2


def test_a_cut_link_is_lost_then_unreachable_then_healed(
    host: SshHost, relay: Relay, started: Path
) -> None:
    shell = shell_to(host, host.endpoint(port=relay.port))
    once(started.exists, relay.cut)
    with pytest.raises(ConnectionLostError):
        shell.run(f"touch {started}; sleep 100", timeout_s=90)
    for _ in range(3):
        with pytest.raises(UnreachableError):
            shell.run("true")
        time.sleep(0.3)
    relay.heal()
    assert shell.run("echo back").stdout == b"back\n"


def test_a_cut_during_an_upload_is_lost(host: SshHost, relay: Relay) -> None:
    shell = shell_to(host, host.endpoint(port=relay.port))

    def feed() -> Iterator[bytes]:
        for number in range(200):
            if number == 50:
                relay.cut()
            yield bytes(1024 * 1024)

    with pytest.raises(ConnectionLostError):
        shell.run("cat >/dev/null", stdin=feed(), timeout_s=60)


def test_a_silence_shorter_than_the_bound_loses_nothing(
    host: SshHost, relay: Relay, started: Path
) -> None:
    shell = shell_to(host, host.endpoint(port=relay.port), silence_s=30.0)

    def stall() -> None:
        relay.stall()
        threading.Timer(2.0, relay.heal).start()

    once(started.exists, stall)
    command = f"touch {started}; for n in 1 2 3 4 5 6; do echo $n; sleep 0.2; done"
    done = shell.run(command, timeout_s=90)
    assert done.stdout == b"1\n2\n3\n4\n5\n6\n"


def test_a_silent_peer_is_noticed_long_before_the_commands_own_bound(
    host: SshHost, relay: Relay, started: Path
) -> None:
    shell = shell_to(host, host.endpoint(port=relay.port), silence_s=1.0)
    once(started.exists, relay.stall)
    with pytest.raises(ConnectionLostError, match="fell silent"):
        shell.run(f"touch {started}; sleep 600", timeout_s=600)


def test_a_quiet_command_on_a_living_machine_is_not_a_silence(
    host: SshHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runners.shell.ssh.PROBE_SHARE", 100.0)  # it may be busy
    shell = shell_to(host, silence_s=0.3)
    assert shell.run("sleep 2; echo done", timeout_s=30).stdout == b"done\n"


def test_a_silent_peer_during_an_upload_is_noticed(host: SshHost, relay: Relay) -> None:
    shell = shell_to(host, host.endpoint(port=relay.port), silence_s=1.0)
    once(lambda: relay.carried_bytes > 1_000_000, relay.stall)
    with pytest.raises(ConnectionLostError):
        shell.run("cat >/dev/null", stdin=iter(lambda: bytes(65536), b""), timeout_s=600)


def test_a_silent_peer_never_outlasts_the_commands_bound(host: SshHost, relay: Relay) -> None:
    shell = shell_to(host, host.endpoint(port=relay.port))
    assert shell.run("true").status == 0
    relay.stall()
    began = time.monotonic()
    with pytest.raises((CommandTimeoutError, UnreachableError)):
        shell.run("echo never", timeout_s=2)
    assert time.monotonic() - began < 100
    relay.heal()
    assert shell.run("echo back", timeout_s=30).stdout == b"back\n"


def test_a_frozen_server_during_an_upload_ends_in_time(host: SshHost, started: Path) -> None:
    shell = shell_to(host)
    shell.run("true")
    once(started.exists, host.freeze)
    began = time.monotonic()
    upload = f"touch {started}; cat >/dev/null"
    with pytest.raises(CommandTimeoutError):
        shell.run(upload, stdin=iter(lambda: bytes(65536), b""), timeout_s=6)
    assert time.monotonic() - began < 100
    host.thaw()
    assert shell.run("echo back", timeout_s=30).stdout == b"back\n"


# many


def test_more_commands_than_channels_wait_for_their_turn(host: SshHost) -> None:
    shell = shell_to(host)
    answers: list[bytes] = []

    def ask() -> None:
        answers.append(shell.run("sleep 0.1; echo x", timeout_s=60).stdout)

    threads = [threading.Thread(target=ask) for _ in range(30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [b"x\n"] * 30
    assert host.log.count(SIGNED_IN) == 1


def test_a_server_of_few_sessions_is_waited_for_and_then_named(
    new_host: NewHost, tmp_path: Path
) -> None:
    host = new_host(options=("MaxSessions 1",))
    shell = shell_to(host)
    answers: list[bytes] = []
    long = threading.Thread(target=lambda: answers.append(shell.run("sleep 1; echo x").stdout))
    long.start()
    until(lambda: "Starting session" in host.log)
    assert shell.run("echo y").stdout == b"y\n"
    long.join()
    assert answers == [b"x\n"]
    go = tmp_path / "go"
    waits = f"until [ -e {go} ]; do sleep 0.1; done; echo x"
    long = threading.Thread(target=lambda: answers.append(shell.run(waits).stdout))
    long.start()
    until(lambda: host.log.count("Starting session") == 3)
    shell._connect_timeout_s = 1.0
    with pytest.raises(UnreachableError, match="MaxSessions"):
        shell.run("echo z")
    go.touch()
    long.join()
    assert len(answers) == 2


def test_two_hosts_are_two_machines(new_host: NewHost) -> None:
    one, two = new_host("one"), new_host("two")
    homes = [shell_to(host).run('printf %s "$HOME"').stdout.decode() for host in (one, two)]
    assert homes == [str(one.home), str(two.home)]
    with pytest.raises(HostKeyError):
        shell_to(one, replace(one.endpoint(), port=two.port)).run("true")


def test_no_descriptor_is_left_behind(host: SshHost) -> None:
    shell = shell_to(host)
    shell.run("true")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        shell.run("echo x", stdin=[b"y"])
    assert len(os.listdir("/proc/self/fd")) <= before + 1
    shell.close()
    until(lambda: len(os.listdir("/proc/self/fd")) < before)
