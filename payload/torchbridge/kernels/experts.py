"""Feed-forward experts of a mixture: by the library, or by five Triton launches for few tokens.

In Triton the assignments are sorted and blocks of rows listed, each of one expert; two products
process that list, the first gathering rows of x, the second applying the routing weights; a token's
experts are summed in a fixed order. Grids depend only on shapes, so it can be captured in a CUDA
graph. The library's way makes several launches per expert and synchronises the device. T tokens, k
choices each, A = T * k assignments, E experts, width d, hidden width h.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from torchbridge.kernels.registry import kernel_for, traced
from torchbridge.kernels.tiles import (
    DTYPES,
    Tiles,
    activate,
    activation_of,
    jit,
    launching,
    load_tile,
    pick_tiles,
    register,
    rows_variant,
    rowwise,
    tl,
    triton,
    yields_few_rows,
)

COUNTED = {"rows": 32, "chunk": 64}  # assignments of a program, and those they meet at a time
COLUMNS = 1024  # of a program that adds up a token's experts
TABLE = (  # by rows of one expert
    Tiles(16, 32, 64, 4, 4, bits=16, rows=16),
    Tiles(64, 64, 64, 4, 2, bits=16),
    Tiles(16, 32, 32, 4, 2, bits=32, rows=16),
    Tiles(32, 32, 32, 4, 2, bits=32),
)


def moe_experts(
    x: Tensor,
    experts: Tensor,
    weights: Tensor,
    up: Tensor,
    down: Tensor,
    up_bias: Tensor | None = None,
    down_bias: Tensor | None = None,
    activation: str = "relu",
    gated: bool = False,
    *,
    path: str = "auto",
) -> Tensor:
    """Return the sum of weight * expert(x) over each token's experts: x [T, d] -> [T, d].

    experts [T, k] int64, weights [T, k], up [E, h, d] (gated [E, 2h, d]: act(first half) * second
    half), down [E, d, h], biases [E, h or 2h] and [E, d]. `path` as in `kernel_for`; the kernel in
    Triton has no backward.

    Raises:
        KernelRefused: the requested kernel cannot compute this on this device.
        ValueError: an unknown activation.
        IndexError: an unknown expert; the kernel in Triton returns NaN for its token.
    """
    tensors = (x, up, down, up_bias, down_bias)
    variant = rows_variant(0 if traced() else experts.numel(), len(up), *tensors)
    kernel = kernel_for("moe_experts", (*tensors, weights), path, variant)
    return kernel.run(x, experts, weights, *tensors[1:], activation, gated)


def by_library(
    x: Tensor,
    experts: Tensor,
    weights: Tensor,
    up: Tensor,
    down: Tensor,
    up_bias: Tensor | None = None,
    down_bias: Tensor | None = None,
    activation: str = "relu",
    gated: bool = False,
) -> Tensor:
    """Compute `moe_experts` one expert after the other."""
    act, chosen = activation_of(activation), experts.reshape(-1)
    if chosen.numel() and not 0 <= int(chosen.min()) <= int(chosen.max()) < len(up):
        raise IndexError(f"experts go from 0 to {len(up) - 1}, got {chosen.unique().tolist()}")
    order = chosen.argsort(stable=True)
    counts = torch.bincount(chosen, minlength=len(up)).tolist()
    parts = []
    for index, picked in enumerate(order.split(counts)):
        rows = x.index_select(0, picked // experts.shape[1])
        hidden = F.linear(rows, up[index], None if up_bias is None else up_bias[index])
        if gated:
            first, second = hidden.chunk(2, dim=-1)
            hidden = act(first) * second
        else:
            hidden = act(hidden)
        shift = None if down_bias is None else down_bias[index]
        parts.append(F.linear(hidden, down[index], shift))
    rows = torch.cat(parts).index_select(0, order.argsort())
    return (rows.unflatten(0, experts.shape) * weights.to(x.dtype).unsqueeze(-1)).sum(1)


@jit
def chosen(experts, at, assignments, num_experts):
    """Return the experts of assignments `at`, int32; E for a missing or unknown one."""
    expert = tl.load(experts + at, mask=at < assignments, other=-1)
    return tl.where((expert >= 0) & (expert < num_experts), expert, num_experts).to(tl.int32)


@jit
def expert_index_kernel(
    experts, order, blocks, assignments, num_experts, count, block_m,
    rows: tl.constexpr, chunk: tl.constexpr,
):  # fmt: skip
    """Sort assignments by expert: order [A] int32, stable, unknown experts last.

    blocks [3, count] int32, zero-initialised: expert, first row, one past the last. Each program
    counts the assignments before its `rows` assignments, and lists the blocks that start with one
    of them.
    """
    at = tl.program_id(0) * rows + tl.arange(0, rows)
    expert = chosen(experts, at, assignments, num_experts)
    lower = tl.zeros((rows, chunk), tl.int32)
    equal = tl.zeros((rows, chunk), tl.int32)
    before = tl.zeros((rows, chunk), tl.int32)
    for start in range(0, assignments, chunk):
        others = start + tl.arange(0, chunk)
        other = chosen(experts, others, assignments, num_experts)
        same = other[None, :] == expert[:, None]
        lower += (other[None, :] < expert[:, None]).to(tl.int32)
        equal += same.to(tl.int32)
        before += (same & (others[None, :] < at[:, None])).to(tl.int32)
    begin, rank = tl.sum(lower, 1), tl.sum(before, 1)
    slot = begin + rank
    tl.store(order + slot, at, mask=at < assignments)
    # an expert's first block is listed by its number, or by its row where there are fewer of those;
    # another by its row, of which every `block_m` have at most one
    number = tl.where(num_experts < assignments, expert, slot)
    further = tl.minimum(num_experts, assignments) + slot // block_m - 1
    place = blocks + tl.where(rank == 0, number, further)
    starts = (at < assignments) & (expert < num_experts) & (rank % block_m == 0)
    last = tl.minimum(begin + tl.sum(equal, 1), slot + block_m)
    tl.store(place, expert, mask=starts)
    tl.store(place + count, slot, mask=starts)
    tl.store(place + 2 * count, last, mask=starts)


@jit
def expert_up_kernel(
    x, order, blocks, up, bias, hidden, top_k, depth, width, count, x_stride,
    activation: tl.constexpr, gated: tl.constexpr, biased: tl.constexpr,
    block_m: tl.constexpr, block_n: tl.constexpr, block_k: tl.constexpr,
):  # fmt: skip
    """Compute hidden [A, width] in expert order: act(x up^T + bias), gated by its second half."""
    block = tl.program_id(0) % count  # a column's together: those of an expert share its weights
    slot = tl.load(blocks + count + block) + tl.arange(0, block_m)
    last = tl.load(blocks + 2 * count + block)
    if tl.load(blocks + count + block) >= last:
        return
    here = slot < last
    token = tl.load(order + slot, mask=here, other=0) // top_k
    column = tl.program_id(0) // count * block_n + tl.arange(0, block_n)
    line = tl.load(blocks + block).to(tl.int64) * width * (2 if gated else 1) + column
    steps = tl.arange(0, block_k)
    first = tl.zeros((block_m, block_n), tl.float32)
    second = tl.zeros((block_m, block_n), tl.float32)
    for k in range(0, depth, block_k):
        part = load_tile(x + token.to(tl.int64) * x_stride, here, k + steps, depth)
        weights = load_tile(up + line * depth, column < width, k + steps, depth)
        first = tl.dot(part, weights.T, first, input_precision="ieee")
        if gated:
            weights = load_tile(up + (line + width) * depth, column < width, k + steps, depth)
            second = tl.dot(part, weights.T, second, input_precision="ieee")
    if biased:
        first += tl.load(bias + line, mask=column < width, other=0.0).to(tl.float32)[None, :]
        if gated:
            shift = tl.load(bias + line + width, mask=column < width, other=0.0)
            second += shift.to(tl.float32)[None, :]
    result = activate(first, activation)
    if gated:
        result = result * second
    at = slot.to(tl.int64)[:, None] * width + column[None, :]
    mask = here[:, None] & (column < width)[None, :]
    tl.store(hidden + at, result.to(hidden.dtype.element_ty), mask=mask)


@jit
def expert_down_kernel(
    hidden, order, blocks, down, bias, weights, parts, depth, width, count,
    biased: tl.constexpr,
    block_m: tl.constexpr, block_n: tl.constexpr, block_k: tl.constexpr,
):  # fmt: skip
    """Compute parts [A, width] float32 in token order: weight * (hidden down^T + bias)."""
    block = tl.program_id(0) % count
    slot = tl.load(blocks + count + block) + tl.arange(0, block_m)
    last = tl.load(blocks + 2 * count + block)
    if tl.load(blocks + count + block) >= last:
        return
    here = slot < last
    column = tl.program_id(0) // count * block_n + tl.arange(0, block_n)
    line = tl.load(blocks + block).to(tl.int64) * width + column
    steps = tl.arange(0, block_k)
    total = tl.zeros((block_m, block_n), tl.float32)
    for k in range(0, depth, block_k):
        part = load_tile(hidden + slot.to(tl.int64) * depth, here, k + steps, depth)
        matrix = load_tile(down + line * depth, column < width, k + steps, depth)
        total = tl.dot(part, matrix.T, total, input_precision="ieee")
    if biased:
        total += tl.load(bias + line, mask=column < width, other=0.0).to(tl.float32)[None, :]
    assignment = tl.load(order + slot, mask=here, other=0)
    total *= tl.load(weights + assignment, mask=here, other=0.0).to(tl.float32)[:, None]
    at = assignment.to(tl.int64)[:, None] * width + column[None, :]
    tl.store(parts + at, total, mask=here[:, None] & (column < width)[None, :])


@jit
def expert_sum_kernel(
    parts, experts, y, width, num_experts, top_k: tl.constexpr, columns: tl.constexpr
):  # fmt: skip
    """Sum a token's parts into y [T, width]; NaN for a token with an unknown expert."""
    token = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * columns + tl.arange(0, columns)
    total = tl.zeros((columns,), tl.float32)
    for choice in range(top_k):
        assignment = token * top_k + choice
        expert = tl.load(experts + assignment)
        known = (expert >= 0) & (expert < num_experts)
        part = tl.load(parts + assignment * width + column, mask=column < width, other=0.0)
        total += tl.where(known, part, float("nan"))
    tl.store(y + token * width + column, total.to(y.dtype.element_ty), mask=column < width)


