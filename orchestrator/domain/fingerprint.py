"""Fingerprint: a digest of the software and hardware that results were produced with."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence

_UNKNOWN = "-"
_WORDS = (("python", "python"), ("torch", "torch"))
_RUNTIMES = ("cuda", "hip", "xla")
_DEVICE_WORDS = ("name", "driver", "compute_capability")


def fingerprint(probed: Mapping[str, object]) -> str:
    """Return the digest of an environment, from the data of an ``environment`` event.

    Two cells with the same one ran on the same kind of device with the same driver, runtime,
    Python, operating system and packages. Host names and serial numbers are not in it.

    Args:
        probed: The data of an ``environment`` event.

    Returns:
        64 hex digits; empty if nothing is known at all.
    """
    known = traits(probed)
    if not known:
        return ""
    return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()


def environment_diff(
    one: Mapping[str, object], other: Mapping[str, object]
) -> tuple[tuple[str, str, str], ...]:
    """Return the differences of two environments, as (what, old value, new value).

    A value that one of them does not report is ``-``. The stack comes first, then packages by name.
    """
    ours, theirs = traits(one), traits(other)
    names = {**ours, **theirs}
    both = ((name, ours.get(name, _UNKNOWN), theirs.get(name, _UNKNOWN)) for name in names)
    return tuple(sorted((row for row in both if row[1] != row[2]), key=_rank))


def traits(probed: Mapping[str, object]) -> dict[str, str]:
    """Return the known inputs of the fingerprint by name."""
    told = {name: _text(probed.get(key)) for key, name in _WORDS}
    told["runtime"] = _runtime(probed)
    machine = probed.get("machine")
    machine = machine if isinstance(machine, Mapping) else {}
    told["os"] = _text(machine.get("os"))
    told |= _devices(machine.get("devices"))
    packages = probed.get("packages")
    if isinstance(packages, Mapping):
        told |= {f"package {_package(name)}": _text(v) for name, v in packages.items()}
    return {name: value for name, value in told.items() if value}


def _runtime(probed: Mapping[str, object]) -> str:
    """Return the CUDA or ROCm version that torch was built for, as ``cuda 12.8``."""
    found = ((name, _text(probed.get(name))) for name in _RUNTIMES)
    return ", ".join(f"{name} {version}" for name, version in found if version)


def _devices(value: object) -> dict[str, str]:
    """Return each distinct fact of the devices once."""
    listed = value if isinstance(value, Sequence) and not isinstance(value, str) else ()
    devices = [one for one in listed if isinstance(one, Mapping)]
    told = {"devices": str(len(devices)) if devices else ""}
    for word in _DEVICE_WORDS:
        values = sorted({_text(device.get(word)) for device in devices} - {""})
        told[f"device {word.replace('_', ' ')}"] = ", ".join(values)
    return told


def _package(name: object) -> str:
    return _text(name).lower().replace("_", "-")


def _rank(row: tuple[str, str, str]) -> tuple[bool, str]:
    return row[0].startswith("package "), row[0]


def _text(value: object) -> str:
    return "" if value is None else str(value)
