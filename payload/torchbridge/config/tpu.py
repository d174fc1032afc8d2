"""Settings of Google's TPUs, and what an accelerator's name tells."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from torchbridge.config.enums import TPUCompilationMode, TPUTopology, TPUVersion
from torchbridge.config.settings import Settings

PRECISIONS = ("float32", "bfloat16")
# https://cloud.google.com/tpu/docs/system-architecture-tpu-vm: memory of one chip, in GiB
MEMORY_GB = {"v4": 32, "v5e": 16, "v5p": 95, "v6e": 32, "v7": 192}
_VERSIONS = {
    "v4": "v4",
    "v5litepod": "v5e",
    "v5e": "v5e",
    "v5p": "v5p",
    "v6e": "v6e",
    "tpu7x": "v7",
}
_KINDS = {"v4": "v4", "v5 lite": "v5e", "v5e": "v5e", "v5": "v5p", "v5p": "v5p"}
_KINDS |= {"v6 lite": "v6e", "v6e": "v6e", "7x": "v7"}
_ACCELERATOR = re.compile(r"(?P<version>[a-z0-9]+)-(?P<size>\d+)")
_KIND = re.compile(r"TPU ?(?P<kind>.+)")
_SINGLE_HOST = 8  # the largest slice of one host, in chips, or in cores where the name counts those


def detect_tpu_version(accelerator: str | None = None) -> TPUVersion:
    """From an accelerator type (`v5litepod-8`) or PJRT's kind of device (`TPU v5 lite`).

    By default the environment's `TPU_ACCELERATOR_TYPE`; `auto` where nothing is told.

    Raises:
        ValueError: a generation that is not known here.
    """
    told = _told(accelerator)
    if not told:
        return TPUVersion.AUTO
    kind, slice_ = _KIND.fullmatch(told), _ACCELERATOR.fullmatch(told)
    known = _KINDS if kind else _VERSIONS
    name = kind["kind"] if kind else slice_["version"] if slice_ else told
    if name not in known:
        raise ValueError(f"TPU {told!r} is not known; known: {', '.join(known)}")
    return TPUVersion(known[name])


def detect_tpu_topology(accelerator: str | None = None, *, slices: int = 1) -> TPUTopology:
    """From the size in the accelerator type; `auto` where nothing is told.

    `slices` is how many slices compute together: more than one are a superpod.
    """
    found = _ACCELERATOR.fullmatch(_told(accelerator))
    if slices > 1:
        return TPUTopology.SUPERPOD
    if found is None:
        return TPUTopology.AUTO
    return TPUTopology.SINGLE if int(found["size"]) <= _SINGLE_HOST else TPUTopology.POD


def _told(accelerator: str | None) -> str:
    return os.environ.get("TPU_ACCELERATOR_TYPE", "") if accelerator is None else accelerator


@dataclass(frozen=True, slots=True, kw_only=True)
class TPUConfig(Settings):
    """None and `auto` leave it to the device.

    `xla_optimization_level` is what a product of float32 numbers may lose: 0 nothing (six passes of
    bfloat16), 1 little (three), 2 what bfloat16 loses (one). Times are seconds.
    """

    enabled: bool | None = None
    version: TPUVersion = TPUVersion.AUTO
    topology: TPUTopology = TPUTopology.AUTO
    compilation_mode: TPUCompilationMode = TPUCompilationMode.TORCH_XLA
    precision: str = "bfloat16"
    memory_fraction: float = 0.9
    memory_gb: float | None = None  # of one chip; None: that of the version
    xla_optimization_level: int = 2
    dynamic_shapes: bool = False
    cache_size: int = 100  # compiled models
    compile_timeout_s: float = 300.0
    history_retention_s: float = 3600.0
    strict_validation: bool = False  # warnings are errors

    def check(self) -> None:
        """Ranges."""
        fraction, level = self.memory_fraction, self.xla_optimization_level
        self.require(0 < fraction <= 1, "memory_fraction must be in (0, 1]", fraction)
        self.require(0 <= level <= 2, "xla_optimization_level must be in 0..2", level)
        known = self.precision in PRECISIONS
        self.require(known, f"precision must be one of {', '.join(PRECISIONS)}", self.precision)
        self.require(self.cache_size >= 1, "cache_size must be at least 1", self.cache_size)
        some = self.memory_gb is None or self.memory_gb > 0
        self.require(some, "memory_gb must be positive", self.memory_gb)
        for name in ("compile_timeout_s", "history_retention_s"):
            self.require(getattr(self, name) > 0, f"{name} must be positive", getattr(self, name))

    @property
    def memory_bytes(self) -> int | None:
        """Of one chip: as set, else that of the version; None where neither tells."""
        gib = self.memory_gb or MEMORY_GB.get(self.version.value)
        return None if gib is None else int(gib * 2**30)
