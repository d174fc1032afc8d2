"""Compare numerical results, and control TF32 rounding."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

# Relative to the largest expected number, of a whole model: rounding adds up over its layers.
TOLERANCE = {
    torch.float64: 1e-12,
    torch.float32: 1e-4,
    torch.bfloat16: 5e-2,
    torch.float16: 1e-2,
}


@contextlib.contextmanager
def tf32(*, allowed: bool) -> Iterator[None]:
    """Allow or forbid TF32 rounding of float32 products in the block."""
    cudnn = torch.backends.cudnn
    before = torch.get_float32_matmul_precision(), cudnn.allow_tf32
    torch.set_float32_matmul_precision("high" if allowed else "highest")
    cudnn.allow_tf32 = allowed
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        cudnn.allow_tf32 = before[1]


def whole_float32() -> contextlib.AbstractContextManager[None]:
    """Forbid TF32 in the block; torch lets cuDNN use it by default."""
    return tf32(allowed=False)


def float_tensors(output: object) -> list[Tensor]:
    """Return all floating-point tensors in nested tuples, lists and dictionaries.

    Raises:
        TypeError: there is no such tensor.
    """
    leaves = [leaf for leaf in tree_leaves(output) if isinstance(leaf, Tensor)]
    found = [leaf for leaf in leaves if leaf.is_floating_point()]
    if not found:
        raise TypeError(f"expected an output with floating-point tensors, got {type(output)}")
    return found


def relative_error(actual: Tensor, expected: Tensor) -> float:
    """Return max |actual - expected| / max |expected|, computed in float64; infinite for NaN.

    Raises:
        ValueError: the shapes differ.
    """
    if actual.shape != expected.shape:
        raise ValueError(f"shape {tuple(actual.shape)} is not {tuple(expected.shape)}")
    if not expected.numel():
        return 0.0
    actual, expected = actual.detach().cpu().double(), expected.detach().cpu().double()
    largest = expected.abs().max().clamp_min(torch.finfo(torch.float64).tiny)
    error = ((actual - expected).abs().max() / largest).item()
    return error if error == error else float("inf")


def relative_rms(actual: Tensor, expected: Tensor) -> float:
    """Return the RMS of the difference over the RMS of `expected`, computed in float64."""
    actual, expected = actual.detach().double(), expected.detach().double()
    return ((actual - expected).square().mean() / expected.square().mean()).sqrt().item()
