"""Linear and activation in one step if the library supports it, else in two.

The matrix product's epilogue computes one kind of GELU, and which one depends on the device: erf on
the CPU, its tanh approximation on CUDA. So the device is probed, and the epilogue is used only for
the kind that it computes.
"""

from __future__ import annotations

import functools

import torch
import torch.nn.functional as F
from torch import Tensor

from torchbridge.kernels.registry import REGISTRY, Kernel, Request, kernel_for

_addmm_activation = getattr(torch, "_addmm_activation", None)  # no public name has it
_DEVICE = {"cpu": "cpu", "nvidia": "cuda", "amd": "cuda", "intel": "xpu"}


def linear_gelu(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    approximate: str = "none",
    path: str = "auto",
) -> tuple[Tensor, str]:
    """gelu(x W^T + b) and the name of the kernel: x [..., i], weight [o, i], bias [o] -> [..., o].

    `approximate` is "none" (erf) or "tanh"; `path` as in `kernel_for`.

    Raises:
        ValueError: another approximation.
        KernelRefused: the kernel asked for cannot compute this here.
    """
    if approximate not in ("none", "tanh"):
        raise ValueError(f'approximate must be "none" or "tanh", got {approximate!r}')
    kernel = kernel_for("linear_gelu", (x, weight, bias), path, approximate)
    return kernel.run(x, weight, bias, approximate), kernel.name


def linear_silu(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, *, path: str = "auto"
) -> tuple[Tensor, str]:
    """silu(x W^T + b) and the name of the kernel; shapes and `path` as in `linear_gelu`.

    Raises:
        KernelRefused: the kernel asked for cannot compute this here.
    """
    kernel = kernel_for("linear_silu", (x, weight, bias), path)
    return kernel.run(x, weight, bias), kernel.name


def epilogue_gelu(device: str) -> str | None:
    """Return the GELU that this kind of device's epilogue computes; None without an epilogue."""
    try:
        return _ask_epilogue(device)
    except (RuntimeError, AssertionError, TypeError):  # no device, no kernel, no function
        return None


@functools.cache
def _ask_epilogue(device: str) -> str | None:
    x = torch.tensor([[2.0]], device=device)  # erf: 1.954500, tanh: 1.954598
    with torch.no_grad():
        told = _addmm_activation(x[0] * 0, x, torch.ones_like(x), use_gelu=True)
        for kind in ("none", "tanh"):
            if (told - F.gelu(x, approximate=kind)).abs().item() < 1e-5:
                return kind
    return None


def _refuse_epilogue(request: Request) -> str | None:
    device = _DEVICE.get(request.hardware.vendor)
    computed = epilogue_gelu(device) if device else None
    if computed is None:
        return f"torch has no GELU epilogue on {device or request.hardware.vendor} here"
    if computed != request.variant:
        return f"the epilogue on {device} computes approximate={computed!r} only"
    return None


def _epilogue(x: Tensor, weight: Tensor, bias: Tensor | None, approximate: str) -> Tensor:
    rows = x.reshape(-1, x.shape[-1])
    shift = weight.new_zeros(weight.shape[0]) if bias is None else bias
    result = _addmm_activation(shift, rows, weight.t(), use_gelu=True)
    return result.reshape(*x.shape[:-1], weight.shape[0])


def _composed_gelu(x: Tensor, weight: Tensor, bias: Tensor | None, approximate: str) -> Tensor:
    return F.gelu(F.linear(x, weight, bias), approximate=approximate)


def _composed_silu(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return F.silu(F.linear(x, weight, bias))


REGISTRY.register(
    Kernel(
        "linear_gelu",
        "epilogue",
        _epilogue,
        rank=1,
        differentiable=False,
        refuse=_refuse_epilogue,
    )
)
REGISTRY.register(Kernel("linear_gelu", "composed", _composed_gelu))
REGISTRY.register(Kernel("linear_silu", "composed", _composed_silu))