class ExpertIndex(NamedTuple):
    """Assignments `order` [A]; `blocks` [3, B]: expert, first row, one past the last (int32)."""

    order: Tensor
    blocks: Tensor


def expert_index(experts: Tensor, num_experts: int, block_m: int) -> ExpertIndex:
    """Sort the assignments of experts [T, k] into blocks of at most `block_m` rows, without
    waiting.
    """
    assignments = experts.numel()
    count = most_blocks(assignments, num_experts, block_m)
    order = torch.empty(assignments, dtype=torch.int32, device=experts.device)
    blocks = torch.zeros(3, count, dtype=torch.int32, device=experts.device)
    with launching(experts):
        expert_index_kernel[(triton.cdiv(assignments, COUNTED["rows"]),)](
            experts, order, blocks, assignments, num_experts, count, block_m, **COUNTED
        )
    return ExpertIndex(order, blocks)


def most_blocks(assignments: int, num_experts: int, block_m: int) -> int:
    """Return the maximum number of blocks of `block_m` rows for any routing."""
    return min(assignments, num_experts) + (assignments - 1) // block_m


def in_triton(
    x: Tensor,
    experts: Tensor,
    weights: Tensor,
    up: Tensor,
    down: Tensor,
    up_bias: Tensor | None = None,
    down_bias: Tensor | None = None,
    activation: str = "relu",
    gated: bool = False,
) -> Tensor:
    """Compute `moe_experts` in Triton, without gradients.

    Raises:
        ValueError: shapes, dtypes or the activation are invalid.
        RuntimeError: a tensor requires a gradient while gradients are recorded.
    """
    activation_of(activation)
    _check(x, experts, weights, up, down, up_bias, down_bias, gated)
    _refuse_gradient(x, weights, up, down, up_bias, down_bias)
    (tokens, top_k), depth = experts.shape, x.shape[1]
    y = x.new_empty(tokens, depth)
    if y.numel() == 0 or top_k == 0:
        return y.zero_()
    x, experts = rowwise(x), experts.contiguous()
    each = -(-experts.numel() // len(up))  # rows per expert if the load is balanced
    tiles = pick_tiles(TABLE, x.dtype, each)
    index = expert_index(experts, len(up), tiles.m)
    hidden = _hidden(x, index, up.contiguous(), up_bias, activation, tiles, top_k, gated)
    parts = _parts(hidden, index, down.contiguous(), down_bias, weights.contiguous(), tiles)
    with launching(x):
        expert_sum_kernel[(tokens, triton.cdiv(depth, COLUMNS))](
            parts, experts, y, depth, len(up), top_k=top_k, columns=COLUMNS
        )
    return y


def _hidden(
    x: Tensor, index: ExpertIndex, up: Tensor, bias: Tensor | None, activation: str,
    tiles: Tiles, top_k: int, gated: bool,
) -> Tensor:  # fmt: skip
    """Return the hidden layer [A, h] in expert order."""
    count, width = index.blocks.shape[1], up.shape[1] // (1 + gated)
    hidden = x.new_empty(len(index.order), width)
    flags = {"activation": activation, "gated": gated, "biased": bias is not None}
    with launching(x):
        expert_up_kernel[(count * triton.cdiv(width, tiles.n),)](
            x, *index, up, _or(bias, x), hidden, top_k, x.shape[1], width, count, x.stride(0),
            **flags, **tiles.launch(),
        )  # fmt: skip
    return hidden


def _parts(
    hidden: Tensor,
    index: ExpertIndex,
    down: Tensor,
    bias: Tensor | None,
    weights: Tensor,
    tiles: Tiles,
) -> Tensor:
    """Return the experts' outputs [A, d] in float32, in token order."""
    count, (_, width, depth) = index.blocks.shape[1], down.shape
    parts = hidden.new_empty(len(index.order), width, dtype=torch.float32)
    with launching(hidden):
        expert_down_kernel[(count * triton.cdiv(width, tiles.n),)](
            hidden, *index, down, _or(bias, hidden), weights, parts, depth, width, count,
            biased=bias is not None, **tiles.launch(),
        )  # fmt: skip
    return parts


def _refuse_gradient(*tensors: Tensor | None) -> None:
    if torch.is_grad_enabled() and any(one is not None and one.requires_grad for one in tensors):
        raise RuntimeError("moe_experts has no backward; train with the library's")


def _or(bias: Tensor | None, absent: Tensor) -> Tensor:
    return absent if bias is None else bias.contiguous()


def _check(
    x: Tensor, experts: Tensor, weights: Tensor, up: Tensor, down: Tensor,
    up_bias: Tensor | None, down_bias: Tensor | None, gated: bool,
) -> None:  # fmt: skip
    if x.dtype not in DTYPES or up.dtype != x.dtype or down.dtype != x.dtype:
        raise ValueError(f"x, up, down must be of one 16 or 32 bit float type, got {x.dtype}")
    depth, width, count = x.shape[-1], down.shape[-1], len(up)
    if not count:
        raise ValueError("there must be an expert, up has none")
    outputs = width * (1 + gated)
    wanted = {
        "x": (x, (len(x), depth)),
        "experts": (experts, (len(x), experts.shape[-1])),
        "weights": (weights, tuple(experts.shape)),
        "up": (up, (count, outputs, depth)),
        "down": (down, (count, depth, width)),
        "up_bias": (up_bias, (count, outputs)),
        "down_bias": (down_bias, (count, depth)),
    }
    for name, (given, shape) in wanted.items():
        if given is not None and (tuple(given.shape), given.device) != (shape, x.device):
            what = f"{tuple(given.shape)} on {given.device}"
            raise ValueError(f"{name} must be {shape} on {x.device}, got {what}")


register(
    "moe_experts",
    in_triton,
    by_library,
    differentiable=False,
    yields=yields_few_rows,
)
