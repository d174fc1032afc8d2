"""Checks whether a machine is ready: cloud-init, package locks, device drivers. Never waits.

Every answer is one of ``ok``, ``waiting`` (ask again), ``failed`` (asking again cannot help) and
``absent`` (the machine has no such part).
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import struct
from pathlib import Path
from typing import Dict, List, NamedTuple, Optional, Set, Tuple

from . import bounded_process, devices

Check = Dict[str, str]

_CLOUD_INIT_S = 10.0
_DRIVER_S = 20.0
_OUTPUT_CHARS = 1_000
_FINE = (0, 2)
"""cloud-init's exit codes for done, and for done with recoverable errors."""

_LOCKS = (
    "var/lib/dpkg/lock-frontend",
    "var/lib/dpkg/lock",
    "var/lib/apt/lists/lock",
    "var/cache/apt/archives/lock",
)
_FLOCK = "hhqqi4x"
"""``struct flock`` of 64-bit Linux: type, whence, start, length, holder."""

_NVIDIA = "0x10de"
_AMD = "0x1002"
_GPU_CLASSES = ("0x03",)
_ACCELERATOR_CLASSES = ("0x12",)


class _Driver(NamedTuple):
    """A vendor's tool that succeeds once the driver works."""

    tool: str
    arguments: Tuple[str, ...]


_NVIDIA_SMI = _Driver("nvidia-smi", ("--query-gpu=name,driver_version", "--format=csv,noheader"))
_AMD_TOOLS = (
    _Driver("amd-smi", ("list",)),
    _Driver("rocm-smi", ("--showproductname",)),
)


def everything(root: Path = Path("/")) -> List[Check]:
    """Run every check once; ``root`` is the root of the machine's files."""
    return [cloud_init(), apt(root), driver(root)]


def cloud_init() -> Check:
    """Check whether the configuration of the first boot is done."""
    path = shutil.which("cloud-init")
    if path is None:
        return _check("cloud_init", "absent", "there is no cloud-init")
    answer = bounded_process.run((path, "status", "--long"), timeout_s=_CLOUD_INIT_S)
    said = _end_of(answer.text)
    found = re.search(r"^status:\s*(.+?)\s*$", answer.text, re.MULTILINE)
    status = found.group(1) if found else ""
    if answer.timed_out:
        return _check("cloud_init", "waiting", f"no answer within {_CLOUD_INIT_S:g} s: {said}")
    if "running" in status or status.startswith("not "):
        return _check("cloud_init", "waiting", said)
    if answer.exit_code in _FINE and status != "error":
        return _check("cloud_init", "ok", said if answer.exit_code else status)
    return _check("cloud_init", "failed", f"exit code {answer.exit_code}: {said}")


def apt(root: Path = Path("/")) -> Check:
    """Check whether a package installation holds a lock of dpkg or apt."""
    if not (root / "var/lib/dpkg").is_dir():
        return _check("apt", "absent", "there is no dpkg")
    held = [(path, pid) for path in _LOCKS for pid in _holders(root / path)]
    if not held:
        return _check("apt", "ok", "no package lock is held")
    said = ", ".join(f"/{path} is held by {_name_of(pid)}" for path, pid in held)
    return _check("apt", "waiting", said)


def driver(root: Path = Path("/")) -> Check:
    """Check whether the driver of the machine's accelerators answers."""
    for found in (_nvidia(root), _amd(root), _tpu(root)):
        if found is not None:
            return found
    return _check("driver", "absent", "there is no accelerator, and no vendor's tool")


def _nvidia(root: Path) -> Optional[Check]:
    there = _on_pci(root, _NVIDIA, _GPU_CLASSES)
    path = shutil.which(_NVIDIA_SMI.tool)
    if path is None:
        text = "an NVIDIA device is there, nvidia-smi is not (yet)"
        return _check("driver", "waiting", text) if there else None
    found = _check_of(path, _NVIDIA_SMI)
    if found["state"] != "ok" and not there:
        found["detail"] += "; no NVIDIA device is on the PCI bus"
    return found


def _amd(root: Path) -> Optional[Check]:
    for driver_ in _AMD_TOOLS:
        path = shutil.which(driver_.tool)
        if path is not None:
            return _check_of(path, driver_)
    # Class 3 would match graphics of desktops: accelerators have a separate class.
    if _on_pci(root, _AMD, _ACCELERATOR_CLASSES):
        return _check("driver", "waiting", "an AMD accelerator is there, rocm-smi is not (yet)")
    return None


def _tpu(root: Path) -> Optional[Check]:
    chips = devices.tpu_chips(root)
    if not chips:
        return None
    names = ", ".join(chips)
    if devices.tpus(root):
        return _check("driver", "ok", names)
    return _check("driver", "waiting", f"{names}: no /dev/accel* and no /dev/vfio/* (yet)")


def _check_of(path: str, driver_: _Driver) -> Check:
    answer = bounded_process.run((path, *driver_.arguments), timeout_s=_DRIVER_S)
    said = _end_of(answer.text)
    if answer.ok:
        return _check("driver", "ok", said)
    why = f"no answer within {_DRIVER_S:g} s" if answer.timed_out else f"{said}"
    text = f"{driver_.tool}: {why or f'exit code {answer.exit_code}'}"
    return _check("driver", "waiting", text)


def _on_pci(root: Path, vendor: str, classes: Tuple[str, ...]) -> bool:
    return any(
        devices.line(folder / "vendor") == vendor
        and devices.line(folder / "class").startswith(classes)
        for folder in root.glob("sys/bus/pci/devices/*")
    )


def _holders(path: Path) -> Set[int]:
    """Return the processes that lock a file, from the file itself or from the kernel's list."""
    try:
        return locked_by(path)
    except PermissionError:
        return listed_for(path)
    except OSError:
        return set()


def locked_by(path: Path) -> Set[int]:
    """Return the id of the process that holds the lock, as dpkg takes it (fcntl, exclusive).

    Raises:
        OSError: the file cannot be opened for writing.
    """
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, _, _, holder = struct.unpack(_FLOCK, fcntl.fcntl(fd, fcntl.F_GETLK, asked))
    finally:
        os.close(fd)
    return set() if kind == fcntl.F_UNLCK else {holder}


def listed_for(path: Path) -> Set[int]:
    """Return the holders of a file from the kernel's list of locks, which every user may read."""
    try:
        inode = path.stat().st_ino
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return set()
    rows = [line.replace("->", " ").split() for line in lines]
    # The device number in the list is not always the one of stat (btrfs, overlays).
    return {int(row[4]) for row in rows if len(row) > 5 and row[5].endswith(f":{inode}")}


def _name_of(pid: int) -> str:
    name = devices.line(Path(f"/proc/{pid}/comm"))
    return f"{name} (process {pid})" if name else f"process {pid}"


def _end_of(text: str) -> str:
    return text.strip()[-_OUTPUT_CHARS:]


def _check(check: str, state: str, detail: str) -> Check:
    return {"check": check, "state": state, "detail": detail}
