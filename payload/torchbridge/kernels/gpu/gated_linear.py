"""act(x gate^T) * (x up^T) in one kernel, and act(x gate^T + bias) without `up`. Needs Triton.

x is read once for both products and neither of them goes through memory. The gradients are
matrix products of the library's and one kernel that makes both products' gradients.

Tiles are by a table, not measured at run time: measuring cannot be put in a CUDA graph.
"""

from __future__ import annotations

from functools import partial

import torch
import triton
import triton.language as tl
from torch import Tensor

from torchbridge.kernels import matrices
from torchbridge.kernels.gpu import launching
from torchbridge.kernels.gpu.tiles import (
    ASYNCHRONOUS,
    Tiles,
    activate,
    candidates,
    load_tile,
    place,
    slope,
    target_of,
)
from torchbridge.kernels.gpu.twice import by_library

ACTIVATIONS = ("relu", "gelu", "gelu_tanh", "silu")
DTYPES = (torch.float16, torch.bfloat16, torch.float32)
GROUP = 8
ELEMENTS = 1024  # of a program of the backward kernel

# The narrow ones are for the few rows of decoding, where the weights are all that is read.
TABLE = (
    Tiles(16, 32, 64, 4, 4, bits=16, rows=16),
    Tiles(64, 32, 64, 4, 3, bits=16, rows=64),
    Tiles(128, 64, 64, 8, 4, bits=16, targets=ASYNCHRONOUS),
    Tiles(128, 64, 64, 8, 3, bits=16),
    Tiles(16, 32, 32, 4, 2, bits=32, rows=16),
    Tiles(32, 32, 32, 4, 2, bits=32),
)


@triton.jit
def gated_linear_kernel(
    x, gate, up, bias, y, gate_kept, up_kept,
    rows, columns, depth, x_stride, gate_stride, up_stride,
    activation: tl.constexpr, gated: tl.constexpr, biased: tl.constexpr, keep: tl.constexpr,
    group: tl.constexpr, block_m: tl.constexpr, block_n: tl.constexpr, block_k: tl.constexpr,
):  # fmt: skip
    """One tile of y [rows, columns]; `keep` writes down both products, for the gradients."""
    m, n = place(tl.program_id(0), rows, columns, block_m, block_n, group)
    row = (m * block_m + tl.arange(0, block_m)).to(tl.int64)
    column = (n * block_n + tl.arange(0, block_n)).to(tl.int64)
    steps = tl.arange(0, block_k)
    first = tl.zeros((block_m, block_n), tl.float32)
    second = tl.zeros((block_m, block_n), tl.float32)
    for k in range(0, depth, block_k):
        part = load_tile(x + row * x_stride, row < rows, k + steps, depth)
        weights = load_tile(gate + column * gate_stride, column < columns, k + steps, depth)
        first = tl.dot(part, weights.T, first, input_precision="ieee")
        if gated:
            weights = load_tile(up + column * up_stride, column < columns, k + steps, depth)
            second = tl.dot(part, weights.T, second, input_precision="ieee")
    if biased:
        first += tl.load(bias + column, mask=column < columns, other=0.0).to(tl.float32)[None, :]
    at = row[:, None] * columns + column[None, :]
    here = (row < rows)[:, None] & (column < columns)[None, :]
    if keep:
        tl.store(gate_kept + at, first.to(y.dtype.element_ty), mask=here)
        if gated:
            tl.store(up_kept + at, second.to(y.dtype.element_ty), mask=here)
    result = activate(first, activation)
    if gated:
        result = result * second
    tl.store(y + at, result.to(y.dtype.element_ty), mask=here)


