"""One matrix product per expert with many rows: by the library, and by a Triton kernel.

The Triton kernel is for sm_80 to sm_89, where torch's grouped product (`torchbridge.moe.grouped`)
copies the row counts to the host and loops: it is one launch without synchronization. Grids depend
only on shapes: as many blocks as any routing may need, of which those without rows end immediately.

A rows sorted by expert, E experts, depth K, width N.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from torchbridge.kernels.experts import most_blocks
from torchbridge.kernels.registry import Request
from torchbridge.kernels.tiles import (
    ACROSS,
    DTYPES,
    ODD,
    SLOW,
    Tiles,
    jit,
    launching,
    load_tile,
    pick_tiles,
    place,
    register,
    rowwise,
    tl,
    triton,
)

GROUP = 8
TABLE = (  # by rows of one expert
    Tiles(64, 64, 32, 4, 3, bits=16, rows=128),
    Tiles(128, 128, 32, 8, 3, bits=16),
    Tiles(32, 32, 32, 4, 2, bits=32),
)


def by_library(rows: Tensor, weights: Tensor, ends: Tensor) -> Tensor:
    """Compute rows[start:end] @ weights[e].T per expert, one by one: [A, K], [E, N, K] -> [A, N].

    `ends` [E] int32 are one past each expert's last row, ascending to A; copying them synchronises
    the device.
    """
    sizes = torch.diff(ends.long(), prepend=ends.new_zeros(1)).tolist()
    parts = zip(rows.split(sizes), weights, strict=True)
    return torch.cat([F.linear(part, weight) for part, weight in parts])


@jit
def block_of(ends, number, experts, block_m: tl.constexpr, padded: tl.constexpr):
    """Return (expert, first row, one past the expert's last); expert E marks an empty block."""
    expert = tl.arange(0, padded)
    end = tl.load(ends + expert, mask=expert < experts, other=0)
    begin = tl.load(ends + expert - 1, mask=(expert > 0) & (expert < experts), other=0)
    blocks = tl.where(expert < experts, (end - begin + block_m - 1) // block_m, 0)
    chosen = tl.sum((tl.cumsum(blocks, 0) <= number).to(tl.int32), 0)
    before = tl.sum(tl.where(expert < chosen, blocks, 0), 0)
    first = tl.sum(tl.where(expert == chosen, begin, 0), 0) + (number - before) * block_m
    return chosen, first, tl.sum(tl.where(expert == chosen, end, 0), 0)


@jit
def grouped_kernel(
    rows, weights, ends, out, count, experts, width, depth, row_stride,
    across: tl.constexpr, padded: tl.constexpr, group: tl.constexpr,
    block_m: tl.constexpr, block_n: tl.constexpr, block_k: tl.constexpr,
):  # fmt: skip
    """Compute a tile of out [A, N] by weights [E, N, K], or [E, K, N] with `across`."""
    m, n = place(tl.program_id(0), count * block_m, width, block_m, block_n, group)
    expert, first, last = block_of(ends, m, experts, block_m, padded)
    if expert >= experts:
        return
    row = (first + tl.arange(0, block_m)).to(tl.int64)
    column = n * block_n + tl.arange(0, block_n)
    matrix = weights + expert.to(tl.int64) * width * depth
    steps = tl.arange(0, block_k)
    total = tl.zeros((block_m, block_n), tl.float32)
    for k in range(0, depth, block_k):
        part = load_tile(rows + row * row_stride, row < last, k + steps, depth)
        if across:
            line = (k + steps).to(tl.int64)
            tile = load_tile(matrix + line * width, line < depth, column, width)
        else:
            tile = load_tile(matrix + column.to(tl.int64) * depth, column < width, k + steps, depth)
            tile = tile.T
        total = tl.dot(part, tile, total, input_precision="ieee")
    at = row[:, None] * width + column[None, :]
    here = (row < last)[:, None] & (column < width)[None, :]
    tl.store(out + at, total.to(out.dtype.element_ty), mask=here)


@jit
def grouped_gradient_kernel(
    upstream, rows, ends, out, width, depth, upstream_stride, row_stride,
    group: tl.constexpr,
    block_m: tl.constexpr, block_n: tl.constexpr, block_k: tl.constexpr,
):  # fmt: skip
    """Compute a tile of out [E, N, K]: the gradient of an expert's weights, upstream^T @ rows."""
    tiles = tl.cdiv(width, block_m) * tl.cdiv(depth, block_n)
    expert = tl.program_id(0) // tiles
    m, n = place(tl.program_id(0) % tiles, width, depth, block_m, block_n, group)
    begin = tl.load(ends + expert - 1, mask=expert > 0, other=0)
    end = tl.load(ends + expert)
    line = m * block_m + tl.arange(0, block_m)
    column = n * block_n + tl.arange(0, block_n)
    total = tl.zeros((block_m, block_n), tl.float32)
    for start in range(begin, end, block_k):
        row = (start + tl.arange(0, block_k)).to(tl.int64)
        given = load_tile(upstream + row * upstream_stride, row < end, line, width)
        part = load_tile(rows + row * row_stride, row < end, column, depth)
        total = tl.dot(given.T, part, total, input_precision="ieee")
    at = expert.to(tl.int64) * width * depth + line[:, None].to(tl.int64) * depth + column[None, :]
    here = (line < width)[:, None] & (column < depth)[None, :]
    tl.store(out + at, total.to(out.dtype.element_ty), mask=here)


class _GroupedProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx, rows, weights, ends):
        ctx.save_for_backward(rows, weights, ends)
        return _multiply(rows, weights, ends, across=False)

    @staticmethod
    @once_differentiable
    def backward(ctx, upstream):
        rows, weights, ends = ctx.saved_tensors
        upstream = rowwise(upstream)
        wants_rows, wants_weights, _ = ctx.needs_input_grad
        to_rows = _multiply(upstream, weights, ends, across=True) if wants_rows else None
        return to_rows, _gradient(upstream, rows, weights, ends) if wants_weights else None, None


def _multiply(rows: Tensor, weights: Tensor, ends: Tensor, *, across: bool) -> Tensor:
    (assignments, depth), experts = rows.shape, len(weights)
    width = weights.shape[2 if across else 1]
    out = rows.new_empty(assignments, width)
    if out.numel() == 0:
        return out
    tiles = _tiles(rows, experts)
    count = most_blocks(assignments, experts, tiles.m)
    with launching(rows):
        grouped_kernel[(count * triton.cdiv(width, tiles.n),)](
            rows, weights, ends, out, count, experts, width, depth, rows.stride(0),
            across=across, padded=triton.next_power_of_2(experts), group=GROUP, **tiles.launch(),
        )  # fmt: skip
    return out


def _gradient(upstream: Tensor, rows: Tensor, weights: Tensor, ends: Tensor) -> Tensor:
    out = torch.empty_like(weights)
    experts, width, depth = out.shape
    if out.numel() == 0:
        return out
    tiles = _tiles(rows, experts)
    programs = experts * triton.cdiv(width, tiles.m) * triton.cdiv(depth, tiles.n)
    with launching(rows):
        grouped_gradient_kernel[(programs,)](
            upstream, rows, ends, out, width, depth, upstream.stride(0), rows.stride(0),
            group=GROUP, **tiles.launch(),
        )  # fmt: skip
    return out


def _tiles(rows: Tensor, experts: int) -> Tiles:
    each = -(-len(rows) // experts)
    return pick_tiles(TABLE, rows.dtype, each)


def in_triton(rows: Tensor, weights: Tensor, ends: Tensor) -> Tensor:
    """Compute `by_library` in Triton; differentiable once.

    Raises:
        ValueError: shapes, dtypes or devices do not fit.
    """
    shapes = [tuple(one.shape) for one in (rows, weights, ends)]
    fits = rows.ndim == 2 and weights.ndim == 3 and rows.shape[1] == weights.shape[2]
    if not fits or ends.shape != weights.shape[:1] or ends.dtype != torch.int32:
        raise ValueError(f"rows, weights and int32 ends of {shapes} do not go together")
    if rows.dtype not in DTYPES or weights.dtype != rows.dtype:
        raise ValueError(f"rows are {rows.dtype}, weights {weights.dtype}: one 16 or 32 bit float")
    if not rows.device == weights.device == ends.device:
        raise ValueError(f"rows on {rows.device}, weights {weights.device}, ends {ends.device}")
    return _GroupedProduct.apply(rowwise(rows), weights.contiguous(), ends.contiguous())


def _yields(request: Request) -> str | None:
    if request.variant in (ODD, ACROSS):
        return SLOW[request.variant]
    if request.dtype == torch.float32 and request.hardware.vendor == "nvidia":  # TF32 drops 13 bits
        return "the library multiplies float32 faster"
    return None


register("grouped_mm", in_triton, by_library, yields=_yields)
