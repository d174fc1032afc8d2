"""Fingerprint: a digest of the software and hardware of a subject's environment."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence

PACKAGE = "package "
"""Prefix of the names of properties that are package versions."""
_UNKNOWN = "-"
_WORDS = (("python", "python"), ("torch", "torch"))
_RUNTIMES = ("cuda", "hip", "xla")
_DEVICE_WORDS = ("name", "driver", "compute_capability")


def fingerprint(probed: Mapping[str, object], *, subject: str) -> str:
    """Return the digest of an environment, from the data of an ``environment`` event.

    Two cells with the same fingerprint had the same kind of device, driver, runtime, Python,
    operating system and packages. It does not include host names, serial numbers or the
    subject, because the subject's next release is tested in the same environment.

    Args:
        probed: The data of an ``environment`` event.
        subject: Name of the subject's distribution.

    Returns: 64 hex digits; empty if no property is known.
    """
    known = traits_around(probed, subject)
    if not known:
        return ""
    return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()


def environment_diff(
    one: Mapping[str, object], other: Mapping[str, object], *, subject: str
) -> tuple[tuple[str, str, str], ...]:
    """Return the differences of two environments as (property, old value, new value).

    A missing value is ``-``. Packages come last, by name. The package of the subject (a
    distribution's name) is left out.
    """
    ours, theirs = (traits_around(probed, subject) for probed in (one, other))
    names = {**ours, **theirs}
    both = ((name, ours.get(name, _UNKNOWN), theirs.get(name, _UNKNOWN)) for name in names)
    return tuple(sorted((row for row in both if row[1] != row[2]), key=_rank))


def traits(probed: Mapping[str, object]) -> dict[str, str]:
    """Return the known properties of an environment by name, with the subject's package."""
    told = {name: _text(probed.get(key)) for key, name in _WORDS}
    told["runtime"] = _runtime(probed)
    machine = probed.get("machine")
    machine = machine if isinstance(machine, Mapping) else {}
    told["os"] = _text(machine.get("os"))
    told |= _devices(machine.get("devices"))
    packages = probed.get("packages")
    if isinstance(packages, Mapping):
        told |= {f"{PACKAGE}{_package(name)}": _text(v) for name, v in packages.items()}
    return {name: value for name, value in told.items() if value}


def traits_around(probed: Mapping[str, object], subject: str) -> dict[str, str]:
    """Return the known properties of an environment, without the subject's package."""
    own = {f"{PACKAGE}{_package(subject)}", _package(subject) if subject else ""}
    return {name: value for name, value in traits(probed).items() if name not in own}


def _runtime(probed: Mapping[str, object]) -> str:
    """Return the CUDA, ROCm or XLA version that torch was built for, such as ``cuda 12.8``."""
    found = ((name, _text(probed.get(name))) for name in _RUNTIMES)
    return ", ".join(f"{name} {version}" for name, version in found if version)


def _devices(value: object) -> dict[str, str]:
    """Return the number of devices and the distinct values of their properties."""
    listed = value if isinstance(value, Sequence) and not isinstance(value, str) else ()
    devices = [one for one in listed if isinstance(one, Mapping)]
    told = {"devices": str(len(devices)) if devices else ""}
    for word in _DEVICE_WORDS:
        values = sorted({_text(device.get(word)) for device in devices} - {""})
        told[f"device {word.replace('_', ' ')}"] = ", ".join(values)
    return told


def _package(name: object) -> str:
    return re.sub(r"[-_.]+", "-", _text(name)).lower()


def _rank(row: tuple[str, str, str]) -> tuple[bool, str]:
    return row[0].startswith(PACKAGE), row[0]


def _text(value: object) -> str:
    return "" if value is None else str(value)
