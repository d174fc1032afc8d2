"""Linear layer and cross-entropy over many classes, a chunk of tokens at a time.

The logits [T, V] of a language model's head are its largest tensor. Here a chunk of them is made,
turned into the gradient in its own place and multiplied on, before the next: no pass is added,
since the loss is the end of the network and its gradient needs nothing that comes later. Three
matrix products, as many as autograd does, by the library; most of the time is theirs, so what this
saves is memory, and with it traffic.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from torchbridge.kernels.registry import REGISTRY, Request, autocast_on, hardware_of

REDUCTIONS = ("mean", "sum", "none")
CHUNKS = 8  # as many at most: each one rounds the weight's gradient to its dtype
FULL_ROWS = {"cuda": 2048}  # of a chunk that its products run at speed with
TILE = 64  # rows and classes that memory is laid out for
_TAKEN = (
    "linear_cross_entropy gives away the gradients it made in the forward pass: a second backward "
    "needs a second forward (or reduction='none', which computes them anew)"
)
_TWICE = (
    "linear_cross_entropy has no second derivative: its gradients are computed in the forward "
    "pass, outside of autograd"
)


class Terms(NamedTuple):
    """What the loss of a token is made of, and how it is computed.

    `way` turns logits into gradients, "triton" or "torch", "auto": as the registry says; `rows` are
    the tokens of a chunk.
    """

    ignore_index: int
    smoothing: float
    z_loss: float
    way: str
    rows: int


def linear_cross_entropy(
    x: Tensor,
    weight: Tensor,
    target: Tensor,
    *,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    reduction: str = "mean",
    skip_ignored: bool = False,
    rows: int | None = None,
    way: str = "torch",
) -> Tensor:
    """cross_entropy(x weight^T, target): x [..., d], weight [V, d], target [...] int64.

    -> float32 (float64 of float64): [] or, for reduction "none", target's shape. `z_loss` adds
    z_loss * log(sum(e^logits))^2 for each token. `skip_ignored` leaves tokens of `ignore_index` out
    of the products too, which takes a wait for the device. `rows` tokens are in a chunk.

    Raises:
        ValueError: shapes, dtypes or settings that make no sense.
        RuntimeError: in backward, a second time or for a second derivative.
    """
    _check(x, weight, target, label_smoothing, reduction)
    flat, matrix = _autocast(x.reshape(-1, x.shape[-1])), _autocast(weight)
    labels = target.reshape(-1)
    kept = (labels != ignore_index).nonzero().squeeze(1) if skip_ignored else None
    if kept is not None:
        flat, labels = flat.index_select(0, kept), labels.index_select(0, kept)
    rows = rows or chunk_rows(len(labels), x.device.type)
    terms = Terms(ignore_index, float(label_smoothing), float(z_loss), way, rows)
    kind = x.device.type
    casts = autocast_on(kind)
    with torch.autocast(kind, enabled=False) if casts else contextlib.nullcontext():
        result = _reduced(flat, matrix, labels, terms, reduction)
    if reduction != "none":
        return result
    if kept is not None:
        result = result.new_zeros(target.numel()).index_copy(0, kept, result)
    return result.reshape(target.shape)


def chunk_rows(tokens: int, device: str) -> int:
    """Even chunks in full tiles: of 2,048 rows at most on a GPU, but no more than 8 of them.

    At 16,384 tokens of 2,048 numbers and 131,072 classes in 16 bit torch.compile holds the logits,
    4.3 GB, and the gradients, 0.6 GB: 4.9. This holds the gradients and a chunk's logits: 2,048
    rows take 0.54 GB, 1.14 in all, 0.23 of that; 3,302 would be 0.3 of it, the goal. Of those,
    2,048 x 2,048 numbers of x's gradient are 128 tiles for the 132 processors of an H100.
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
    """factor * the sum of all losses; gradients are made at once, of float16 without the factor.

    With it numbers of float16 would be lost that a scaled loss could have saved. Without it a
    weight's gradient in float16 can overflow, for a class that is very frequent: what 65504 is too
    little for needs bfloat16, or reduction "none".
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
    """The loss of every token. Only backward knows what each is worth, so it computes again."""

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
    """Losses [T], and the gradients of sum(scale * losses); what is not wanted is empty."""
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
        return cross_entropy_rows_by_library_
    from torchbridge.kernels.gpu.cross_entropy import cross_entropy_rows_

    return functools.partial(cross_entropy_rows_, room=room)


def _times(x: Tensor, factor: Tensor, way: str) -> Tensor:
    """In place: they are large."""
    if x.numel() and _in_triton(way, x):
        from torchbridge.kernels.gpu.cross_entropy import multiply_

        return multiply_(x, factor)
    # without a dimension CUDA rounds it to x's dtype
    return x.mul_(factor.reshape(1) if x.is_cuda else factor)


def cross_entropy_rows_by_library_(
    logits: Tensor,
    target: Tensor,
    scale: Tensor | None,
    ignore_index: int,
    smoothing: float,
    z_loss: float,
) -> tuple[Tensor, Tensor]:
    """logits [N, V] -> losses [N], and the logits: scale * their gradient, if there is a scale.

    One copy of them in float32 is made if they are of 16 bit, none otherwise.

    Raises:
        IndexError, RuntimeError: a target that is no class.
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


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


def _autocast(x: Tensor) -> Tensor:
    """As autocast has it: what F.linear would be given."""
    kind = x.device.type
    return x.to(torch.get_autocast_dtype(kind)) if autocast_on(kind) else x


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
    if x.dtype != weight.dtype and not autocast_on(x.device.type):
        raise ValueError(f"x is {x.dtype}, weight {weight.dtype}: they must be the same")
