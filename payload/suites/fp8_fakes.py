"""Fakes that refuse what the real ones refuse: Transformer Engine, and torch's scaled multiply.

The first records what it is asked for; the second computes in float64. Its layouts and refusals are
those of aten/src/ATen/native/cuda/ScaledBlas.cpp (sm_90, cuBLAS 12.9).
"""

from __future__ import annotations

from contextlib import contextmanager
from enum import Enum, IntEnum
from functools import lru_cache
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

from torchbridge.fp8 import matmul
from torchbridge.fp8.matmul import _search

ALLOWED = {"margin", "fp8_format", "amax_history_len", "amax_compute_algo"}
ALLOWED |= {"scaling_factor_compute_algo"}


class Format(Enum):
    """Its names for pairs of formats, forward and backward."""

    E4M3 = "e4m3 both"
    E5M2 = "e5m2 both"
    HYBRID = "e4m3 forward, e5m2 backward"


Calls = list[tuple[str, dict]]


def fake_transformer_engine(*, current: bool = True) -> SimpleNamespace:
    """A package with `.pytorch` and `.common.recipe`; `.calls` has what was asked of it.

    It refuses what the real one refuses (https://docs.nvidia.com/deeplearning/transformer-engine):
    unknown arguments, algorithms that are no such word, a scaling function that is a word.
    `current`: does it have Float8CurrentScaling?
    """
    calls: Calls = []
    common = SimpleNamespace(recipe=_recipes(calls, current))
    return SimpleNamespace(pytorch=_pytorch(calls), common=common, calls=calls)


def _recipes(calls: Calls, current: bool) -> SimpleNamespace:
    """transformer_engine.common.recipe."""

    def delayed(**given) -> SimpleNamespace:
        assert set(given) <= ALLOWED, set(given) - ALLOWED
        assert given["amax_compute_algo"] in ("max", "most_recent")
        function = given["scaling_factor_compute_algo"]
        assert function is None or callable(function), "Input should be callable"
        assert isinstance(given["fp8_format"], Format)
        calls.append(("DelayedScaling", given))
        return SimpleNamespace(**given)

    def current_scaling(*, fp8_format: Format) -> SimpleNamespace:
        calls.append(("Float8CurrentScaling", {"fp8_format": fp8_format}))
        return SimpleNamespace(fp8_format=fp8_format)

    recipes = SimpleNamespace(Format=Format, DelayedScaling=delayed)
    if current:
        recipes.Float8CurrentScaling = current_scaling
    return recipes


def _pytorch(calls: Calls) -> SimpleNamespace:
    """transformer_engine.pytorch."""
    within: list[object] = []

    class Linear(nn.Linear):
        """te.pytorch.Linear's arguments."""

        def __init__(self, in_features, out_features, bias=True, *, params_dtype, device) -> None:
            super().__init__(in_features, out_features, bias, dtype=params_dtype, device=device)
            calls.append(("Linear", {"widths": (in_features, out_features), "bias": bias}))

        def forward(self, x):
            calls.append(("forward", {"within": list(within)}))
            return super().forward(x)

    @contextmanager
    def fp8_autocast(*, enabled, fp8_recipe):
        calls.append(("fp8_autocast", {"enabled": enabled, "fp8_recipe": fp8_recipe}))
        within.append(fp8_recipe)
        yield
        within.pop()

    return SimpleNamespace(Linear=Linear, fp8_autocast=fp8_autocast)


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
