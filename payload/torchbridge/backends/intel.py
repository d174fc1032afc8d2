"""Intel GPUs by torch.xpu; without a GPU the CPU is used.

Intel's extension (IPEX) is only detected. `IntelKernelOptimizer` predicts from shapes how products,
convolutions and attention divide over a GPU's units.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import importlib.util
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

from torchbridge.backends.backend import Backend, OptimizationResult, Optimizer
from torchbridge.backends.errors import DeviceError, NotAvailable
from torchbridge.backends.memory import IntelMemoryManager
from torchbridge.backends.optimise import LEVELS
from torchbridge.config import Config, IntelArchitecture
from torchbridge.config.vendors import INTEL_LEVELS
from torchbridge.hardware import Hardware, probe
from torchbridge.passes import Prepared

_IPEX = "intel_extension_for_pytorch"
_DATA = {"fp16", "bf16", "matrix_cores"}  # XMX units multiply both 16-bit formats
# What they compute; columns of one systolic product (DPAS), its SIMD width; a work-group's local
# memory in bytes. https://registry.khronos.org/OpenCL/extensions/intel/
# cl_intel_subgroup_matrix_multiply_accumulate.html: 8 rows, 8 words of 32 bits deep
CHIPS = {
    "pvc": (_DATA, 16, 128 * 1024),
    "ats": (_DATA, 8, 64 * 1024),
    "flex": (_DATA, 8, 64 * 1024),
    "dg2": (_DATA, 8, 64 * 1024),
    "integrated": ({"fp16"}, 8, 64 * 1024),
}
_ROWS, _DEPTH_BYTES = 8, 32
_TILES = (8, 16, 32, 64, 128, 256)
_BLOCKS = (16, 32, 64, 128, 256)


def is_xpu_available() -> bool:
    """Return whether torch sees an XPU."""
    return torch.xpu.is_available()


def is_ipex_available() -> bool:
    """Return whether Intel's archived extension is installed; nothing here needs it."""
    return importlib.util.find_spec(_IPEX) is not None


def get_ipex_version() -> str | None:
    """Return the version of the installed extension, or None."""
    return importlib.metadata.version(_IPEX) if is_ipex_available() else None


def require_libraries() -> None:
    """Check that torch is built with oneDNN and that Intel's extension is installed.

    Raises:
        NotAvailable: one of them is missing.
    """
    if not torch.backends.mkldnn.is_available():
        raise NotAvailable(f"torch {torch.__version__} is built without oneDNN")
    if not is_ipex_available():
        raise NotAvailable(f"{_IPEX} is not installed; torch.xpu does without it")


def intel_hardware(architecture: IntelArchitecture, **facts: float) -> Hardware:
    """Build the `Hardware` of an architecture without a device; `facts` set further fields."""
    name = architecture.value
    values = {"target": "xpu", "features": frozenset(CHIPS[name][0])}
    return Hardware("intel", f"Intel {name}", name, **values, **facts)


class XPUDeviceManager:
    """The XPUs of this machine, which may have none."""

    @property
    def device_count(self) -> int:
        """Number of XPUs."""
        return torch.xpu.device_count()

    def get_device(self, index: int = 0) -> torch.device:
        """Return an XPU; if there is none at all, warn and return the CPU.

        Raises:
            DeviceError: there are XPUs, but none with this index.
        """
        if is_xpu_available():
            return self._existing(index)
        warnings.warn("no XPU here: the CPU takes its place", stacklevel=2)
        return torch.device("cpu")

    def device_info(self, index: int = 0) -> Hardware:
        """Return the hardware of one XPU.

        Raises:
            DeviceError: no XPU has this index.
        """
        return probe(self._existing(index))

    def _existing(self, index: int) -> torch.device:
        if not 0 <= index < self.device_count:
            raise DeviceError(f"no XPU {index}: there are {self.device_count}")
        return torch.device("xpu", index)


_NAMES = dict(zip(INTEL_LEVELS, LEVELS, strict=True))


class IntelBackend(Backend):
    """Backend of Intel GPUs; levels are O0, O1, O2 or conservative, balanced, aggressive."""

    name = "intel"
    vendor = "intel"

    def __init__(self, config: Config | None = None, **options: Any) -> None:
        """Create the backend and its memory manager; options are those of `Backend`."""
        super().__init__(config, **options)
        self.memory = IntelMemoryManager(self.settings, self.device)

    def level_of(self, level: str | None) -> str:
        """Resolve a level given by Intel's or by the shared name."""
        wanted = super().level_of(level)
        return _NAMES.get(wanted, wanted)

    @property
    def is_xpu_available(self) -> bool:
        """Whether torch sees an XPU."""
        return is_xpu_available()

    def memory_summary(self) -> str:
        """Return one line with used, free and total memory."""
        return self.memory.memory_summary()


class IntelOptimizer(Optimizer):
    """Optimizer of Intel GPUs with the levels O0, O1, O2."""

    backend_class = IntelBackend

    def optimize(self, model: nn.Module, *given: Any, **options: Any) -> OptimizationResult:
        """Apply a level as `Optimizer.optimize`; the result has Intel's name of the level.

        Raises:
            TypeError: `model` is not an nn.Module.
        """
        result = super().optimize(model, *given, **options)
        names = {theirs: ours for ours, theirs in _NAMES.items()}
        return dataclasses.replace(result, optimization_level=names[result.optimization_level])


