"""Intel's GPUs by torch.xpu. Without one it says so and works on the CPU.

Intel's extension (IPEX) is only looked for. `IntelKernelOptimizer` says how products, convolutions
and attention divide over a GPU's units, from their shapes: which of them waste work, before
anything runs.
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
from torchbridge.backends.errors import DeviceError, NotAvailable, OptimizationError
from torchbridge.backends.memory import IntelMemoryManager
from torchbridge.backends.optimise import LEVELS, bfloat16, passes_of
from torchbridge.config import Config, IntelArchitecture, IntelConfig, PrecisionFormat
from torchbridge.config.vendors import INTEL_LEVELS as LEVELS_OF_INTEL
from torchbridge.hardware import Hardware, probe
from torchbridge.passes import Pass, Prepared

__all__ = [
    "AttentionBlocks",
    "ConvConfig",
    "GemmConfig",
    "IntelBackend",
    "IntelKernelOptimizer",
    "IntelMemoryManager",
    "IntelOptimizer",
    "XPUDeviceInfo",
    "XPUDeviceManager",
    "XPUOptimizations",
    "get_ipex_version",
    "intel_hardware",
    "is_ipex_available",
    "is_xpu_available",
]

_IPEX = "intel_extension_for_pytorch"
# Those with XMX units multiply both 16-bit formats; the integrated ones meant here have none
_FEATURES = {
    "pvc": {"fp16", "bf16", "matrix_cores"},
    "ats": {"fp16", "bf16", "matrix_cores"},
    "flex": {"fp16", "bf16", "matrix_cores"},
    "dg2": {"fp16", "bf16", "matrix_cores"},
    "integrated": {"fp16"},
}


def is_xpu_available() -> bool:
    """Does torch see an XPU?"""
    return torch.xpu.is_available()


def is_ipex_available() -> bool:
    """Is Intel's extension installed? It is archived, and nothing here needs it."""
    return importlib.util.find_spec(_IPEX) is not None


def get_ipex_version() -> str | None:
    """Of the installed extension."""
    return importlib.metadata.version(_IPEX) if is_ipex_available() else None


def require_xpu() -> torch.device:
    """The first XPU.

    Raises:
        NotAvailable: what is missing.
    """
    if not is_xpu_available():
        built = "sees no XPU" if getattr(torch.version, "xpu", None) else "is not built for XPUs"
        raise NotAvailable(f"torch {torch.__version__} {built}")
    return torch.device("xpu", 0)


def require_ipex() -> str:
    """The installed extension's version.

    Raises:
        NotAvailable: it is not there.
    """
    version = get_ipex_version()
    if version is None:
        raise NotAvailable(f"{_IPEX} is not installed; torch.xpu does without it")
    return version


def require_onednn() -> None:
    """Refuse a torch whose products are not oneDNN's.

    Raises:
        NotAvailable: it is built without.
    """
    if not torch.backends.mkldnn.is_available():
        raise NotAvailable(f"torch {torch.__version__} is built without oneDNN")


def intel_hardware(architecture: IntelArchitecture, **facts: float) -> Hardware:
    """A GPU of an architecture, to try rules with; facts are further fields of `Hardware`."""
    name = architecture.value
    told = {"target": "xpu", "features": frozenset(_FEATURES.get(name, set()))}
    return Hardware("intel", f"Intel {name}", name, **told, **facts)


@dataclass(frozen=True, slots=True)
class XPUDeviceInfo:
    """One device, as torch tells."""

    index: int
    name: str
    memory_bytes: int
    units: int
    features: frozenset[str]

    @classmethod
    def of(cls, hardware: Hardware, index: int) -> XPUDeviceInfo:
        """What matters of a device's hardware."""
        found = hardware
        return cls(index, found.name, found.memory_bytes, found.units, found.features)


class XPUDeviceManager:
    """The XPUs of this machine; none is no error until one is needed."""

    @property
    def device_count(self) -> int:
        """How many."""
        return torch.xpu.device_count()

    def get_device(self, index: int = 0) -> torch.device:
        """An XPU; the CPU, with a warning, where there is none at all.

        Raises:
            DeviceError: there are XPUs, but not so many.
        """
        if not is_xpu_available():
            warnings.warn("no XPU here: the CPU takes its place", stacklevel=2)
            return torch.device("cpu")
        return self._existing(index)

    def device_info(self, index: int = 0) -> XPUDeviceInfo:
        """Of one XPU.

        Raises:
            DeviceError: it is not there.
        """
        return XPUDeviceInfo.of(probe(self._existing(index)), index)

    def _existing(self, index: int) -> torch.device:
        if not 0 <= index < self.device_count:
            raise DeviceError(f"no XPU {index}: there are {self.device_count}")
        return torch.device("xpu", index)


_NAMES = dict(zip(LEVELS_OF_INTEL, LEVELS, strict=True))


