"""Accelerator types: how many chips one has, and what its virtual machine runs."""

from __future__ import annotations

import re
from dataclasses import dataclass

from orchestrator.domain.machine import ConfigError

LARGEST_HOST = 8
"""A type with a higher number is spread over several hosts."""


@dataclass(frozen=True, slots=True)
class Accelerator:
    """One accelerator type."""

    name: str
    generation: str
    """``v5e``; empty where it is unknown."""
    chips: int
    runtime_version: str
    """What its machines run unless the platform says otherwise."""


@dataclass(frozen=True, slots=True)
class _Family:
    generation: str
    runtime_version: str
    cores_per_chip: int


# From v2 to v4, and in v5p, the number in the name counts cores, of which a chip has two.
_FAMILIES = {
    "v2": _Family("v2", "tpu-ubuntu2204-base", 2),
    "v3": _Family("v3", "tpu-ubuntu2204-base", 2),
    "v4": _Family("v4", "tpu-ubuntu2204-base", 2),
    "v5litepod": _Family("v5e", "v2-alpha-tpuv5-lite", 1),
    "v5p": _Family("v5p", "v2-alpha-tpuv5", 2),
    "v6e": _Family("v6e", "v2-alpha-tpuv6e", 1),
}


def accelerator(name: str | None, runtime_version: str | None = None) -> Accelerator:
    """Read an accelerator type.

    Raises:
        ConfigError: It is none, it has several hosts, or nobody knows what to run on it.
    """
    found = re.fullmatch(r"([a-z0-9]+)-([1-9][0-9]{0,4})", name or "")
    if found is None:
        raise ConfigError(f"accelerator_type: {name!r} is none; v5litepod-1 is one")
    number = int(found[2])
    if number > LARGEST_HOST:
        raise ConfigError(
            f"accelerator_type: {name} has several hosts, and a cell has one machine; "
            f"ask for {found[1]}-{LARGEST_HOST} or fewer"
        )
    family = _FAMILIES.get(found[1])
    runtime = runtime_version or (family.runtime_version if family else None)
    if not runtime:
        raise ConfigError(
            f"runtime_version: give one, no default is known for {name} (known are "
            f"{', '.join(_FAMILIES)})"
        )
    if family is None:
        return Accelerator(found[0], "", number, runtime)
    chips = max(1, number // family.cores_per_chip)
    return Accelerator(found[0], family.generation, chips, runtime)
