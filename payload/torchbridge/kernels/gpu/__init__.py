"""Kernels in Triton for NVIDIA's and AMD's chips. The package imports without Triton.

A module here that has kernels has `SPECIMENS`, a list of every variant that its launcher can
choose; `kernel_modules` finds it by itself, and the suite of targets compiles each for each chip.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import pkgutil
from types import ModuleType

import torch

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


def kernel_modules() -> list[ModuleType]:
    """All modules of this package that have specimens, by name. Needs Triton."""
    names = sorted(f"{__name__}.{found.name}" for found in pkgutil.iter_modules(__path__))
    modules = [importlib.import_module(name) for name in names]
    return [module for module in modules if hasattr(module, "SPECIMENS")]
