"""RMSNorm and LayerNorm with their gradients, in float32 whatever the input's dtype.

Forward reads a row once. Backward reads x and the upstream gradient once for all three gradients:
a program sums the weight's over its own rows, and its sums are summed at the end, in the same order
each time and without atomics. torch's own backward reads both a second time for the weight's.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from torchbridge.kernels.gpu import launching
from torchbridge.kernels.gpu.rows import Plan, as_rows, plan, units
from torchbridge.kernels.gpu.twice import by_library

FORWARD_WIDEST, BACKWARD_WIDEST = 16384, 8192
TILE = Plan(16, 128, 4)  # of `weight_sums`


@triton.jit
def forward(
    x, weight, bias, y, mean, inverse, rows, width, stride, eps,
    centred: tl.constexpr, height: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    """y = (x - mean) * inverse * weight + bias, inverse = 1 / sqrt(variance + eps); rows fit."""
    row = tl.program_id(0).to(tl.int64) * height + tl.arange(0, height)
    column = tl.arange(0, block)
    live = (row < rows)[:, None] & (column < width)[None, :]
    value = tl.load(x + row[:, None] * stride + column[None, :], mask=live, other=0.0)
    value = value.to(tl.float32)
    if centred:
        middle = tl.sum(value, 1) / width
        tl.store(mean + row, middle, mask=row < rows)
        value = tl.where(live, value - middle[:, None], 0.0)
    scale = tl.rsqrt(tl.sum(value * value, 1) / width + eps)
    tl.store(inverse + row, scale, mask=row < rows)
    result = _affine(value * scale[:, None], weight, bias, column, width)
    target = y + row[:, None] * width + column[None, :]
    tl.store(target, result.to(y.dtype.element_ty), mask=live)


@triton.jit
def forward_wide(
    x, weight, bias, y, mean, inverse, rows, width, stride, eps,
    centred: tl.constexpr, height: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    """As `forward`, one row at a time: moments are merged block by block, then it is read again."""
    row = tl.program_id(0).to(tl.int64)
    middle, squares = 0.0, 0.0
    for start in range(0, width, block):
        column = start + tl.arange(0, block)
        value = tl.load(x + row * stride + column, mask=column < width, other=0.0).to(tl.float32)
        if centred:
            count = tl.minimum(block, width - start)
            part = tl.sum(value, 0) / count
            value = tl.where(column < width, value - part, 0.0)
            apart, share = part - middle, count / (start + count)
            squares += tl.sum(value * value, 0) + apart * apart * start * share
            middle += apart * share
        else:
            squares += tl.sum(value * value, 0)
    scale = tl.rsqrt(squares / width + eps)
    tl.store(inverse + row, scale)
    if centred:
        tl.store(mean + row, middle)
    for start in range(0, width, block):
        column = start + tl.arange(0, block)
        value = tl.load(x + row * stride + column, mask=column < width, other=0.0).to(tl.float32)
        result = _affine(((value - middle) * scale)[None, :], weight, bias, column, width)
        target = y + row * width + column[None, :]
        tl.store(target, result.to(y.dtype.element_ty), mask=(column < width)[None, :])


@triton.jit
def backward(
    upstream, x, weight, mean, inverse, slope, weight_part, bias_part,
    rows, width, upstream_stride, stride, steps,
    centred: tl.constexpr, height: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    """The gradient of x, and this program's part of weight's and bias's; rows fit."""
    first = tl.program_id(0).to(tl.int64) * steps * height
    column = tl.arange(0, block)
    factor = 1.0
    if weight is not None:
        factor = tl.load(weight + column, mask=column < width, other=0.0).to(tl.float32)[None, :]
    by_weight = tl.zeros((height, block), tl.float32)
    by_bias = tl.zeros((height, block), tl.float32)
    for step in tl.range(0, steps, num_stages=2):  # loads the next rows meanwhile
        row = first + step * height + tl.arange(0, height)
        live = (row < rows)[:, None] & (column < width)[None, :]
        given, normal, scale = _load_pair(
            upstream, x, mean, inverse, row[:, None], column[None, :], live,
            upstream_stride, stride, (row < rows)[:, None], centred,
        )  # fmt: skip
        pulled = given * factor
        inner = pulled - normal * (tl.sum(pulled * normal, 1) / width)[:, None]
        if centred:
            inner -= (tl.sum(pulled, 1) / width)[:, None]
        target = slope + row[:, None] * width + column[None, :]
        tl.store(target, (inner * scale).to(slope.dtype.element_ty), mask=live)
        by_weight += given * normal
        by_bias += given
    _store_part(weight_part, by_weight, tl.program_id(0), column, width)
    _store_part(bias_part, by_bias, tl.program_id(0), column, width)


