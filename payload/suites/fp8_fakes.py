"""A fake of torch's scaled multiply that refuses what the real one refuses; it computes in float64.

Its layouts and refusals are those of aten/src/ATen/native/cuda/ScaledBlas.cpp (sm_90, cuBLAS 12.9).
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
    """How many numbers share a scale."""

    TensorWise = 0
    RowWise = 1
    BlockWise1x128 = 4
    BlockWise128x128 = 5


def strides(scale: Tensor, shape: tuple[int, int], wanted: tuple[int, int]) -> bool:
    """Of this shape, and laid out so; the stride of a single number does not matter."""
    pairs = zip(scale.shape, scale.stride(), wanted, strict=True)
    return tuple(scale.shape) == shape and all(n <= 1 or have == s for n, have, s in pairs)


class Kernels:
    """`torch._scaled_mm`; `calls` has what was multiplied.

    `ignores_blocks` is a kernel that is wrong: it takes the first scale of b for all of it;
    `adds` one that takes a bias.
    """

    def __init__(
        self, *, blocks: bool = True, ignores_blocks: bool = False, adds: bool = True
    ) -> None:
        self.blocks, self.ignores_blocks, self.adds = blocks, ignores_blocks, adds
        self.calls: list[dict[str, object]] = []

    def multiply(
        self, a, b, scale_a, scale_b, *, bias=None, out_dtype, use_fast_accum=False
    ) -> Tensor:
        """It finds the kind of scales by itself; those of b are transposed."""
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
        """The scale of each number."""
        if scale.ndim < 2:
            return scale.double()
        if b and self.ignores_blocks and scale.shape[1] > 1:
            return scale[0, 0].double()
        height, width = (-(-n // s) for n, s in zip(shape, scale.shape, strict=True))
        full = scale.repeat_interleave(height, 0).repeat_interleave(width, 1)
        return full[: shape[0], : shape[1]].double()


def install(monkeypatch: pytest.MonkeyPatch, **options: bool) -> Kernels:
    """Fakes in the place of torch's kernels for one test, with nothing found out about them yet."""
    fake = Kernels(**options)
    monkeypatch.setattr(matmul, "_KERNEL", fake.multiply)
    monkeypatch.setattr(matmul, "_search", lru_cache(_search.__wrapped__))
    return fake
