"""No packet gets out of the seal, and nothing outlives it. Run inside the seal."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.lab import seal
from tests.lab.lab_machines import LabMachines
from tests.lab.ssh_access import wait_until

pytestmark = [pytest.mark.needs_root, pytest.mark.usefixtures("sealed")]

REPOSITORY = Path(__file__).resolve().parents[2]


def sealed_process(*command: str) -> subprocess.Popen[bytes]:
    """One more seal inside this one."""
    code = "import sys; from tests.lab import seal; sys.exit(seal.run(sys.argv[1:]))"
    return subprocess.Popen([sys.executable, "-c", code, *command], cwd=REPOSITORY)


def running(words: str) -> bool:
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if entry.read_bytes().rstrip(b"\0").split(b"\0") == words.encode().split():
                return True
    return False


def test_it_gives_the_exit_code_of_its_command():
    assert sealed_process("sh", "-c", "exit 7").wait(20) == 7


def test_it_says_how_its_command_was_killed():
    assert sealed_process("sh", "-c", "kill -9 $$").wait(20) == 128 + 9


def test_a_signal_reaches_the_command():
    outer = sealed_process("sleep", "1001")
    wait_until(lambda: running("sleep 1001"), "it runs")
    outer.send_signal(signal.SIGTERM)
    assert outer.wait(20) == 128 + signal.SIGTERM


def test_nothing_outlives_it():
    outer = sealed_process("sh", "-c", "setsid nohup sleep 1002 >/dev/null 2>&1 & exec sleep 1003")
    wait_until(lambda: running("sleep 1002") and running("sleep 1003"), "they run")
    outer.kill()
    outer.wait(20)
    wait_until(lambda: not (running("sleep 1002") or running("sleep 1003")), "they end", 5.0)


def test_what_is_left_behind_ends_with_the_command():
    assert sealed_process("sh", "-c", "setsid nohup sleep 1004 >/dev/null 2>&1 &").wait(20) == 0
    wait_until(lambda: not running("sleep 1004"), "it ends", 5.0)


def test_a_command_that_is_not_there_is_told(capfd):
    assert sealed_process("no-such-command").wait(20) == 1
    assert "no-such-command" in capfd.readouterr().err


def test_loopback_works():
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname(), timeout=2.0).close()


def test_names_fail_at_once():
    started = time.monotonic()
    with pytest.raises(OSError):
        socket.getaddrinfo("compute.googleapis.com", 443)
    assert time.monotonic() - started < 5.0


def test_addresses_that_nobody_has_swallow_packets():
    with pytest.raises(TimeoutError):
        socket.create_connection(("54.214.99.99", 22), timeout=0.5)


def test_the_lab_refuses_to_start_beside_a_real_network_device():
    subprocess.run(
        ["ip", "link", "add", "eth7", "type", "veth", "peer", "name", "eth8"], check=True
    )
    try:
        with pytest.raises(seal.NotSealedError, match="eth7"):
            LabMachines()
    finally:
        subprocess.run(["ip", "link", "delete", "eth7"], check=True)
