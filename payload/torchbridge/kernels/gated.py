"""Gated linear layer act(x gate^T) * (x up^T), by the library or one Triton kernel for few rows.

With few rows, as in decoding, reading the weights dominates, and the kernel keeps both products out
of memory. With gradients or many rows the library's products are faster.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from torchbridge.kernels.registry import hardware_of, kernel_for, traced
from torchbridge.kernels.tiles import (
    ASYNCHRONOUS,
    DTYPES,
    Tiles,
    activate,
    activation_of,
    jit,
    launching,
    load_tile,
    pick_tiles,
    place,
    register,
    rows_variant,
    rowwise,
    tl,
    triton,
    yields_few_rows,
)

GROUP = 8
TABLE = (
    Tiles(16, 32, 64, 4, 4, bits=16, rows=16),
    Tiles(64, 32, 64, 4, 3, bits=16, rows=64),
    Tiles(128, 64, 64, 8, 4, bits=16, targets=ASYNCHRONOUS),
    Tiles(128, 64, 64, 8, 3, bits=16),
    Tiles(16, 32, 32, 4, 2, bits=32, rows=16),
    Tiles(32, 32, 32, 4, 2, bits=32),
)


def gated_linear(
    x: Tensor, gate: Tensor, up: Tensor, activation: str = "silu", *, path: str = "auto"
) -> Tensor:
    """Compute act(x gate^T) * (x up^T): x [..., d], gate and up [h, d] -> [..., h].

    `activation` is relu, gelu, gelu_tanh or silu; `path` as in `kernel_for`. Only the library's
    kernel is differentiable.

    Raises:
        KernelRefused: the requested kernel cannot compute this on this device.
        ValueError: the activation is unknown, or shapes, dtypes or devices do not fit.
    """
    rows = 0 if traced() else x.numel() // max(x.shape[-1], 1)
    kernel = kernel_for("gated_linear", (x, gate, up), path, rows_variant(rows, 1, x, gate, up))
    return kernel.run(x, gate, up, activation)


def by_library(x: Tensor, gate: Tensor, up: Tensor, activation: str = "silu") -> Tensor:
    """Compute `gated_linear` by two products."""
    return activation_of(activation)(F.linear(x, gate)) * F.linear(x, up)


@jit
def gated_linear_kernel(
    x, gate, up, y, rows, columns, depth, x_stride, gate_stride, up_stride,
    activation: tl.constexpr, group: tl.constexpr,
    block_m: tl.constexpr, block_n: tl.constexpr, block_k: tl.constexpr,
):  # fmt: skip
    """Compute one tile of y [rows, columns], reading x once for both products."""
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
        weights = load_tile(up + column * up_stride, column < columns, k + steps, depth)
        second = tl.dot(part, weights.T, second, input_precision="ieee")
    result = activate(first, activation) * second
    here = (row < rows)[:, None] & (column < columns)[None, :]
    at = row[:, None] * columns + column[None, :]
    tl.store(y + at, result.to(y.dtype.element_ty), mask=here)


def in_triton(x: Tensor, gate: Tensor, up: Tensor, activation: str = "silu") -> Tensor:
    """Compute `gated_linear` in Triton, for x of any strides."""
    activation_of(activation)
    _check(x, gate, up)
    flat, gate, up = rowwise(x.reshape(-1, x.shape[-1])), rowwise(gate), rowwise(up)
    (rows, depth), columns = flat.shape, len(gate)
    y = x.new_empty(rows, columns)
    if y.numel():
        tiles = pick_tiles(TABLE, hardware_of(x.device).target, x.dtype, rows)
        with launching(x):
            gated_linear_kernel[(triton.cdiv(rows, tiles.m) * triton.cdiv(columns, tiles.n),)](
                flat, gate, up, y, rows, columns, depth,
                flat.stride(0), gate.stride(0), up.stride(0),
                activation=activation, group=GROUP, **tiles.launch(),
            )  # fmt: skip
    return y.reshape(*x.shape[:-1], columns)


def _check(x: Tensor, gate: Tensor, up: Tensor) -> None:
    given = (x, gate, up)
    if x.dtype not in DTYPES or any(one.dtype != x.dtype for one in given):
        raise ValueError(f"dtypes must be one 16 or 32 bit float, got {[o.dtype for o in given]}")
    fits = gate.ndim == 2 and gate.shape[1:] == x.shape[-1:] and up.shape == gate.shape
    if not fits or any(one.device != x.device for one in given):
        told = ", ".join(f"{tuple(one.shape)} on {one.device}" for one in given)
        raise ValueError(f"x and weights of {told} do not go together")


register(
    "gated_linear",
    in_triton,
    by_library,
    differentiable=False,
    yields=yields_few_rows,
)
