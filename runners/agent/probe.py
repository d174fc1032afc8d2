"""Describes this machine as one JSON object, without slow imports."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from typing import Dict, Sequence

from . import devices, interpreters
from .evidence_text import JsonValue


def machine(folder: Path) -> Dict[str, JsonValue]:
    """Describe the machine; the disk is the one that holds ``folder``."""
    system = os.uname()
    return {
        "v": 1,
        "os": _os_name(),
        "kernel": system.release,
        "machine": system.machine,
        "libc": list(_libc()),
        "hostname": system.nodename,
        "cpus": _cpus(),
        "cpu_model": _cpu_model(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "disk_free_bytes": shutil.disk_usage(folder).free,
        "devices": [dict(device) for device in devices.find()],
    }


def everything(candidates: Sequence[str]) -> Dict[str, JsonValue]:
    """Describe the machine and the interpreters it could run jobs with."""
    asked = [interpreters.describe(candidate) for candidate in candidates]
    return {**machine(Path.cwd()), "interpreters": asked}


def _os_name() -> str:
    for path in ("/etc/os-release", "/usr/lib/os-release"):
        try:
            lines = Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            continue
        fields = dict(line.split("=", 1) for line in lines if "=" in line)
        return fields.get("PRETTY_NAME", os.uname().sysname).strip("\"'")
    return f"{os.uname().sysname} {os.uname().release}"


def _libc() -> Sequence[str]:
    with contextlib.suppress(OSError, ValueError):
        told = (os.confstr("CS_GNU_LIBC_VERSION") or "").split(maxsplit=1)
        if len(told) == 2:
            return told
    import platform  # noqa: PLC0415 - slow, and reads the interpreter's whole file

    return platform.libc_ver()


def _cpus() -> int:
    """Count the CPUs that this process may use (a container may be given fewer)."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _cpu_model() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(errors="replace")
    except OSError:
        text = ""
    for line in text.splitlines():
        if line.startswith(("model name", "Model", "Hardware")):
            return line.split(":", 1)[1].strip()
    import platform  # noqa: PLC0415 - slow, and starts a process

    return platform.processor() or platform.machine()
