"""Linear and activation fused in one call where the library supports it; and layers of them.

The epilogue of torch's matrix product computes one kind of GELU per device: erf on the CPU, the
tanh approximation on CUDA. The device is probed, and the epilogue is used only for that kind.
"""

from __future__ import annotations

import functools

import torch
import torch.nn.functional as F
from torch import Tensor, nn

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
    """Return gelu(x W^T + b) and the kernel's name: x [..., i], weight [o, i], bias [o] ->
    [..., o].

    `approximate` is "none" (erf) or "tanh"; `path` as in `kernel_for`.

    Raises:
        ValueError: `approximate` is unknown.
        KernelRefused: the requested kernel cannot compute this on this device.
    """
    _check(approximate)
    kernel = kernel_for("linear_gelu", (x, weight, bias), path, approximate)
    return kernel.run(x, weight, bias, approximate), kernel.name


def epilogue_gelu(device: str) -> str | None:
    """Return the kind of GELU that this device type's epilogue computes, or None."""
    try:
        return _ask_epilogue(device)
    except (RuntimeError, AssertionError, TypeError):  # missing device, kernel or function
        return None


@functools.cache
def _ask_epilogue(device: str) -> str | None:
    x = torch.tensor([[2.0]], device=device)  # erf: 1.954500, tanh: 1.954598
    with torch.no_grad():
        values = _addmm_activation(x[0] * 0, x, torch.ones_like(x), use_gelu=True)
        for kind in ("none", "tanh"):
            if (values - F.gelu(x, approximate=kind)).abs().item() < 1e-5:
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


def _check(approximate: str) -> None:
    if approximate not in ("none", "tanh"):
        raise ValueError(f'approximate must be "none" or "tanh", got {approximate!r}')


class FusedLinear(nn.Linear):
    """Compute act(x W^T + b); `path_taken` is the name of the last call's kernel.

    Raises:
        ValueError: a width is below 1.
    """

    activation: str

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        if in_features < 1 or out_features < 1:
            raise ValueError(f"a layer of {in_features} -> {out_features} features is empty")
        super().__init__(in_features, out_features, bias)
        self.path_taken = ""


class FusedLinearGELU(FusedLinear):
    """Compute gelu(x W^T + b); `approximate` is "none" (erf) or "tanh", `path` "auto" or a kernel's
    name.

    Raises:
        KernelRefused: (in forward) the requested kernel cannot compute this on this device.
    """

    activation = "gelu"

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        approximate: str = "none",
        path: str = "auto",
    ) -> None:
        _check(approximate)
        super().__init__(in_features, out_features, bias)
        self.approximate, self.path = approximate, path

    def forward(self, x: Tensor) -> Tensor:
        """Map [..., in_features] to [..., out_features]."""
        options = {"approximate": self.approximate, "path": self.path}
        output, self.path_taken = linear_gelu(x, self.weight, self.bias, **options)
        return output


class FusedLinearSiLU(FusedLinear):
    """Compute silu(x W^T + b) by the library: no epilogue computes it."""

    activation = "silu"

    def forward(self, x: Tensor) -> Tensor:
        """Map [..., in_features] to [..., out_features]."""
        self.path_taken = "composed"
        return F.silu(super().forward(x))


ACTIVATIONS = {"gelu": FusedLinearGELU, "silu": FusedLinearSiLU}


class FusedFFNLayer(nn.Module):
    """Feed-forward layer: fused up-projection and activation, then down-projection."""

    def __init__(
        self,
        in_features: int,
        hidden_features: int,
        out_features: int | None = None,
        *,
        activation: str = "gelu",
        bias: bool = True,
    ) -> None:
        super().__init__()
        if activation not in ACTIVATIONS:
            known = ", ".join(ACTIVATIONS)
            raise ValueError(f"activation must be one of {known}, got {activation!r}")
        self.up = ACTIVATIONS[activation](in_features, hidden_features, bias)
        self.down = nn.Linear(hidden_features, out_features or in_features, bias)

    @property
    def path_taken(self) -> str:
        """The kernel of the up-projection's last call."""
        return self.up.path_taken

    def forward(self, x: Tensor) -> Tensor:
        """Map [..., in_features] to [..., out_features]."""
        return self.down(self.up(x))


def create_fused_ffn_layer(
    in_features: int,
    hidden_features: int,
    out_features: int | None = None,
    *,
    activation: str = "gelu",
    bias: bool = True,
) -> FusedFFNLayer:
    """Create a feed-forward layer; `out_features` defaults to `in_features`.

    Raises:
        ValueError: the activation is unknown, or a width is below 1.
    """
    return FusedFFNLayer(
        in_features, hidden_features, out_features, activation=activation, bias=bias
    )
