"""What the fused layers are compared with: plain formulas in float64 on the CPU."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

VIEWS = {"t", "view", "_unsafe_view", "reshape", "transpose", "detach", "expand", "alias"}


def double(x: Tensor) -> Tensor:
    """x as float64 on the CPU."""
    return x.detach().cpu().double()


def gelu(x: Tensor, approximate: str = "none") -> Tensor:
    """x * Phi(x), or the tanh formula that stands in for it."""
    if approximate == "tanh":
        return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))


def silu(x: Tensor) -> Tensor:
    """x / (1 + e^-x)."""
    return x / (1 + torch.exp(-x))


def linear_activation(layer: nn.Module, activation: Callable, x: Tensor, **how) -> Tensor:
    """activation(x W^T + b) of the layer's own parameters."""
    total = double(x) @ double(layer.weight).T
    if layer.bias is not None:
        total = total + double(layer.bias)
    return activation(total, **how)


def feed_forward(layer: nn.Module, activation: Callable, x: Tensor) -> Tensor:
    """Up, activation, down of a FusedFFNLayer's own parameters."""
    hidden = linear_activation(layer.up, activation, x)
    output = hidden @ double(layer.down.weight).T
    return output if layer.down.bias is None else output + double(layer.down.bias)


def reference_gradients(
    layer: nn.Module, activation: Callable, x: Tensor, upstream: Tensor, **how
) -> list[Tensor]:
    """Of x, then of the layer's parameters in order, by autograd of the float64 formula."""
    leaves = [double(one).requires_grad_() for one in (x, *layer.parameters())]
    total = leaves[0] @ leaves[1].T
    if len(leaves) > 2:
        total = total + leaves[2]
    return list(torch.autograd.grad(activation(total, **how), leaves, double(upstream)))


class _Calls(TorchDispatchMode):
    """Names of the operations that reach a device."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.overloadpacket.__name__
        if name not in VIEWS:
            self.names.append(name)
        return function(*args, **(kwargs or {}))


def calls_of(work: Callable, *inputs: Tensor) -> list[str]:
    """The operations that `work` launches for some inputs, views left out."""
    with _Calls() as calls:
        work(*inputs)
    return calls.names
