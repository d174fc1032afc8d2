"""Linear layer and cross-entropy over many classes, computed in chunks of tokens.

The logits [T, V] of a language model's head are its largest tensor. Here a chunk of them is
computed, overwritten by its gradient and used in the gradients' products before the next chunk. The
gradient of the logits is computed in the forward pass, because the loss is the end of the network.
The time is that of autograd's three matrix products; the logits are never stored whole.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchbridge.kernels.registry import (
    REGISTRY,
    Request,
    autocast_dtype,
    hardware_of,
    kernel_for,
    without_autocast,
)
from torchbridge.kernels.tiles import DTYPES, jit, launching, register, tl, triton

REDUCTIONS = ("mean", "sum", "none")
CHUNKS = 8  # as many at most: each one rounds the weight's gradient to its dtype
FULL_ROWS = {"cuda": 2048}  # of a chunk that its products run at speed with
TILE = 64  # rows and classes that memory is laid out for
ELEMENTS = 4096  # numbers of a row in registers at a time
WARPS = 8
_TAKEN = (
    "linear_cross_entropy gives away the gradients it made in the forward pass: a second backward "
    "needs a second forward (or reduction='none', which computes them anew)"
)
_TWICE = (
    "linear_cross_entropy has no second derivative: its gradients are computed in the forward "
    "pass, outside of autograd"
)


class Terms(NamedTuple):
    """Parameters of a token's loss and of its computation.

    `way` is the kernel that turns logits into gradients: "triton", "torch", or "auto" for the
    registry's choice; `rows` is the number of tokens per chunk.
    """

    ignore_index: int
    smoothing: float
    z_loss: float
    way: str
    rows: int


def linear_cross_entropy(
    x: Tensor, weight: Tensor, target: Tensor, *, path: str = "auto", **settings: Any
) -> Tensor:
    """Compute cross_entropy(x weight^T, target) with the logits of a few tokens at a time.

    x [..., d], weight [V, d], target [...] int64; `settings` are those of `in_chunks`, `path` as in
    `kernel_for`. Differentiable once. torch.compile treats it as one operation.

    Raises:
        KernelRefused: the requested kernel cannot compute this on this device.
        ValueError: shapes, dtypes or settings are invalid.
        RuntimeError: in a second backward, or for a second derivative.
    """
    if path != "auto":
        path = kernel_for("linear_cross_entropy", (x, weight), path).name
    return in_chunks(x, weight, target, way=path, **settings)


def in_chunks(
    x: Tensor,
    weight: Tensor,
    target: Tensor,
    *,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    reduction: str = "mean",
    rows: int | None = None,
    way: str = "auto",
) -> Tensor:
    """Compute `linear_cross_entropy` in float32 (float64 of float64).

    Returns [], or target's shape for reduction "none". `z_loss` adds z_loss * log(sum(e^logits))^2
    per token. `rows` is the number of tokens per chunk. `way` is "triton", "torch" or
    "auto", regardless of the registry's rules.
    """
    _check(x, weight, target, label_smoothing, reduction)
    dtype = autocast_dtype(x) or x.dtype  # what F.linear would be given
    flat, matrix = x.reshape(-1, x.shape[-1]).to(dtype), weight.to(dtype)
    labels = target.reshape(-1)
    rows = rows or chunk_rows(len(labels), x.device.type)
    terms = Terms(ignore_index, float(label_smoothing), float(z_loss), way, rows)
    with without_autocast(x.device):
        result = _reduced(flat, matrix, labels, terms, reduction)
    return result.reshape(target.shape) if reduction == "none" else result


def chunk_rows(tokens: int, device: str) -> int:
    """Return the tokens per chunk: equal chunks in full tiles, at most 8, on a GPU 2,048 rows each.

    For 16,384 tokens of width 2,048 and 131,072 classes in 16 bits, torch.compile holds logits (4.3
    GB) and gradients (0.6 GB); this holds the gradients and one chunk's logits (0.54 GB): 23 % of
    that. 2,048 rows give 128 tiles of x's gradient for the 132 processors of an H100.
    """
    tokens = max(tokens, 1)
    parts = min(CHUNKS, -(-tokens // FULL_ROWS.get(device, TILE)))
    return _tiled(-(-tokens // parts))


def _tiled(size: int) -> int:
    return -(-size // TILE) * TILE


def _reduced(x: Tensor, weight: Tensor, target: Tensor, terms: Terms, reduction: str) -> Tensor:
    learns = torch.is_grad_enabled()
    wanted = (learns and x.requires_grad, learns and weight.requires_grad)
    if reduction == "none":
        return _Losses.apply(x, weight, target, terms, wanted)
    factor = torch.ones((), dtype=_wide(x.dtype), device=x.device)
    if reduction == "mean":
        factor = factor / (target != terms.ignore_index).sum()
    return _Total.apply(x, weight, target, factor, terms, wanted)


class _Total(torch.autograd.Function):
    """Compute factor * the sum of all losses, and the gradients in forward.

    Gradients in float16 are computed without the factor, because small ones would be lost that a
    scaled loss could have saved. Without it, a weight's gradient can exceed 65504 for a very
    frequent class; use bfloat16 or reduction "none" then.
    """

    @staticmethod
    def forward(ctx, x, weight, target, factor, terms, wanted):
        one = torch.ones_like(factor)
        now, later = (one, factor) if x.dtype == torch.float16 else (factor, one)
        losses, *gradients = _walk(x, weight, target, now.expand(len(x)), terms, wanted)
        ctx.wanted, ctx.taken, ctx.way = wanted, False, terms.way
        ctx.save_for_backward(later, *gradients)
        return losses.sum() * factor

    @staticmethod
    def backward(ctx, upstream):
        if torch.compiler.is_compiling():
            factor, *gradients = ctx.saved_tensors
            scaled = [one * (upstream * factor) for one in gradients]
            return (*_only(ctx.wanted, scaled), None, None, None, None)
        _refuse(_TWICE, torch.is_grad_enabled())
        _refuse(_TAKEN, ctx.taken)
        ctx.taken = True
        factor, *gradients = ctx.saved_tensors
        scaled = [_times(one, upstream * factor, ctx.way) for one in gradients]
        return (*_only(ctx.wanted, scaled), None, None, None, None)


class _Losses(torch.autograd.Function):
    """Compute the loss of every token; backward computes the logits again, with their gradients."""

    @staticmethod
    def forward(ctx, x, weight, target, terms, wanted):
        ctx.terms, ctx.wanted = terms, wanted
        ctx.save_for_backward(x, weight, target)
        scale = torch.ones((), dtype=_wide(x.dtype), device=x.device).expand(len(x))
        return _walk(x, weight, target, scale, terms, (False, False))[0]

    @staticmethod
    def backward(ctx, upstream):
        _refuse(_TWICE, torch.is_grad_enabled() and not torch.compiler.is_compiling())
        x, weight, target = ctx.saved_tensors
        _, *gradients = _walk(x, weight, target, upstream, ctx.terms, ctx.wanted)
        return (*_only(ctx.wanted, gradients), None, None, None)


def _refuse(reason: str, true: bool) -> None:
    if true:
        raise RuntimeError(reason)


def _only(wanted: tuple[bool, bool], gradients: list[Tensor]) -> list[Tensor | None]:
    return [one if want else None for want, one in zip(wanted, gradients, strict=True)]


def _walk(
    x: Tensor, weight: Tensor, target: Tensor, scale: Tensor, terms: Terms, wanted: tuple
) -> tuple[Tensor, Tensor, Tensor]:
    """Return losses [T], and the gradients of sum(scale * losses); empty if not wanted."""
    run = torch.ops.torchbridge.chunks if torch.compiler.is_compiling() else _chunks
    return run(x, weight, target, scale, *terms, *wanted)


def _chunks(
    x: Tensor,
    weight: Tensor,
    target: Tensor,
    scale: Tensor,
    ignore_index: int,
    smoothing: float,
    z_loss: float,
    way: str,
    rows: int,
    want_x: bool,
    want_weight: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    losses, x_grad, weight_grad = _outputs(x, weight, want_x, want_weight)
    if len(x) == 0:
        return losses, x_grad, weight_grad.zero_()
    room = _tiled(len(weight))  # so that rows are read 16 bytes at a time
    compute = _computer(way, x, room)
    buffer = x.new_empty(min(rows, len(x)), room)
    buffer[:, len(weight) :] = 0  # some products read it, multiplied by 0
    buffer = buffer[:, : len(weight)]
    for start in range(0, len(x), rows):
        part = slice(start, start + rows)
        logits = torch.mm(x[part], weight.t(), out=buffer[: len(x[part])])
        worth = scale[part] if want_x or want_weight else None
        losses[part], _ = compute(logits, target[part], worth, ignore_index, smoothing, z_loss)
        if want_x:
            torch.mm(logits, weight, out=x_grad[part])
        if want_weight:  # the first chunk fills it, the others add to it
            keep = 1 if start else 0
            torch.addmm(weight_grad, logits.t(), x[part], beta=keep, out=weight_grad)
    return losses, x_grad, weight_grad


def _outputs(
    x: Tensor, weight: Tensor, want_x: bool, want_weight: bool
) -> tuple[Tensor, Tensor, Tensor]:
    losses = x.new_empty(len(x), dtype=_wide(x.dtype))
    x_grad = x.new_empty(x.shape if want_x else 0)
    return losses, x_grad, weight.new_empty(weight.shape if want_weight else 0)


def _fake(x, weight, target, scale, *settings):
    return _outputs(x, weight, *settings[-2:])


_SCHEMA = (
    "(Tensor x, Tensor weight, Tensor target, Tensor scale, int ignore_index, float smoothing, "
    "float z_loss, str way, int rows, bool want_x, bool want_weight) -> (Tensor, Tensor, Tensor)"
)
# for torch.compile only: one operation that its compiler does not look into
torch.library.custom_op(
    "torchbridge::chunks", _chunks, mutates_args=(), schema=_SCHEMA
).register_fake(_fake)


def _in_triton(way: str, x: Tensor) -> bool:
    if way == "auto":
        request = Request(hardware_of(x.device), x.dtype)
        way = REGISTRY.lookup("linear_cross_entropy", request).kernel.name
    return way == "triton"


def _computer(way: str, x: Tensor, room: int) -> Callable[..., tuple[Tensor, Tensor]]:
    if not _in_triton(way, x):
        return rows_by_library_
    return functools.partial(rows_in_triton_, room=room)


def _times(x: Tensor, factor: Tensor, way: str) -> Tensor:
    """Multiply x by a factor in place."""
    if x.numel() and _in_triton(way, x):
        return multiply_in_triton_(x, factor)
    # without a dimension CUDA rounds it to x's dtype
    return x.mul_(factor.reshape(1) if x.is_cuda else factor)


def rows_by_library_(
    logits: Tensor,
    target: Tensor,
    scale: Tensor | None,
    ignore_index: int,
    smoothing: float,
    z_loss: float,
) -> tuple[Tensor, Tensor]:
    """Map logits [N, V] to losses [N], by torch's operations; return both.

    With `scale` the logits are overwritten by scale * gradient. 16-bit logits are copied once to
    float32.

    Raises:
        IndexError, RuntimeError: a target is not a class.
    """
    wide = logits.to(_wide(logits.dtype))
    counts = target != ignore_index
    label = torch.where(counts, target, 0)[:, None]
    hit = wide.gather(1, label).squeeze(1)
    plain = wide.mean(1) if smoothing else 0.0
    top = wide.amax(1, keepdim=True)
    total = wide.sub_(top).exp_().sum(1, keepdim=True)
    lse = (top + total.log()).squeeze(1)
    loss = lse - (1 - smoothing) * hit - smoothing * plain + z_loss * lse.square()
    if scale is not None:
        scale = torch.where(counts, scale, 0)
        wide.mul_((scale * (1 + 2 * z_loss * lse))[:, None] / total)
        wide.sub_((scale * (smoothing / wide.shape[1]))[:, None])
        wide.scatter_add_(1, label, -(1 - smoothing) * scale[:, None])
        logits.copy_(wide)
    return torch.where(counts, loss, 0), logits


@jit
def row_totals(row, size, room, block: tl.constexpr):
    """Return log(sum(e^x)) and sum(x) of a row; entries from `size` to `room` are ignored."""
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


@jit
def cross_entropy_kernel(
    logits, target, scale, losses, size, room, stride, scale_stride, ignore, smoothing, z_loss,
    gradient: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    """Compute a row's loss; with `gradient` overwrite its logits by scale * gradient."""
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
        factor = tl.where(valid, factor, float("nan"))  # an invalid label gives NaN
        for start in range(0, size, block):
            at = start + tl.arange(0, block)
            x = tl.load(row + at, mask=at < room, other=0.0).to(tl.float32)
            slope = tl.exp(x - lse) * (1 + 2 * z_loss * lse) - smoothing / size
            slope = tl.where(at == label, slope - (1 - smoothing), slope)
            slope = tl.where(counts & (at < size), slope * factor, 0.0)
            tl.store(row + at, slope.to(logits.dtype.element_ty), mask=at < room)


