"""Layers on the fused functions. `path_taken` names the kernel of the last call."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from torchbridge.kernels.fused import linear_gelu, linear_silu


class FusedLinear(nn.Module):
    """act(x W^T + b), with the parameters and the initialisation of nn.Linear.

    `path` is "auto" or a kernel's name, as in `linear_gelu`.
    """

    activation: str

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, *, path: str = "auto"
    ) -> None:
        super().__init__()
        if in_features < 1 or out_features < 1:
            raise ValueError(f"a layer of {in_features} -> {out_features} features is empty")
        self.in_features = in_features
        self.out_features = out_features
        self.path = path
        self.path_taken = ""
        self.weight = nn.Parameter(torch.empty(out_features, in_features))
        self.bias = nn.Parameter(torch.empty(out_features)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Uniform in +-1 / sqrt(in_features), as nn.Linear."""
        bound = 1 / math.sqrt(self.in_features)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -bound, bound)

    def forward(self, x: Tensor) -> Tensor:
        """[..., in_features] -> [..., out_features]

        Raises:
            KernelRefused: `path` names a kernel that cannot compute this here.
        """
        output, self.path_taken = self.compute(x)
        return output

    def compute(self, x: Tensor) -> tuple[Tensor, str]:
        """The output, and the kernel that made it."""
        raise NotImplementedError

    def extra_repr(self) -> str:
        """As nn.Linear's."""
        sizes = f"in_features={self.in_features}, out_features={self.out_features}"
        return f"{sizes}, bias={self.bias is not None}"


class FusedLinearGELU(FusedLinear):
    """gelu(x W^T + b); `approximate` is "none" (erf) or "tanh"."""

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
        super().__init__(in_features, out_features, bias, path=path)
        if approximate not in ("none", "tanh"):
            raise ValueError(f'approximate must be "none" or "tanh", got {approximate!r}')
        self.approximate = approximate

    def compute(self, x: Tensor) -> tuple[Tensor, str]:
        """The output, and the kernel that made it."""
        return linear_gelu(x, self.weight, self.bias, approximate=self.approximate, path=self.path)


class FusedLinearSiLU(FusedLinear):
    """silu(x W^T + b)."""

    activation = "silu"

    def compute(self, x: Tensor) -> tuple[Tensor, str]:
        """The output, and the kernel that made it."""
        return linear_silu(x, self.weight, self.bias, path=self.path)


ACTIVATIONS = {"gelu": FusedLinearGELU, "silu": FusedLinearSiLU}


class FusedFFNLayer(nn.Module):
    """A transformer's feed-forward part: fused up-projection and activation, then down."""

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
        """[..., in_features] -> [..., out_features]"""
        return self.down(self.up(x))


def create_fused_ffn_layer(
    in_features: int,
    hidden_features: int,
    out_features: int | None = None,
    *,
    activation: str = "gelu",
    bias: bool = True,
) -> FusedFFNLayer:
    """A feed-forward part; `out_features` is `in_features` unless given.

    Raises:
        ValueError: an unknown activation, or an empty layer.
    """
    return FusedFFNLayer(
        in_features, hidden_features, out_features, activation=activation, bias=bias
    )
