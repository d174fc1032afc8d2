"""Rows of logits to their losses, and in the same place to their gradients. Needs Triton.

`torchbridge.kernels.cross_entropy` calls this for one chunk of rows after another. The matrix
products around it are the library's: they are most of the time, and nothing here beats them.
"""

from __future__ import annotations

import functools

import torch
import triton
import triton.language as tl
from torch import Tensor

from torchbridge.kernels import cross_entropy as chunks
from torchbridge.kernels.gpu import launching
from torchbridge.kernels.gpu.tiles import inlined

BLOCK = 4096  # numbers of a row in registers at a time
WARPS = 8
DTYPES = (torch.bfloat16, torch.float16, torch.float32)


@inlined
def row_totals(row, size, room, block: tl.constexpr):
    """Of a row: log(sum(e^x)), and sum(x); beyond `size` of `room` there may be anything."""
    top = -float("inf")
    total = 0.0
    plain = 0.0
    for start in range(0, size, block):
        at = start + tl.arange(0, block)
        x = tl.load(row + at, mask=at < room, other=-float("inf")).to(tl.float32)
        x = tl.where(at < size, x, -float("inf"))
        new = tl.maximum(top, tl.max(x, 0))
        level = tl.where(new == -float("inf"), 0.0, new)  # -inf so far: its powers are 0
        total = total * tl.exp(top - level) + tl.sum(tl.exp(x - level), 0)
        plain += tl.sum(tl.where(at < size, x, 0.0), 0)
        top = new
    return top + tl.log(total), plain


@triton.jit
def cross_entropy_kernel(
    logits, target, scale, losses, size, room, stride, scale_stride, ignore, smoothing, z_loss,
    gradient: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    """The loss of a row; `gradient` puts scale * d loss / d logits in the logits' place."""
    line = tl.program_id(0).to(tl.int64)
    row = logits + line * stride
    label = tl.load(target + line)
    valid = (label >= 0) & (label < size)
    hit = tl.load(row + label, mask=valid, other=float("nan")).to(tl.float32)
    lse, plain = row_totals(row, size, room, block)
    tl.debug_barrier()  # all threads have read the row before one of them overwrites it
    counts = label != ignore
    spread = tl.where(smoothing > 0, smoothing / size * plain, 0.0)  # 0 * -inf is NaN
    loss = lse - (1 - smoothing) * hit - spread + z_loss * lse * lse
    tl.store(losses + line, tl.where(counts, loss, 0.0))
    if gradient:
        factor = tl.load(scale + line * scale_stride).to(tl.float32)
        factor = tl.where(valid, factor, float("nan"))  # a label that is no class is not hidden
        for start in range(0, size, block):
            at = start + tl.arange(0, block)
            x = tl.load(row + at, mask=at < room, other=0.0).to(tl.float32)
            slope = tl.exp(x - lse) * (1 + 2 * z_loss * lse) - smoothing / size
            slope = tl.where(at == label, slope - (1 - smoothing), slope)
            slope = tl.where(counts & (at < size), slope * factor, 0.0)
            tl.store(row + at, slope.to(logits.dtype.element_ty), mask=at < room)


def cross_entropy_rows_(
    logits: Tensor,
    target: Tensor,
    scale: Tensor | None,
    ignore_index: int = -100,
    smoothing: float = 0.0,
    z_loss: float = 0.0,
    room: int | None = None,
) -> tuple[Tensor, Tensor]:
    """logits [N, V], target [N] int64 -> losses [N] float32, and the logits.

    With `scale` [N] they have become scale * d loss / d logits. A row whose target is
    `ignore_index` has the loss and the gradient 0; one whose target is no class has NaN. `room`, by
    default V, is of how many numbers a row is, those beyond V becoming 0: fast if a multiple of 16.

    Raises:
        ValueError: logits that are no matrix of 16 or 32 bit floats with neighbours side by side.
    """
    if logits.dim() != 2 or logits.stride(1) != 1 or logits.dtype not in DTYPES:
        raise ValueError(f"logits {tuple(logits.shape)} of {logits.dtype}, {logits.stride()}")
    rows, size = logits.shape
    losses = torch.empty(rows, dtype=torch.float32, device=logits.device)
    if rows == 0:
        return losses, logits
    factor = losses if scale is None else scale  # not looked at when there is none
    with launching(logits):
        cross_entropy_kernel[(rows,)](
            logits, target.contiguous(), factor, losses, size, room or size, logits.stride(0),
            factor.stride(0), ignore_index, float(smoothing), float(z_loss),
            gradient=scale is not None, block=BLOCK, num_warps=WARPS,
        )  # fmt: skip
    return losses, logits


@triton.jit
def multiply_kernel(x, factor, size, block: tl.constexpr):
    """x *= factor; of a factor of 1, as most are, it is all that is read."""
    by = tl.load(factor)
    if by != 1:
        at = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
        value = tl.load(x + at, mask=at < size, other=0.0).to(tl.float32) * by
        tl.store(x + at, value.to(x.dtype.element_ty), mask=at < size)


def multiply_(x: Tensor, factor: Tensor) -> Tensor:
    """x * factor in x's place: x contiguous, factor one number of float32."""
    with launching(x):
        multiply_kernel[(triton.cdiv(x.numel(), 4 * BLOCK),)](
            x, factor, x.numel(), block=4 * BLOCK, num_warps=WARPS
        )
    return x


linear_cross_entropy = functools.partial(chunks.linear_cross_entropy, way="triton")