def rows_in_triton_(
    logits: Tensor,
    target: Tensor,
    scale: Tensor | None,
    ignore_index: int = -100,
    smoothing: float = 0.0,
    z_loss: float = 0.0,
    room: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Map logits [N, V] and target [N] int64 to losses [N] float32; return losses and logits.

    With `scale` [N] the logits are overwritten by scale * d loss / d logits. Rows of `ignore_index`
    have loss and gradient 0, rows whose target is not a class NaN. `room`, by default V, is the
    allocated row length, fast if a multiple of 16; entries beyond V are set to 0.

    Raises:
        ValueError: logits are not a row-major matrix of 16 or 32 bit floats.
    """
    if logits.dim() != 2 or logits.stride(1) != 1 or logits.dtype not in DTYPES:
        raise ValueError(f"logits {tuple(logits.shape)} of {logits.dtype}, {logits.stride()}")
    rows, size = logits.shape
    losses = torch.empty(rows, dtype=torch.float32, device=logits.device)
    if rows == 0:
        return losses, logits
    factor = losses if scale is None else scale  # not read when there is none
    with launching(logits):
        cross_entropy_kernel[(rows,)](
            logits, target.contiguous(), factor, losses, size, room or size, logits.stride(0),
            factor.stride(0), ignore_index, float(smoothing), float(z_loss),
            gradient=scale is not None, block=ELEMENTS, num_warps=WARPS,
        )  # fmt: skip
    return losses, logits


@jit
def multiply_kernel(x, factor, size, block: tl.constexpr):
    """Compute x *= factor; for a factor of 1 only the factor is read."""
    by = tl.load(factor)
    if by != 1:
        at = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
        value = tl.load(x + at, mask=at < size, other=0.0).to(tl.float32) * by
        tl.store(x + at, value.to(x.dtype.element_ty), mask=at < size)


def multiply_in_triton_(x: Tensor, factor: Tensor) -> Tensor:
    """Multiply contiguous x by a one-element float32 factor, in place."""
    with launching(x):
        multiply_kernel[(triton.cdiv(x.numel(), 4 * ELEMENTS),)](
            x, factor, x.numel(), block=4 * ELEMENTS, num_warps=WARPS
        )
    return x


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


def _check(
    x: Tensor, weight: Tensor, target: Tensor, label_smoothing: float, reduction: str
) -> None:
    if reduction not in REDUCTIONS:
        raise ValueError(f"reduction must be one of {', '.join(REDUCTIONS)}, got {reduction!r}")
    if not 0 <= label_smoothing <= 1:
        raise ValueError(f"label_smoothing must be from 0 to 1, got {label_smoothing}")
    if weight.dim() != 2 or x.shape[-1] != weight.shape[1] or x.shape[:-1] != target.shape:
        shapes = [tuple(one.shape) for one in (x, weight, target)]
        raise ValueError(f"x, weight and target of {shapes} do not go together")
    if x.dtype != weight.dtype and autocast_dtype(x) is None:
        raise ValueError(f"x is {x.dtype}, weight {weight.dtype}: they must be the same")


# Always: both multiply by the library; between the products the kernel reads and writes a chunk of
# logits once, where torch's operations go over a float32 copy of them some ten times.
in_triton = functools.partial(in_chunks, way="triton")
register("linear_cross_entropy", in_triton, functools.partial(in_chunks, way="torch"))
