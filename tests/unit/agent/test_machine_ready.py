"""What is read off a machine's own files: devices on the bus, locks of the package tools."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runners.agent import machine_ready

HOLD = """
import fcntl, sys
lock = open(sys.argv[1], "w")
fcntl.lockf(lock, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


def pci(root: Path, vendor: str, kind: str, device: str = "0x0000") -> None:
    folder = root / "sys/bus/pci/devices" / f"{vendor}.{kind}"
    folder.mkdir(parents=True)
    for name, value in (("vendor", vendor), ("class", kind), ("device", device)):
        (folder / name).write_text(f"{value}\n")


@pytest.fixture
def hold(tmp_path: Path) -> Iterator[Callable[[str], int]]:
    running: list[subprocess.Popen[bytes]] = []

    def take(name: str) -> int:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-c", HOLD, str(path)]
        child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        running.append(child)
        assert child.stdout is not None
        assert child.stdout.readline() == b"held\n"
        return child.pid

    yield take
    for child in running:
        child.communicate()


def test_a_machine_without_dpkg(tmp_path: Path) -> None:
    assert machine_ready.apt(tmp_path)["state"] == "absent"


@pytest.mark.parametrize("lock", ["var/lib/dpkg/lock-frontend", "var/lib/apt/lists/lock"])
def test_who_holds_a_package_lock_is_named(tmp_path: Path, hold, lock: str) -> None:
    (tmp_path / "var/lib/dpkg").mkdir(parents=True)
    assert machine_ready.apt(tmp_path)["state"] == "ok"
    (tmp_path / "var/lib/dpkg/lock").touch()
    assert machine_ready.apt(tmp_path)["state"] == "ok", "a lock that nobody holds"
    pid = hold(lock)
    found = machine_ready.apt(tmp_path)
    assert found["state"] == "waiting"
    assert found["detail"].startswith(f"/{lock} is held by python")
    assert found["detail"].endswith(f"(process {pid})")


def test_the_kernels_list_says_the_same(tmp_path: Path, hold) -> None:
    """How it is asked by a user who may not open the file."""
    pid = hold("lock")
    assert (
        machine_ready.listed_for(tmp_path / "lock")
        == machine_ready.locked_by(tmp_path / "lock")
        == {pid}
    )
    (tmp_path / "other").touch()
    assert (
        machine_ready.listed_for(tmp_path / "other")
        == machine_ready.locked_by(tmp_path / "other")
        == set()
    )


def test_a_machine_without_a_device(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    pci(tmp_path, "0x8086", "0x030000")
    pci(tmp_path, "0x10de", "0x040300")  # a sound device
    assert machine_ready.driver(tmp_path)["state"] == "absent"


@pytest.mark.parametrize("kind", ["0x030000", "0x030200"])
def test_an_nvidia_device_waits_for_its_tool(tmp_path: Path, monkeypatch, kind: str) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    pci(tmp_path, "0x10de", kind)
    found = machine_ready.driver(tmp_path)
    assert (found["state"], "nvidia-smi is not" in found["detail"]) == ("waiting", True)


def test_an_mi300x_waits_and_a_desktops_graphics_does_not(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    pci(tmp_path, "0x1002", "0x030000")
    assert machine_ready.driver(tmp_path)["state"] == "absent"
    pci(tmp_path, "0x1002", "0x120000")
    assert machine_ready.driver(tmp_path)["state"] == "waiting"


def test_a_tpu_is_there_when_its_node_is(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    pci(tmp_path, "0x1ae0", "0x120000", "0x0063")
    assert machine_ready.driver(tmp_path)["state"] == "waiting"
    (tmp_path / "dev/vfio").mkdir(parents=True)
    (tmp_path / "dev/vfio/0").touch()
    found = machine_ready.driver(tmp_path)
    assert (found["state"], found["detail"]) == ("ok", "TPU v5e")
