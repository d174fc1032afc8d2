"""What autocast does to products: for operators that it does not know, and those it must spare."""

from __future__ import annotations

import contextlib

import torch
from torch import Tensor

from torchbridge.kernels.registry import autocast_on


def picked(x: Tensor) -> torch.dtype | None:
    """The dtype that autocast multiplies x in; None where it leaves x as it is."""
    kind = x.device.type
    if x.dtype == torch.float64 or not autocast_on(kind):
        return None
    return torch.get_autocast_dtype(kind)


def spared(x: Tensor) -> contextlib.AbstractContextManager[object]:
    """Within it products of x are made in its own dtype."""
    kind = x.device.type
    return torch.autocast(kind, enabled=False) if picked(x) else contextlib.nullcontext()
