"""A fake of torch's scaled product in float64, with the restrictions of the real one.

Its layouts and errors are those of aten/src/ATen/native/cuda/ScaledBlas.cpp (sm_90, cuBLAS 12.9).
"""

from __future__ import annotations

from enum import IntEnum
from functools import lru_cache

import pytest
import torch
from torch import Tensor

from torchbridge.fp8 import matmul
from torchbridge.fp8.matmul import _search

BLOCK = 128
E5M2 = (torch.float8_e5m2, torch.float8_e5m2fnuz)


class ScalingType(IntEnum):
    """Which numbers share a scale: all, a row, or a block."""

    TensorWise = 0
    RowWise = 1
    BlockWise1x128 = 4
    BlockWise128x128 = 5


def strides(scale: Tensor, shape: tuple[int, int], wanted: tuple[int, int]) -> bool:
    """Whether `scale` has this shape and the wanted strides, except in dimensions of size 1."""
    pairs = zip(scale.shape, scale.stride(), wanted, strict=True)
    return tuple(scale.shape) == shape and all(n <= 1 or have == s for n, have, s in pairs)


class Kernels:
    """A fake of `torch._scaled_mm`; `calls` records the products.

    Without `blocks` the fake refuses block scales; without `adds` it refuses a bias. With
    `ignores_blocks` it is wrong: it applies the first block's scale to the whole of b.
    """

    def __init__(
        self, *, blocks: bool = True, ignores_blocks: bool = False, adds: bool = True
    ) -> None:
        self.blocks, self.ignores_blocks, self.adds = blocks, ignores_blocks, adds
        self.calls: list[dict[str, object]] = []

    def multiply(
        self, a, b, scale_a, scale_b, *, bias=None, out_dtype, use_fast_accum=False
    ) -> Tensor:
        """Return the product; the scales' shapes determine their kinds; scale_b is transposed."""
        kinds = self._kind(a, scale_a), self._kind(b.t(), scale_b.t())
        return self.product(a, b, (scale_a, scale_b.t()), kinds, out_dtype, use_fast_accum, bias)

    def _kind(self, matrix: Tensor, scale: Tensor) -> ScalingType:
        rows, blocks = matrix.shape[0], -(-matrix.shape[1] // BLOCK)
        if scale.numel() == 1:
            return ScalingType.TensorWise
        if tuple(scale.shape) == (rows, 1) and scale.is_contiguous():
            return ScalingType.RowWise
        if self.blocks and strides(scale, (rows, blocks), (1, rows)):
            return ScalingType.BlockWise1x128
        if self.blocks and strides(scale, (-(-rows // BLOCK), blocks), (blocks, 1)):
            return ScalingType.BlockWise128x128
        raise ValueError("Invalid scaling configuration")

    def product(self, a, b, scales, kinds, dtype, fast, bias=None) -> Tensor:
        (rows, inner), columns = a.shape, b.shape[1]
        if inner % 16 or columns % 16 or not a.is_contiguous() or not b.t().is_contiguous():
            raise RuntimeError("Expected trailing dimension to be divisible by 16")
        if a.dtype in E5M2 and b.dtype in E5M2:
            raise ValueError("Multiplication of two Float8_e5m2 matrices is not supported")
        if kinds == (ScalingType.BlockWise128x128,) * 2:
            raise ValueError("Invalid scaling configuration")
        if bias is not None and not (self.adds and bias.dtype == dtype and dtype.itemsize == 2):
            raise RuntimeError(f"Bias is not supported when out_dtype is set to {dtype}")
        call = {"sizes": (rows, inner, columns), "kinds": kinds, "fast": fast}
        self.calls.append({**call, "bias": bias is not None})
        left = a.double() * self._spread(scales[0], a.shape)
        right = b.t().double() * self._spread(scales[1], b.t().shape, b=True)
        return (left @ right.t() + (0 if bias is None else bias)).to(dtype)

    def _spread(self, scale: Tensor, shape: torch.Size, b: bool = False) -> Tensor:
        """Return the scale of each number in float64, expanded to `shape` or a scalar."""
        if scale.ndim < 2:
            return scale.double()
        if b and self.ignores_blocks and scale.shape[1] > 1:
            return scale[0, 0].double()
        height, width = (-(-n // s) for n, s in zip(shape, scale.shape, strict=True))
        full = scale.repeat_interleave(height, 0).repeat_interleave(width, 1)
        return full[: shape[0], : shape[1]].double()


def install(monkeypatch: pytest.MonkeyPatch, **options: bool) -> Kernels:
    """Replace torch's kernel by a fake for one test, and clear what is cached about the kernel."""
    fake = Kernels(**options)
    monkeypatch.setattr(matmul, "_KERNEL", fake.multiply)
    monkeypatch.setattr(matmul, "_search", lru_cache(_search.__wrapped__))
    return fake
