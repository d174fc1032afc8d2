"""Softmax over the last dimension and its gradient, in float32 whatever the input's dtype.

A row that fits is read once. A wider one is read twice: maximum and sum are found together, the sum
being scaled down whenever a block raises the maximum. The next blocks are loaded meanwhile: rows
may be too few to hide the wait.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from torchbridge.kernels.gpu import launching
from torchbridge.kernels.gpu.rows import as_rows, plan

WIDEST = 16384  # numbers of a row that are kept in registers


@triton.jit
def forward(x, y, rows, width, stride, height: tl.constexpr, block: tl.constexpr):
    """y = e^(x - max) / sum, rows fit; a row of -inf alone is NaN, as torch's."""
    row = tl.program_id(0).to(tl.int64) * height + tl.arange(0, height)
    column = tl.arange(0, block)
    live = (row < rows)[:, None] & (column < width)[None, :]
    value = tl.load(x + row[:, None] * stride + column[None, :], mask=live, other=-float("inf"))
    value = value.to(tl.float32)
    power = tl.exp(value - tl.max(value, 1)[:, None])
    power = tl.where(live, power, 0.0)
    result = power / tl.sum(power, 1)[:, None]
    target = y + row[:, None] * width + column[None, :]
    tl.store(target, result.to(y.dtype.element_ty), mask=live)


@triton.jit
def forward_wide(x, y, rows, width, stride, height: tl.constexpr, block: tl.constexpr):
    """As `forward`, for one row that does not fit."""
    row = tl.program_id(0).to(tl.int64)
    highest = -float("inf")
    total = 0.0
    for start in tl.range(0, width, block, num_stages=3):
        column = start + tl.arange(0, block)
        value = tl.load(x + row * stride + column, mask=column < width, other=-float("inf"))
        value = value.to(tl.float32)
        raised = tl.maximum(highest, tl.max(value, 0))
        level = tl.where(raised == -float("inf"), 0.0, raised)  # -inf so far: its powers are 0
        total = total * tl.exp(highest - level) + tl.sum(tl.exp(value - level), 0)
        highest = raised
    for start in tl.range(0, width, block, num_stages=3):
        column = start + tl.arange(0, block)
        value = tl.load(x + row * stride + column, mask=column < width, other=0.0).to(tl.float32)
        result = tl.exp(value - highest) / total
        tl.store(y + row * width + column, result.to(y.dtype.element_ty), mask=column < width)


@triton.jit
def backward(
    upstream, y, slope, rows, width, upstream_stride, stride,
    height: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    """slope = y * (upstream - sum(upstream * y)), rows fit."""
    row = tl.program_id(0).to(tl.int64) * height + tl.arange(0, height)
    column = tl.arange(0, block)
    live = (row < rows)[:, None] & (column < width)[None, :]
    at = upstream + row[:, None] * upstream_stride + column[None, :]
    given = tl.load(at, mask=live, other=0.0).to(tl.float32)
    share = tl.load(y + row[:, None] * stride + column[None, :], mask=live, other=0.0)
    share = share.to(tl.float32)
    result = share * (given - tl.sum(given * share, 1)[:, None])
    target = slope + row[:, None] * width + column[None, :]
    tl.store(target, result.to(slope.dtype.element_ty), mask=live)


@triton.jit
def backward_wide(
    upstream, y, slope, rows, width, upstream_stride, stride,
    height: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    """As `backward`, for one row that does not fit."""
    row = tl.program_id(0).to(tl.int64)
    total = 0.0
    for start in tl.range(0, width, block, num_stages=3):
        column = start + tl.arange(0, block)
        live = column < width
        given = tl.load(upstream + row * upstream_stride + column, mask=live, other=0.0)
        share = tl.load(y + row * stride + column, mask=live, other=0.0).to(tl.float32)
        total += tl.sum(given.to(tl.float32) * share, 0)
    for start in tl.range(0, width, block, num_stages=3):
        column = start + tl.arange(0, block)
        live = column < width
        given = tl.load(upstream + row * upstream_stride + column, mask=live, other=0.0)
        share = tl.load(y + row * stride + column, mask=live, other=0.0).to(tl.float32)
        result = share * (given.to(tl.float32) - total)
        tl.store(slope + row * width + column, result.to(slope.dtype.element_ty), mask=live)


def softmax(x: Tensor) -> Tensor:
    """e^x / sum(e^x) over the last dimension of x [..., n]; differentiable.

    x of any strides; the output is contiguous.
    """
    return _Softmax.apply(as_rows(x)).view(x.shape)


class _Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = x.new_empty(x.shape)
        _launch(forward, forward_wide, (x, y), x.stride(0))
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        if torch.is_grad_enabled():  # to be differentiated again
            given, share = upstream.float(), y.float()
            return (share * (given - (given * share).sum(1, keepdim=True))).to(y.dtype)
        given, slope = as_rows(upstream), torch.empty_like(y)
        _launch(backward, backward_wide, (given, y, slope), given.stride(0), y.stride(0))
        return slope


def _launch(fitting: Any, wide: Any, tensors: tuple[Tensor, ...], *strides: int) -> None:
    """Run one of two kernels over the rows; the last tensor is the output."""
    (rows, width), how = tensors[-1].shape, plan(tensors[-1].shape[1], WIDEST)
    if not tensors[-1].numel():
        return
    kernel = wide if how.wide else fitting
    with launching(tensors[-1]):
        kernel[(triton.cdiv(rows, how.height),)](
            *tensors, rows, width, *strides,
            height=how.height, block=how.block, num_warps=how.warps,
        )  # fmt: skip