class IntelBackend(Backend):
    """An Intel GPU. Levels go by either name: O0, O1, O2, or conservative, balanced, aggressive."""

    name = "intel"
    vendor = "intel"
    device_error = DeviceError
    pass_error = OptimizationError

    def __init__(self, config: Config | None = None, **options: Any) -> None:
        """As every backend's.

        Raises:
            NotAvailable: the settings insist (`enabled`), and there is no XPU.
            DeviceError: their `device_id` is not there, or of another architecture.
        """
        super().__init__(config, **options)
        if self.settings.enabled and not self.devices:
            require_xpu()
        asked, found = self.settings.architecture, self.hardware.architecture
        named = {one.value for one in IntelArchitecture} - {"auto"}  # torch tells others by number
        if asked.value in named and found in named and asked.value != found:
            raise DeviceError(f"architecture is {asked.value}, the device is {found}")
        self.memory = IntelMemoryManager(self.settings, self.device)

    @property
    def device_index(self) -> int:
        """Intel's own `device_id`, else the config's."""
        return self.settings.device_id or super().device_index

    def level_of(self, level: str | None) -> str:
        """By either name; for None that of Intel's own settings."""
        wanted = self.settings.optimization_level if level is None else level
        return super().level_of(_NAMES.get(wanted, wanted))

    @property
    def settings(self) -> IntelConfig:
        """Intel's part of the config."""
        return self.config.hardware.intel

    @classmethod
    def find_devices(cls) -> list[torch.device]:
        """The XPUs of this machine."""
        return [torch.device("xpu", index) for index in range(torch.xpu.device_count())]

    @property
    def is_xpu_available(self) -> bool:
        """Does torch see an XPU?"""
        return is_xpu_available()

    def passes(self, level: str, training: bool) -> Sequence[Pass]:
        """The shared ones; no bfloat16 where `default_precision` is fp32."""
        shared = passes_of(level, training=training)
        kept = self.settings.default_precision is PrecisionFormat.FP32
        return [one for one in shared if not (kept and one is bfloat16)]

    def memory_summary(self) -> str:
        """One line for a person."""
        return self.memory.memory_summary()


class IntelOptimizer(Optimizer):
    """Intel's levels: O0, O1, O2."""

    backend_class = IntelBackend

    def optimize(self, model: nn.Module, *given: Any, **options: Any) -> OptimizationResult:
        """As every optimizer's; the result's level goes by Intel's name.

        Raises:
            TypeError: the model is no module.
        """
        result = super().optimize(model, *given, **options)
        names = {theirs: ours for ours, theirs in _NAMES.items()}
        return dataclasses.replace(result, optimization_level=names[result.optimization_level])


class XPUOptimizations:
    """Decisions for one device, and inference by them."""

    def __init__(self, backend: IntelBackend) -> None:
        self.backend = backend

    def get_optimal_dtype(self) -> torch.dtype:
        """The narrowest that is native and keeps float32's range; else float32."""
        return torch.bfloat16 if self.backend.hardware.has("bf16") else torch.float32

    def optimize_model_for_inference(
        self, model: nn.Module, sample_inputs: Sequence[Tensor] = ()
    ) -> Prepared:
        """The model at O2.

        Raises:
            TypeError: the model is no module.
        """
        if not isinstance(model, nn.Module):
            raise TypeError(f"expected a torch.nn.Module, got {type(model).__name__}")
        return self.backend.prepare_model(model, level="O2", sample_inputs=sample_inputs)


# Columns of one systolic product (DPAS): its SIMD width. It has 8 rows, and is 8 words of 32 bits
# deep: https://registry.khronos.org/OpenCL/extensions/intel/
# cl_intel_subgroup_matrix_multiply_accumulate.html
_WIDTH = {"pvc": 16, "ats": 8, "flex": 8, "dg2": 8}
_ROWS, _DEPTH_BYTES = 8, 32
# Local memory that one work-group may have, in bytes
_LOCAL = {"pvc": 128 * 1024}
_LOCAL_ELSEWHERE = 64 * 1024
_TILES = (8, 16, 32, 64, 128, 256)
_BLOCKS = (16, 32, 64, 128, 256)


@dataclass(frozen=True, slots=True)
class GemmConfig:
    """[m, k] x [k, n] in tiles. `utilization`: useful work over what all units could do meanwhile.

    `systolic`: are the matrix units used? `padding`: share of the tiles' work on no data.
    """

    tile_m: int
    tile_n: int
    tile_k: int
    work_groups: int
    waves: int
    padding: float
    utilization: float
    systolic: bool
    reason: str


@dataclass(frozen=True, slots=True)
class ConvConfig:
    """A convolution as the product that it is: [N*H*W, C*kh*kw] x [C*kh*kw, out]."""

    gemm: GemmConfig
    m: int
    n: int
    k: int
    memory_format: torch.memory_format
    reason: str


@dataclass(frozen=True, slots=True)
class AttentionBlocks:
    """`fused`: scores are made block by block and never stored; else they are stored once.

    `local_bytes` is what a block's queries, keys and values take.
    """

    fused: bool
    q_block: int
    k_block: int
    scores_bytes: int
    local_bytes: int
    reason: str