class XPUOptimizations:
    """Choose the dtype and prepare models for inference on one backend's device."""

    def __init__(self, backend: IntelBackend) -> None:
        self.backend = backend

    def get_optimal_dtype(self) -> torch.dtype:
        """Return bfloat16 if the device computes it natively, else float32."""
        return torch.bfloat16 if self.backend.hardware.has("bf16") else torch.float32

    def optimize_model_for_inference(
        self, model: nn.Module, sample_inputs: Sequence[Tensor] = ()
    ) -> Prepared:
        """Prepare the model at level O2."""
        return self.backend.prepare_model(model, level="O2", sample_inputs=sample_inputs)


@dataclass(frozen=True, slots=True)
class GemmConfig:
    """Tiling of a product [m, k] x [k, n].

    `utilization` is useful work over the capacity of all units; `systolic` tells whether the matrix
    units are used.
    """

    tile_m: int
    tile_n: int
    tile_k: int
    work_groups: int
    waves: int
    utilization: float
    systolic: bool
    reason: str


@dataclass(frozen=True, slots=True)
class AttentionBlocks:
    """Block sizes of attention; `fused` if scores are computed block by block and never stored."""

    fused: bool
    q_block: int
    k_block: int
    reason: str


class IntelKernelOptimizer:
    """Choose tile and block sizes for one device.

    Unknown `units` (0) count as one, an unknown architecture as the narrowest known one.
    """

    def __init__(self, hardware: Hardware) -> None:
        self.hardware = hardware
        self.units = max(1, hardware.units)
        chip = CHIPS.get(hardware.architecture, CHIPS["integrated"])
        self.width, self.local_bytes = chip[1:]

    def gemm_config(self, m: int, n: int, k: int, dtype: torch.dtype = torch.float32) -> GemmConfig:
        """Return the tiles of highest utilization; among equals the largest, which read least.

        Raises:
            ValueError: a size is below 1.
        """
        if min(m, n, k) < 1:
            raise ValueError(f"sizes must be at least 1, got {(m, n, k)}")
        systolic, why = self._systolic(dtype)
        depth = _DEPTH_BYTES // dtype.itemsize if systolic else 1
        tile_k, width = max(depth, 32), self.width if systolic else _ROWS

        def waves(tile_m: int, tile_n: int) -> tuple[int, int]:
            groups = math.ceil(m / tile_m) * math.ceil(n / tile_n)
            return groups, math.ceil(groups / self.units)

        def share(tile: tuple[int, int]) -> float:
            return m * n / (waves(*tile)[1] * self.units * math.prod(tile))

        tiles = [
            (tm, tn)
            for tm, tn in product(_TILES, _TILES)
            if tn % width == 0 and (tm + tn) * tile_k * dtype.itemsize <= self.local_bytes
        ]
        best = max(tiles, key=lambda tile: (share(tile), math.prod(tile)))
        groups, rounds = waves(*best)
        deep = k / (depth * math.ceil(k / depth))  # a product's depth is padded too
        reason = f"{why}; {groups} tiles on {self.units} units in {rounds} wave(s)"
        used = share(best) * deep
        return GemmConfig(*best, tile_k, groups, rounds, used, systolic, reason)

    def _systolic(self, dtype: torch.dtype) -> tuple[bool, str]:
        if not self.hardware.has("matrix_cores"):
            return False, f"{self.hardware.architecture} has no matrix units"
        if dtype.itemsize > 2:
            return False, f"the matrix units do not multiply {str(dtype).removeprefix('torch.')}"
        return True, f"matrix units, {_DEPTH_BYTES // dtype.itemsize} deep"

    def conv_config(
        self,
        image: tuple[int, int, int, int],
        out_channels: int,
        kernel: tuple[int, int],
        dtype: torch.dtype = torch.float32,
        *,
        stride: int = 1,
    ) -> tuple[GemmConfig, torch.memory_format]:
        """Return tiling and memory format of a convolution with "same" padding.

        The image [N, C, H, W] is treated as a product [N*H*W, C*kh*kw] x [C*kh*kw, out];
        channels_last is chosen if a pixel's channels fill a cache line.

        Raises:
            ValueError: a size is below 1.
        """
        batch, channels, height, width = image
        m = batch * math.ceil(height / stride) * math.ceil(width / stride)
        k = channels * math.prod(kernel)
        fills = channels * dtype.itemsize >= 64  # bytes
        layout = torch.channels_last if fills else torch.contiguous_format
        return self.gemm_config(m, out_channels, k, dtype), layout

    def attention_config(
        self,
        batch: int,
        heads: int,
        q_length: int,
        k_length: int,
        head_dim: int,
        dtype: torch.dtype = torch.float32,
    ) -> AttentionBlocks:
        """Return the largest blocks whose queries, keys and values fit into local memory.

        Raises:
            ValueError: not even the smallest blocks fit.
        """
        scores = batch * heads * q_length * k_length * dtype.itemsize
        on_chip = self.local_bytes * self.units
        most = self.local_bytes // (head_dim * dtype.itemsize)  # rows of queries, keys and values
        fitting = [(q, k) for q, k in product(_BLOCKS, _BLOCKS) if q + 2 * k <= most]
        if not fitting:
            raise ValueError(f"head_dim {head_dim} does not fit into {self.local_bytes:,} bytes")
        q, k = max(fitting, key=lambda b: (math.prod(b), b[0]))
        fused = scores > on_chip
        word = "do not fit" if fused else "fit"
        reason = f"{scores:,} bytes of scores {word} into {on_chip:,} bytes of local memory"
        return AttentionBlocks(fused, q, k, reason)


def __getattr__(name: str) -> bool:
    """Evaluate `XPU_AVAILABLE` and `IPEX_AVAILABLE` at each access."""
    if name == "XPU_AVAILABLE":
        return is_xpu_available()
    if name == "IPEX_AVAILABLE":
        return is_ipex_available()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
