"""The machine types that are known without asking, by the accelerator that comes with them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MachineShape:
    """What a machine type has; its GPUs come with it and are never asked for beside it."""

    accelerator: str
    """As the API calls it, ``nvidia-l4``."""
    count: int
    cpus: int
    memory_gib: int

    @property
    def family(self) -> str:
        """``g2``, as price lists and quotas have it."""
        return _FAMILY.get(self.accelerator, "")

    @property
    def accelerator_sku(self) -> str:
        """As the price catalogue calls it."""
        return self.accelerator.replace("-", " ")

    @property
    def quota(self) -> str:
        """The quota metric of its GPUs, as an on-demand machine takes it."""
        return f"{self.accelerator.replace('-', '_').upper()}_GPUS"


_FAMILY = {"nvidia-l4": "g2"}
KNOWN: Mapping[str, MachineShape] = {
    "g2-standard-4": MachineShape("nvidia-l4", 1, 4, 16),
    "g2-standard-8": MachineShape("nvidia-l4", 1, 8, 32),
    "g2-standard-12": MachineShape("nvidia-l4", 1, 12, 48),
    "g2-standard-16": MachineShape("nvidia-l4", 1, 16, 64),
    "g2-standard-32": MachineShape("nvidia-l4", 1, 32, 128),
    "g2-standard-24": MachineShape("nvidia-l4", 2, 24, 96),
    "g2-standard-48": MachineShape("nvidia-l4", 4, 48, 192),
    "g2-standard-96": MachineShape("nvidia-l4", 8, 96, 384),
}


def types_with(accelerator: str, count: int) -> tuple[str, ...]:
    """The known types with exactly so many of an accelerator (``L4``), smallest first."""
    wanted = plain(accelerator)
    return tuple(
        name
        for name, shape in sorted(KNOWN.items(), key=lambda each: each[1].cpus)
        if shape.count == count and plain(shape.accelerator) == wanted
    )


def plain(accelerator: str) -> str:
    """Spellings made alike: ``NVIDIA L4``, ``nvidia-l4`` and ``L4`` are one."""
    words = re.sub(r"[^a-z0-9]+", "-", accelerator.lower()).strip("-")
    return words.removeprefix("nvidia-").removeprefix("tesla-")
