"""torch's grouped matrix product, one kernel for all experts, where a trial run works."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

from torchbridge.device import reporting_waits
from torchbridge.kernels import Kernel
from torchbridge.kernels.registry import autocast_dtype, first_words


def _function():
    """Return torch's grouped product: public (torch 2.10), private (torch 2.8), or None."""
    return getattr(F, "grouped_mm", None) or getattr(torch, "_grouped_mm", None)


class _WholeGradient(torch.autograd.Function):
    """Identity whose gradient is contiguous.

    The kernel's backward refuses strides of 0. A hook would suffice, but torch.compile breaks its
    graph at hooks up to torch 2.10.
    """

    @staticmethod
    def forward(ctx, out):
        return out.view_as(out)

    @staticmethod
    def backward(ctx, grad):
        return grad.contiguous()


def grouped_mm(rows: Tensor, weights: Tensor, ends: Tensor, kernel: Kernel | None = None) -> Tensor:
    """Compute rows[start:end] @ weights[e].T per expert: [A, K], [E, N, K], ends [E] int32
    -> [A, N].

    `kernel` replaces torch's own.
    """
    dtype = autocast_dtype(rows)  # autocast does not know the operator
    if dtype is not None:
        rows, weights = rows.to(dtype), weights.to(dtype)
    if kernel is not None:
        return kernel.run(rows, weights, ends)
    return _WholeGradient.apply(_function()(rows, weights.transpose(-2, -1), offs=ends))


@torch.compiler.assume_constant_result  # the probe must see real tensors
def why_not(
    device: torch.device, dtype: torch.dtype, widths: tuple[int, ...], *, traced: bool = False
) -> str | None:
    """Return why grouped_mm cannot be used for matrices of these widths; None if it can.

    `traced`: it is for torch.compile, which checks it on meta tensors.
    """
    if _function() is None:
        return f"torch {torch.__version__} has no grouped_mm"
    itemsize = torch.empty((), dtype=dtype).element_size()
    odd = [width for width in widths if width * itemsize % 16]
    if odd:
        return f"grouped_mm needs rows of a multiple of 16 bytes; width {odd[0]} of {dtype} is not"
    reason = _trace(dtype) if traced or device.type == "meta" else None
    return reason if reason or device.type == "meta" else _probe(str(device), dtype)


@lru_cache
def _trace(dtype: torch.dtype) -> str | None:
    rows, weights = (torch.empty(s, dtype=dtype, device="meta") for s in ((8, 16), (3, 16, 16)))
    try:
        grouped_mm(rows, weights, torch.empty(3, dtype=torch.int32, device="meta"))
    except (RuntimeError, NotImplementedError) as error:
        return f"grouped_mm of {dtype} cannot be traced: {first_words(error)}"
    return None


def forbid_synchronisation(device: torch.device) -> AbstractContextManager[None]:
    """Raise RuntimeError for host-device synchronisation in the block, on CUDA.

    Where torch has no kernel for a chip or dtype (bfloat16 before Hopper, float32 everywhere), its
    grouped_mm copies the ends to the host and loops; this detects it.
    """
    return reporting_waits(device, "error")


@lru_cache
@torch.inference_mode(False)
@torch.enable_grad()
def _probe(device: str, dtype: torch.dtype) -> str | None:
    """Return why a tiny forward and backward fail or are wrong; None if they are right."""
    rows = torch.linspace(-1, 1, 8 * 16, device=device).reshape(8, 16).to(dtype).requires_grad_()
    weights = torch.linspace(-1, 1, 3 * 256, device=device).reshape(3, 16, 16).to(dtype)
    weights.requires_grad_()
    ends = torch.tensor([3, 3, 8], dtype=torch.int32, device=device)  # the second group is empty
    expected = torch.cat([rows[:3] @ weights[0].T, rows[3:] @ weights[2].T])
    wanted = torch.autograd.grad(expected.square().sum(), (rows, weights))
    try:
        with forbid_synchronisation(rows.device):
            out = grouped_mm(rows, weights, ends)
            got = torch.autograd.grad(out.square().sum(), (rows, weights))
    except torch.OutOfMemoryError:
        raise  # is no property of the kernel, and would be cached
    except (RuntimeError, NotImplementedError) as error:
        first = first_words(error)
        if "synchronizing" in first:
            return f"grouped_mm waits for the device for {dtype} on {device}"
        return f"grouped_mm does not run for {dtype} on {device}: {first}"
    for is_value, should in ((out, expected), *zip(got, wanted, strict=True)):
        if (is_value - should).abs().max() > 0.05 * should.abs().max():
            return f"grouped_mm computes wrong numbers for {dtype} on {device}"
    return None
