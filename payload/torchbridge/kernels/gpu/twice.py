"""Gradients to be differentiated again (create_graph=True), which those of kernels cannot be."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor


def by_library(
    function: Callable[..., Tensor], given: Sequence[Tensor | None], upstream: Tensor
) -> list[Tensor | None]:
    """Gradients of function(*given), with their graph; None for what requires none."""
    apart = [one if one is None else one.view_as(one) for one in given]  # one may be given twice
    wanted = [one is not None and one.requires_grad for one in apart]
    leaves = [one for one, want in zip(apart, wanted, strict=True) if want]
    made = iter(torch.autograd.grad(function(*apart), leaves, upstream, create_graph=True))
    return [next(made) if want else None for want in wanted]
