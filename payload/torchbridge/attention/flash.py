"""The optional flash-attn packages, used only where they are faster than SDPA.

flash_attn_interface (FlashAttention-3) is for Hopper, flash_attn (FlashAttention-2) for sm_80 and
later. SDPA includes FlashAttention-2 and cuDNN, so only the former is ever preferred.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import lru_cache
from types import ModuleType

import torch
from torch import Tensor

from torchbridge.attention.call import Call, Path, PathRefused
from torchbridge.attention.patterns import Causal, Pattern
from torchbridge.hardware import Hardware, probe

PACKAGES = (("flash_attn_interface", range(9, 10)), ("flash_attn", range(8, 13)))  # sm_x*


def find_package(
    hardware: Hardware, load: Callable[[str], ModuleType] = importlib.import_module
) -> ModuleType | None:
    """Import the package for this hardware that has `flash_attn_func`; None if there is none."""
    if hardware.vendor != "nvidia" or hardware.capability is None:
        return None
    for name, generations in PACKAGES:
        if hardware.capability[0] not in generations:
            continue
        try:
            module = load(name)
        except (ImportError, OSError):  # absent, or built for another torch
            continue
        if hasattr(module, "flash_attn_func"):
            return module
    return None


def is_newer(package: ModuleType | None) -> bool:
    """Return whether the package is FlashAttention-3, which SDPA does not include."""
    return package is not None and package.__name__ == PACKAGES[0][0]


@lru_cache
def _package(device: torch.device) -> ModuleType | None:
    return find_package(probe(device))


def preferred(call: Call) -> bool:
    """Return whether a package is faster than SDPA for this call."""
    if not call.q.is_cuda or torch.compiler.is_compiling():
        return False
    package = _package(call.q.device)
    return is_newer(package) and why_not(call, package) is None


def why_not(call: Call, package: ModuleType | None) -> str | None:
    """Return why the package cannot compute this call; None if it can."""
    if package is None:
        return "neither flash_attn_interface (Hopper) nor flash_attn (sm_80) can be imported"
    if call.q.dtype not in (torch.float16, torch.bfloat16):
        return f"it computes in 16 bit, not in {call.q.dtype}"
    if call.q.shape[3] != call.v.shape[3] or call.q.shape[3] > 256:
        return "it has heads of up to 256, values as wide as keys"
    if call.mask is not None or type(call.pattern) not in (Pattern, Causal):
        return "it has no masks but the causal one"
    if type(call.pattern) is Causal and call.scores[2] != call.scores[3]:
        return "its causal mask ends at the last key, not at the first query"
    if call.dropout:
        return "dropout is SDPA's"
    return None


def by_package(call: Call, package: ModuleType | None = None) -> tuple[Tensor, Path]:
    """Compute the call by `package`, by default the device's.

    Raises:
        PathRefused: there is no package, or it cannot compute this call.
    """
    package = package or (_package(call.q.device) if call.q.device.type == "cuda" else None)
    reason = why_not(call, package)
    if reason is not None:
        raise PathRefused("flash_attn", reason)
    q, k, v = (x.transpose(1, 2) for x in (call.q, call.k, call.v))  # it has positions first
    causal = type(call.pattern) is Causal
    output = package.flash_attn_func(q, k, v, softmax_scale=call.scale, causal=causal)
    if isinstance(output, tuple):  # early versions return the log-sum-exp as well
        output = output[0]
    return output.transpose(1, 2), Path("flash_attn", package.__name__)
