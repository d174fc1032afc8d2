"""How products, convolutions and attention divide over a GPU's units, computed from their shapes.

The figures follow from the sizes of the matrix units' own products and the number of units; each
comes with its reason. They say which shapes waste work, before anything runs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product

import torch

from torchbridge.hardware import Hardware

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