@triton.jit
def gate_gradient_kernel(
    upstream, gate_kept, up_kept, gate_grad, up_grad, count,
    activation: tl.constexpr, gated: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    """Gradients of both products from that of y; all of them are contiguous."""
    at = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    here = at < count
    grad = tl.load(upstream + at, mask=here, other=0.0).to(tl.float32)
    first = tl.load(gate_kept + at, mask=here, other=0.0).to(tl.float32)
    result = grad * slope(first, activation)
    if gated:
        second = tl.load(up_kept + at, mask=here, other=0.0).to(tl.float32)
        result = result * second
        other = grad * activate(first, activation)
        tl.store(up_grad + at, other.to(up_grad.dtype.element_ty), mask=here)
    tl.store(gate_grad + at, result.to(gate_grad.dtype.element_ty), mask=here)


def gated_linear(
    x: Tensor,
    gate: Tensor,
    up: Tensor | None = None,
    bias: Tensor | None = None,
    activation: str = "silu",
) -> Tensor:
    """x [..., d], gate and up [h, d], bias [h] (only without up) -> [..., h]; differentiable.

    Raises:
        ValueError: shapes, dtypes, devices or an activation that do not go together.
    """
    _check(x, gate, up, bias, activation)
    rows = _rowwise(x.reshape(-1, x.shape[-1]))
    gate, up, bias = (one if one is None else _rowwise(one) for one in (gate, up, bias))
    keep = torch.is_grad_enabled() and any(
        one is not None and one.requires_grad for one in (x, gate, up, bias)
    )
    y = _GatedLinear.apply(rows, gate, up, bias, activation, keep)
    return y.reshape(*x.shape[:-1], gate.shape[0])


class _GatedLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, gate, up, bias, activation, keep):
        y, first, second = _forward(x, gate, up, bias, activation, keep)
        ctx.activation = activation
        ctx.save_for_backward(x, gate, up, bias, first, second)
        return y

    @staticmethod
    def backward(ctx, upstream):
        *given, first, second = ctx.saved_tensors
        x, gate, up, _ = given
        if torch.is_grad_enabled():
            library = partial(matrices.gated_linear, activation=ctx.activation)
            return *by_library(library, given, upstream), None, None
        gate_grad, up_grad = _gradients(upstream.contiguous(), first, second, ctx.activation)
        wanted = ctx.needs_input_grad
        x_grad = gate_grad @ gate if wanted[0] else None
        if x_grad is not None and up is not None:
            x_grad = torch.addmm(x_grad, up_grad, up)
        return (
            x_grad,
            gate_grad.t() @ x if wanted[1] else None,
            up_grad.t() @ x if wanted[2] else None,
            gate_grad.sum(0) if wanted[3] else None,
            None,
            None,
        )


def _forward(
    x: Tensor, gate: Tensor, up: Tensor | None, bias: Tensor | None, activation: str, keep: bool
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """y, and with `keep` both products."""
    (rows, depth), columns = x.shape, gate.shape[0]
    y = x.new_empty(rows, columns)
    first = torch.empty_like(y) if keep else None
    second = torch.empty_like(y) if keep and up is not None else None
    if y.numel() == 0:
        return y, first, second
    absent = y  # a pointer that is not looked at
    tensors = (x, gate, *(absent if one is None else one for one in (up, bias)), y)
    kept = tuple(absent if one is None else one for one in (first, second))
    strides = (x.stride(0), gate.stride(0), gate.stride(0) if up is None else up.stride(0))
    sizes = (rows, columns, depth, *strides)
    flags = {"gated": up is not None, "biased": bias is not None, "keep": keep, "group": GROUP}
    tiles = candidates(TABLE, target_of(x.device), x.dtype, rows)[0]
    with launching(x):
        gated_linear_kernel[(triton.cdiv(rows, tiles.m) * triton.cdiv(columns, tiles.n),)](
            *tensors, *kept, *sizes, activation=activation, **flags, **tiles.launch()
        )
    return y, first, second


def _gradients(
    upstream: Tensor, first: Tensor, second: Tensor | None, activation: str
) -> tuple[Tensor, Tensor | None]:
    gate_grad = torch.empty_like(first)
    up_grad = None if second is None else torch.empty_like(second)
    count = upstream.numel()
    if count == 0:
        return gate_grad, up_grad
    other = (first, gate_grad) if second is None else (second, up_grad)
    with launching(upstream):
        gate_gradient_kernel[(triton.cdiv(count, ELEMENTS),)](
            upstream, first, other[0], gate_grad, other[1], count,
            activation=activation, gated=second is not None, block=ELEMENTS,
        )  # fmt: skip
    return gate_grad, up_grad


def _rowwise(matrix: Tensor) -> Tensor:
    """With neighbours side by side in memory; rows may be apart."""
    return matrix if matrix.stride(-1) == 1 else matrix.contiguous()


def _check(
    x: Tensor, gate: Tensor, up: Tensor | None, bias: Tensor | None, activation: str
) -> None:
    if activation not in ACTIVATIONS:
        raise ValueError(f"activation must be one of {', '.join(ACTIVATIONS)}, got {activation!r}")
    given = [one for one in (x, gate, up, bias) if one is not None]
    if x.dtype not in DTYPES or any(one.dtype != x.dtype for one in given):
        raise ValueError(f"dtypes must be one 16 or 32 bit float, got {[o.dtype for o in given]}")
    if up is not None and bias is not None:
        raise ValueError("a bias is for the form without `up`")
    fits = gate.shape[1:] == x.shape[-1:] and (up is None or up.shape == gate.shape)
    fits &= bias is None or bias.shape == gate.shape[:1]
    if not fits or any(one.device != x.device for one in given):
        told = ", ".join(f"{tuple(one.shape)} on {one.device}" for one in given)
        raise ValueError(f"x, weights and bias of {told} do not go together")
