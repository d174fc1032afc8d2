"""Scales. `scale` is always the quantisation scale: q = x * scale and x = q / scale.

A matrix [M, K] has one scale for all of it, one per row, per 128 columns of a row, or per tile of
128 x 128; the last two keep an outlier's harm in its block.
"""

from __future__ import annotations

from enum import Enum

import torch
import torch.nn.functional as F
from torch import Tensor

from torchbridge.fp8.formats import FP8Dtype, native_dtype

BLOCK = 128
_LARGEST_SCALE = 2.0**126  # its inverse is still a normal float32


class Granularity(str, Enum):
    """How many numbers share a scale."""

    TENSOR = "tensor"  # scale []
    ROW = "row"  # scale [M, 1]
    BLOCK = "block"  # scale [M, ceil(K / 128)]
    TILE = "tile"  # scale [ceil(M / 128), ceil(K / 128)]


def amax_of(x: Tensor, granularity: Granularity = Granularity.TENSOR) -> Tensor:
    """Largest magnitude of those that share a scale, float32; x [M, K], any shape for TENSOR.

    Raises:
        ValueError: `x` is no matrix, and the granularity needs one.
    """
    magnitude = x.detach().abs().float()
    if granularity is Granularity.TENSOR:
        return magnitude.amax() if x.numel() else magnitude.new_zeros(())
    if x.ndim != 2:
        raise ValueError(f"{granularity.value} scales need a matrix, not shape {tuple(x.shape)}")
    if granularity is Granularity.ROW:
        return F.pad(magnitude, (0, 1)).amax(dim=1, keepdim=True)  # the pad: also without columns
    rows, columns = magnitude.shape
    height = BLOCK if granularity is Granularity.TILE else 1
    padded = F.pad(magnitude, (0, -columns % BLOCK, 0, -rows % height))
    return padded.unflatten(1, (-1, BLOCK)).unflatten(0, (-1, height)).amax(dim=(1, 3))


def scale_from_amax(amax: Tensor, limit: float, margin: float = 0.0) -> Tensor:
    """The scale that puts `amax` at `limit` / 2 ** margin; 1 where amax is 0."""
    scale = limit / (amax * 2.0**margin)
    return torch.where(amax == 0, 1.0, scale.clamp(max=_LARGEST_SCALE))


def compute_fp8_scale(
    x: Tensor,
    fmt: FP8Dtype = FP8Dtype.E4M3,
    margin: float = 0.0,
    *,
    granularity: Granularity = Granularity.TENSOR,
) -> Tensor:
    """Quantisation scale of `x`, float32: q = x * scale.

    `margin` binary orders of magnitude are left free above the largest number.
    """
    limit = torch.finfo(native_dtype(fmt, x.device)).max
    return scale_from_amax(amax_of(x, granularity), limit, margin)


def quantize_to_fp8(x: Tensor, scale: Tensor, fmt: FP8Dtype = FP8Dtype.E4M3) -> Tensor:
    """x * scale, rounded to float8: of x's shape, in the encoding of its device.

    What is finite but too large saturates; infinities become NaN, so that they are not lost.
    """
    dtype = native_dtype(fmt, x.device)
    limit = torch.finfo(dtype).max
    scaled = x.detach().float() * spread(scale, x.shape)
    return torch.where(scaled.isinf(), torch.nan, scaled.clamp(-limit, limit)).to(dtype)


def dequantize_from_fp8(
    quantized: Tensor, scale: Tensor, dtype: torch.dtype = torch.float32
) -> Tensor:
    """quantized / scale, where `scale` is the quantisation scale."""
    return (quantized.float() / spread(scale, quantized.shape)).to(dtype)


def spread(scale: Tensor, shape: torch.Size) -> Tensor:
    """`scale` made to broadcast against `shape`: block scales are repeated over their blocks.

    Raises:
        ValueError: the scale fits neither way.
    """
    if scale.ndim == 0:
        return scale
    for dim in range(-scale.ndim, 0):
        size, scales = shape[dim], scale.shape[dim]
        if scales not in (1, size):
            if scales != -(-size // BLOCK):
                raise ValueError(f"scales {tuple(scale.shape)} do not fit shape {tuple(shape)}")
            scale = scale.repeat_interleave(BLOCK, dim=dim).narrow(dim, 0, size)
    return scale
