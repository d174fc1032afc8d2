"""Rows to float8 e4m3 with a scale for each, in one read; the convention is `torchbridge.fp8`'s.

scale = largest / amax, 1 for a row of zeros, at most 2^126; q = x * scale, saturated; what is
infinite becomes NaN. The result is that of `FP8QuantizedTensor.from_tensor` with Granularity.ROW,
bit for bit but for the sign of NaN: the inverse is rounded to nearest, the products are float32's.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from torchbridge.kernels.gpu import launching
from torchbridge.kernels.gpu.rows import as_rows, plan

WIDEST = 16384  # numbers of a row that are kept in registers
LARGEST_SCALE = 2.0**126  # its inverse is still a normal float32
ENCODINGS = (torch.float8_e4m3fn, torch.float8_e4m3fnuz)


@triton.jit
def quantise(
    x, q, scale, rows, width, stride, limit, largest_scale,
    height: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    """q = x * scale, scale = limit / amax; rows fit."""
    row = tl.program_id(0).to(tl.int64) * height + tl.arange(0, height)
    column = tl.arange(0, block)
    live = (row < rows)[:, None] & (column < width)[None, :]
    value = tl.load(x + row[:, None] * stride + column[None, :], mask=live, other=0.0)
    value = value.to(tl.float32)
    unreal = tl.max((value != value).to(tl.int32), 1)
    factor = _scale(tl.max(tl.abs(value), 1), unreal, limit, largest_scale)
    tl.store(scale + row, factor, mask=row < rows)
    target = q + row[:, None] * width + column[None, :]
    tl.store(target, _narrow(value * factor[:, None], limit, q), mask=live)


@triton.jit
def quantise_wide(
    x, q, scale, rows, width, stride, limit, largest_scale,
    height: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    """As `quantise`, for one row that does not fit."""
    row = tl.program_id(0).to(tl.int64)
    highest = tl.zeros((block,), tl.float32)
    unreal = tl.zeros((block,), tl.int32)
    for start in range(0, width, block):
        column = start + tl.arange(0, block)
        value = tl.load(x + row * stride + column, mask=column < width, other=0.0).to(tl.float32)
        highest = tl.maximum(highest, tl.abs(value))
        unreal = tl.maximum(unreal, (value != value).to(tl.int32))
    factor = _scale(tl.max(highest, 0), tl.max(unreal, 0), limit, largest_scale)
    tl.store(scale + row, factor)
    for start in range(0, width, block):
        column = start + tl.arange(0, block)
        value = tl.load(x + row * stride + column, mask=column < width, other=0.0).to(tl.float32)
        narrow = _narrow(value * factor, limit, q)
        tl.store(q + row * width + column, narrow, mask=column < width)


@triton.jit
def _scale(amax, unreal, limit, largest_scale):
    """The scale that puts `amax` at `limit`; NaN where a number of the row is."""
    inverse = tl.div_rn(1.0, tl.where(amax == 0.0, 1.0, amax))  # as torch divides a number by amax
    factor = tl.minimum(limit * inverse, largest_scale)
    factor = tl.where(amax == 0.0, 1.0, factor)
    return tl.where(unreal != 0, float("nan"), factor)


@triton.jit
def _narrow(scaled, limit, q):
    """Saturated and rounded to q's dtype; what was infinite is NaN by its scale, which is 0."""
    held = tl.minimum(tl.maximum(scaled, -limit), limit)
    return tl.where(scaled != scaled, float("nan"), held).to(q.dtype.element_ty)


def quantise_rows(x: Tensor, dtype: torch.dtype = torch.float8_e4m3fn) -> tuple[Tensor, Tensor]:
    """x [m, n] as float8 [m, n], and its scales [m, 1] in float32: q = x * scale. No gradient.

    x of any strides; the output is contiguous. `dtype` is one of the two encodings of e4m3.

    Raises:
        ValueError: `x` is no matrix, or another dtype.
    """
    if x.ndim != 2 or dtype not in ENCODINGS:
        raise ValueError(f"e4m3 of a matrix is computed, not {dtype} of shape {tuple(x.shape)}")
    given, (rows, width) = as_rows(x.detach()), x.shape
    how, limit = plan(width, WIDEST), torch.finfo(dtype).max
    q = torch.empty(x.shape, dtype=dtype, device=x.device)
    scale = torch.ones(rows, 1, dtype=torch.float32, device=x.device)  # as is, without columns
    if x.numel():
        with launching(x):
            (quantise_wide if how.wide else quantise)[(triton.cdiv(rows, how.height),)](
                given, q, scale, rows, width, given.stride(0), limit, LARGEST_SCALE,
                height=how.height, block=how.block, num_warps=how.warps,
            )  # fmt: skip
    return q, scale