@triton.jit
def backward_wide(
    upstream, x, weight, mean, inverse, slope, rows, width, upstream_stride, stride,
    centred: tl.constexpr, height: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    """The gradient of x for one row that does not fit: its two sums, then the row again."""
    row = tl.program_id(0).to(tl.int64)
    whole, along = 0.0, 0.0
    for start in range(0, width, block):
        column = start + tl.arange(0, block)
        live = column < width
        given, normal, scale = _load_pair(
            upstream, x, mean, inverse, row, column, live, upstream_stride, stride, True, centred
        )
        if weight is not None:
            given *= tl.load(weight + column, mask=live, other=0.0).to(tl.float32)
        along += tl.sum(given * normal, 0)
        if centred:
            whole += tl.sum(given, 0)
    for start in range(0, width, block):
        column = start + tl.arange(0, block)
        live = column < width
        given, normal, scale = _load_pair(
            upstream, x, mean, inverse, row, column, live, upstream_stride, stride, True, centred
        )
        if weight is not None:
            given *= tl.load(weight + column, mask=live, other=0.0).to(tl.float32)
        inner = (given - normal * (along / width) - whole / width) * scale
        tl.store(slope + row * width + column, inner.to(slope.dtype.element_ty), mask=live)


@triton.jit
def weight_sums(
    upstream, x, mean, inverse, weight_part, bias_part,
    rows, width, upstream_stride, stride, steps,
    centred: tl.constexpr, height: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    """Part of the gradients of weight and bias: some columns of some rows, where rows are wide."""
    first = tl.program_id(0).to(tl.int64) * steps * height
    column = tl.program_id(1) * block + tl.arange(0, block)
    by_weight = tl.zeros((height, block), tl.float32)
    by_bias = tl.zeros((height, block), tl.float32)
    for step in tl.range(0, steps, num_stages=2):
        row = first + step * height + tl.arange(0, height)
        live = (row < rows)[:, None] & (column < width)[None, :]
        given, normal, _ = _load_pair(
            upstream, x, mean, inverse, row[:, None], column[None, :], live,
            upstream_stride, stride, (row < rows)[:, None], centred,
        )  # fmt: skip
        by_weight += given * normal
        by_bias += given
    _store_part(weight_part, by_weight, tl.program_id(0), column, width)
    _store_part(bias_part, by_bias, tl.program_id(0), column, width)


@triton.jit
def _affine(value, weight, bias, column, width):
    """value [h, b] * weight + bias, each where it is given."""
    if weight is not None:
        factor = tl.load(weight + column, mask=column < width, other=0.0).to(tl.float32)
        value *= factor[None, :]
    if bias is not None:
        shift = tl.load(bias + column, mask=column < width, other=0.0).to(tl.float32)
        value += shift[None, :]
    return value


@triton.jit
def _load_pair(
    upstream, x, mean, inverse, row, column, live, upstream_stride, stride, here,
    centred: tl.constexpr,
):  # fmt: skip
    """The upstream gradient, the normalised x, and the factor that normalised it."""
    given = tl.load(upstream + row * upstream_stride + column, mask=live, other=0.0)
    value = tl.load(x + row * stride + column, mask=live, other=0.0).to(tl.float32)
    if centred:
        value -= tl.load(mean + row, mask=here, other=0.0)
    scale = tl.load(inverse + row, mask=here, other=0.0)
    return given.to(tl.float32), value * scale, scale


@triton.jit
def _store_part(part, total, place, column, width):
    """The sum over the rows of `total` [h, b] as row `place` of `part`, where it is wanted."""
    if part is not None:
        tl.store(part + place * width + column, tl.sum(total, 0), mask=column < width)


def rms_norm(x: Tensor, weight: Tensor | None = None, eps: float | None = None) -> Tensor:
    """x / sqrt(mean(x^2) + eps) * weight over the last dimension: x [..., n], weight [n].

    `eps` is the smallest step of the dtype unless given, as torch's. x of any strides; the output
    is contiguous. Differentiable.

    Raises:
        ValueError: a weight of another shape or on another device.
    """
    return _norm(x, weight, None, torch.finfo(x.dtype).eps if eps is None else eps, False)


def layer_norm(
    x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias over the last dimension, as `rms_norm`."""
    return _norm(x, weight, bias, eps, True)


def _norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, centred: bool
) -> Tensor:
    for one in (weight, bias):
        if one is not None and (one.shape, one.device) != (x.shape[-1:], x.device):
            told = (f"{tuple(each.shape)} on {each.device}" for each in (x, one))
            raise ValueError("x {} cannot have a weight or bias {}".format(*told))
    weight, bias = (one if one is None else one.contiguous() for one in (weight, bias))
    return _Norm.apply(as_rows(x), weight, bias, eps, centred).view(x.shape)


class _Norm(torch.autograd.Function):
    """Of rows: a view that was made in here could not be changed in place by whoever gets it."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, centred: bool
    ) -> Tensor:
        y, mean, inverse = _forward(x, weight, bias, eps, centred)
        ctx.eps = eps
        ctx.save_for_backward(x, weight, bias, mean, inverse)
        return y

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        *given, mean, inverse = ctx.saved_tensors
        x, weight, _ = given
        if torch.is_grad_enabled():

            def library(x: Tensor, *affine: Tensor | None) -> Tensor:
                if mean is None:
                    return F.rms_norm(x, x.shape[1:], affine[0], ctx.eps)
                return F.layer_norm(x, x.shape[1:], *affine, ctx.eps)

            return *by_library(library, given, upstream), None, None
        wanted = ctx.needs_input_grad[1:3]
        slope, *parts = _backward(as_rows(upstream), x, weight, mean, inverse, wanted)
        sums = [None if part is None else part.sum(0).to(x.dtype) for part in parts]
        return slope, *sums, None, None


def _forward(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, centred: bool
) -> tuple[Tensor, Tensor | None, Tensor]:
    """y [m, n], the rows' means [m] (LayerNorm's) and inverse deviations [m]."""
    (rows, width), how = x.shape, plan(x.shape[1], FORWARD_WIDEST)
    y, inverse = x.new_empty(x.shape), x.new_empty(rows, dtype=torch.float32)
    mean = torch.empty_like(inverse) if centred else None
    if x.numel():
        kernel, programs = forward_wide if how.wide else forward, triton.cdiv(rows, how.height)
        with launching(x):
            kernel[(programs,)](
                x, weight, bias, y, mean, inverse, rows, width, x.stride(0), eps,
                centred=centred, height=how.height, block=how.block, num_warps=how.warps,
            )  # fmt: skip
    return y, mean, inverse


def _backward(
    upstream: Tensor, x: Tensor, weight: Tensor | None, mean: Tensor | None, inverse: Tensor,
    wanted: tuple[bool, bool],
) -> tuple[Tensor, Tensor | None, Tensor | None]:  # fmt: skip
    """The gradient of x, and the programs' parts [p, n] of those of weight and bias."""
    (rows, width), how = x.shape, plan(x.shape[1], BACKWARD_WIDEST)
    slope, tile = x.new_empty(x.shape), TILE if how.wide else how
    programs = max(1, min(triton.cdiv(rows, tile.height), units(x) * (16 // tile.warps)))
    make = x.new_empty if x.numel() else x.new_zeros
    made = [make((programs, width), dtype=torch.float32) if one else None for one in wanted]
    if not x.numel():
        return slope, *made
    places = rows, width, upstream.stride(0), x.stride(0)
    steps, centred = triton.cdiv(rows, programs * tile.height), mean is not None
    shape = {"centred": centred, "height": how.height, "block": how.block, "num_warps": how.warps}
    with launching(x):
        if not how.wide:
            given = upstream, x, weight, mean, inverse, slope, *made, *places, steps
            backward[(programs,)](*given, **shape)
            return slope, *made
        backward_wide[(rows,)](upstream, x, weight, mean, inverse, slope, *places, **shape)
        if any(wanted):
            shape = {"height": tile.height, "block": tile.block, "num_warps": tile.warps}
            grid, given = (programs, triton.cdiv(width, tile.block)), (upstream, x, mean, inverse)
            weight_sums[grid](*given, *made, *places, steps, centred=centred, **shape)
    return slope, *made
