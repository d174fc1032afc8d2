"""Kernels in Triton for NVIDIA's and AMD's chips. The package imports without Triton.

Every variant that a launcher can choose is a specimen (`suites/specimens_*.py`): the suite of
targets compiles each for each chip.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
from typing import Any

import torch
from torch import Tensor

from torchbridge.kernels.registry import Request

VENDORS = frozenset({"nvidia", "amd"})
DTYPES = frozenset({torch.float32, torch.float16, torch.bfloat16})
LEAST_CAPABILITY = (8, 0)  # asynchronous copies, bfloat16
AMD_TARGETS = ("gfx90a", "gfx942")


def refusal(request: Request) -> str | None:
    """Why none of these kernels runs on the hardware of a request; None if it does."""
    hardware = request.hardware
    if hardware.vendor == "nvidia" and (hardware.capability or (0, 0)) < LEAST_CAPABILITY:
        return f"needs sm_80; this is {hardware.target}"
    if hardware.vendor == "amd" and hardware.target not in AMD_TARGETS:
        return f"is built for {' and '.join(AMD_TARGETS)}; this is {hardware.target}"
    return triton_missing()


@functools.cache
def triton_missing() -> str | None:
    """Why there is no Triton; None where there is."""
    return None if importlib.util.find_spec("triton") else "triton is not installed"


def launching(x: Tensor) -> contextlib.AbstractContextManager[Any]:
    """Within it kernels run on the device of `x`: Triton takes the current one, whatever it gets.

    On the CPU, where only Triton's interpreter gets to, it does nothing.
    """
    return torch.cuda.device(x.device) if x.is_cuda else contextlib.nullcontext()
