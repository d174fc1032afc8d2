"""The library's ways of the operations that have a matrix kernel, and when they are the better."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from torchbridge.kernels.registry import Request

FEW_ROWS = 64  # for one weight: the time goes into reading the weight
FEW_WIDE_ROWS = 16  # of float32 where no matrix instruction multiplies it
MANY, SOME, MIXED = "many rows", "some rows", "mixed dtypes"
ODD, ACROSS = "odd widths", "transposed weights"
SLOW = {
    MANY: f"for more than {FEW_ROWS} rows the library multiplies faster",
    ODD: "reads fast where widths are multiples of 16 only, one number at a time elsewhere",
    ACROSS: "transposed weights would be copied at every call",
}
ACTIVATION: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": functools.partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
}


def activation_of(name: str) -> Callable[[Tensor], Tensor]:
    """The function of that name.

    Raises:
        ValueError: there is none.
    """
    if name not in ACTIVATION:
        raise ValueError(f"activation must be one of {', '.join(ACTIVATION)}, got {name!r}")
    return ACTIVATION[name]


def gated_linear(
    x: Tensor,
    gate: Tensor,
    up: Tensor | None = None,
    bias: Tensor | None = None,
    activation: str = "silu",
) -> Tensor:
    """act(x gate^T) * (x up^T), or act(x gate^T + bias): x [..., d], gate, up [h, d], bias [h].

    Raises:
        ValueError: an unknown activation, or a bias next to `up`.
    """
    if up is not None and bias is not None:
        raise ValueError("a bias is for the form without `up`")
    result = activation_of(activation)(F.linear(x, gate, bias))
    return result if up is None else result * F.linear(x, up)


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
) -> Tensor:
    """An expert after the other, each on its rows: shapes as in `functional.moe_experts`.

    Raises:
        ValueError: an unknown activation.
        IndexError: an expert that there is not.
    """
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


def grouped_mm(rows: Tensor, weights: Tensor, ends: Tensor) -> Tensor:
    """A product after the other: rows [A, K], weights [E, N, K], ends [E] int32 -> [A, N]."""
    sizes = torch.diff(ends.long(), prepend=ends.new_zeros(1)).tolist()
    parts = zip(rows.split(sizes), weights, strict=True)
    return torch.cat([F.linear(part, weight) for part, weight in parts])


def yields_grouped(request: Request) -> str | None:
    """Why the library's loop is taken although the grouped product in Triton could compute it."""
    if request.variant in (ODD, ACROSS):
        return SLOW[request.variant]
    if request.dtype == torch.float32 and request.hardware.vendor == "nvidia":  # TF32 drops 13 bits
        return "the library multiplies float32 faster"
    return None


def rows_variant(
    rows: int, experts: int = 1, x: Tensor | None = None, *weights: Tensor | None
) -> str:
    """What a request says of its size, and of x and the weights and biases it comes with.

    Without rows, as for a call that is traced, no more than whether dtypes are mixed.
    """
    given = [one for one in (x, *weights) if one is not None]
    if any(one.dtype != given[0].dtype for one in given):
        return MIXED
    if rows > FEW_ROWS * experts:
        return MANY
    sized = [one for one in given if one.ndim > 1 and rows]
    if any(one.stride(-1) != 1 for one in sized if one is not x):
        return ACROSS
    if any(one.shape[-1] % 16 or one.stride(-2) % 16 for one in sized):
        return ODD
    return SOME if rows > FEW_WIDE_ROWS * experts else ""


def refuse(request: Request) -> str | None:
    """Why the kernels in Triton cannot; None if they can."""
    from torchbridge.kernels import gpu

    if request.variant == MIXED:
        return "x and the weights must have one dtype"
    return gpu.refusal(request)


def yields(request: Request) -> str | None:
    """Why the library's way is taken although the kernel in Triton could compute it."""
    if request.variant in SLOW:
        return SLOW[request.variant]
    wide = request.dtype == torch.float32 and request.hardware.vendor == "nvidia"
    if request.variant == SOME and wide:  # TF32 drops 13 bits
        return f"for more than {FEW_WIDE_ROWS} rows the library multiplies float32 faster"
    if request.gradient:
        return "the library's way keeps as much for backward, and multiplies faster"
    return None
