"""torch's grouped matrix multiply: one kernel for all experts. Found by trying, not by version."""

from __future__ import annotations

from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor


def _function():
    """The public function (torch 2.10), else the private one (torch 2.7), else None."""
    return getattr(F, "grouped_mm", None) or getattr(torch, "_grouped_mm", None)


def grouped_mm(rows: Tensor, weights: Tensor, ends: Tensor) -> Tensor:
    """rows[start:end] @ weights[e].T per expert: [A, K], [E, N, K], ends [E] int32 -> [A, N]."""
    out = _function()(rows, weights.transpose(-2, -1), offs=ends)
    if out.requires_grad:
        out.register_hook(Tensor.contiguous)  # the backward kernel refuses expanded gradients
    return out


@torch.compiler.disable  # the probe must see real tensors
def why_not(device: torch.device, dtype: torch.dtype, widths: tuple[int, ...]) -> str | None:
    """Why grouped_mm cannot be used for matrices of these widths; None when it can."""
    if _function() is None:
        return f"torch {torch.__version__} has no grouped_mm"
    itemsize = torch.empty((), dtype=dtype).element_size()
    odd = [width for width in widths if width * itemsize % 16]
    if odd:
        return f"grouped_mm needs rows of a multiple of 16 bytes; width {odd[0]} of {dtype} is not"
    if device.type == "meta":
        return None
    return _probe(str(device), dtype)


@lru_cache
@torch.inference_mode(False)
@torch.enable_grad()
def _probe(device: str, dtype: torch.dtype) -> str | None:
    """Run a tiny forward and backward and look at the numbers, whatever mode the caller is in."""
    rows = torch.linspace(-1, 1, 8 * 16, device=device).reshape(8, 16).to(dtype).requires_grad_()
    weights = torch.linspace(-1, 1, 3 * 256, device=device).reshape(3, 16, 16).to(dtype)
    weights.requires_grad_()
    ends = torch.tensor([3, 3, 8], dtype=torch.int32, device=device)  # the second group is empty
    expected = torch.cat([rows[:3] @ weights[0].T, rows[3:] @ weights[2].T])
    wanted = torch.autograd.grad(expected.square().sum(), (rows, weights))
    try:
        out = grouped_mm(rows, weights, ends)
        got = torch.autograd.grad(out.square().sum(), (rows, weights))
    except (RuntimeError, NotImplementedError) as error:
        return f"grouped_mm does not run for {dtype} on {device}: {str(error).splitlines()[0]}"
    for is_value, should in ((out, expected), *zip(got, wanted, strict=True)):
        if (is_value - should).abs().max() > 0.05 * should.abs().max():
            return f"grouped_mm computes wrong numbers for {dtype} on {device}"
    return None