class IntelKernelOptimizer:
    """For one device. `units` unknown (0) counts as one: then tiles are judged by padding alone.

    An architecture that is not known here counts as the narrowest.
    """

    def __init__(self, hardware: Hardware) -> None:
        self.hardware = hardware
        self.units = max(1, hardware.units)
        self.local_bytes = _LOCAL.get(hardware.architecture, _LOCAL_ELSEWHERE)

    def gemm_config(self, m: int, n: int, k: int, dtype: torch.dtype = torch.float32) -> GemmConfig:
        """The tiles of highest utilization; of equals the largest, which reads the least.

        Raises:
            ValueError: a size below 1.
        """
        if min(m, n, k) < 1:
            raise ValueError(f"sizes must be at least 1, got {(m, n, k)}")
        systolic, why = self._systolic(dtype)
        depth = _DEPTH_BYTES // dtype.itemsize if systolic else 1
        tile_k = max(depth, 32)
        width = _WIDTH.get(self.hardware.architecture, _ROWS) if systolic else _ROWS
        tiles = [
            (tm, tn)
            for tm, tn in product(_TILES, _TILES)
            if tn % width == 0 and (tm + tn) * tile_k * dtype.itemsize <= self.local_bytes
        ]
        best = max(tiles, key=lambda t: (self._utilization(m, n, *t), math.prod(t)))
        found = self._tiled((m, n, k), (*best, depth), f"{why}; ")
        return GemmConfig(*best, tile_k, *found[:4], systolic, found[4])

    def _systolic(self, dtype: torch.dtype) -> tuple[bool, str]:
        if not self.hardware.has("matrix_cores"):
            return False, f"{self.hardware.architecture} has no matrix units"
        if dtype.itemsize > 2:
            return False, f"the matrix units do not multiply {str(dtype).removeprefix('torch.')}"
        return True, f"matrix units, {_DEPTH_BYTES // dtype.itemsize} deep"

    def _utilization(self, m: int, n: int, tile_m: int, tile_n: int) -> float:
        groups = math.ceil(m / tile_m) * math.ceil(n / tile_n)
        return m * n / (math.ceil(groups / self.units) * self.units * tile_m * tile_n)

    def _tiled(
        self, sizes: tuple[int, ...], tiles: tuple[int, ...], why: str
    ) -> tuple[int, int, float, float, str]:
        """Work groups, waves, padding, utilization, reason. A product's depth is padded too."""
        counts = [math.ceil(size / tile) for size, tile in zip(sizes, tiles, strict=True)]
        groups = counts[0] * counts[1]
        waves = math.ceil(groups / self.units)
        padded = math.prod(c * t for c, t in zip(counts, tiles, strict=True))
        padding = 1 - math.prod(sizes) / padded
        share = math.prod(sizes) / (padded / groups * waves * self.units)
        reason = f"{why}{groups} tiles on {self.units} units in {waves} wave(s)"
        return groups, waves, padding, share, reason

    def conv_config(
        self,
        image: tuple[int, int, int, int],
        out_channels: int,
        kernel: tuple[int, int],
        dtype: torch.dtype = torch.float32,
        *,
        stride: int = 1,
    ) -> ConvConfig:
        """For an image [N, C, H, W], padded to keep its size before the stride.

        Raises:
            ValueError: a size below 1.
        """
        batch, channels, height, width = image
        m = batch * math.ceil(height / stride) * math.ceil(width / stride)
        k = channels * kernel[0] * kernel[1]
        gemm = self.gemm_config(m, out_channels, k, dtype)
        if channels * dtype.itemsize >= 64:  # bytes of a cache line
            layout, why = torch.channels_last, "a pixel's channels fill cache lines"
        else:
            layout, why = torch.contiguous_format, "a pixel's channels do not fill a cache line"
        return ConvConfig(gemm, m, out_channels, k, layout, why)

    def attention_config(
        self,
        batch: int,
        heads: int,
        q_length: int,
        k_length: int,
        head_dim: int,
        dtype: torch.dtype = torch.float32,
    ) -> AttentionBlocks:
        """The largest blocks whose queries, keys and values fit into a core's local memory."""
        scores = batch * heads * q_length * k_length * dtype.itemsize
        on_chip = self.local_bytes * self.units

        def local(q: int, k: int) -> int:
            return (q + 2 * k) * head_dim * dtype.itemsize

        fitting = [b for b in product(_BLOCKS, _BLOCKS) if local(*b) <= self.local_bytes]
        if not fitting:
            raise ValueError(f"head_dim {head_dim} does not fit into {self.local_bytes:,} bytes")
        q, k = max(fitting, key=lambda b: (math.prod(b), b[0]))
        fused = scores > on_chip
        word = "do not fit" if fused else "fit"
        reason = f"{scores:,} bytes of scores {word} into {on_chip:,} bytes of local memory"
        return AttentionBlocks(fused, q, k, scores, local(q, k), reason)


def __getattr__(name: str) -> bool:
    """`XPU_AVAILABLE` and `IPEX_AVAILABLE`, asked anew each time."""
    if name == "XPU_AVAILABLE":
        return is_xpu_available()
    if name == "IPEX_AVAILABLE":
        return is_ipex_available()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
