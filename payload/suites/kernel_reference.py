"""References of kernels and fused layers: loops and formulas in float64 on the CPU."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from suites.numerics import double


def gelu(x: Tensor, approximate: str = "none") -> Tensor:
    """Return x * Phi(x), or its tanh approximation."""
    if approximate == "tanh":
        return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))


def silu(x: Tensor) -> Tensor:
    """Return x / (1 + e^-x)."""
    return x / (1 + torch.exp(-x))


ACTIVATION: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": lambda x: x * (x > 0),
    "gelu": gelu,
    "gelu_tanh": lambda x: gelu(x, "tanh"),
    "silu": silu,
}


def leaves(*tensors: Tensor | None) -> list[Tensor | None]:
    """Return float64 copies on the CPU that require gradients; None stays None."""
    return [None if one is None else double(one).requires_grad_() for one in tensors]


def gradients(output: Tensor, inputs: Sequence[Tensor | None], upstream: Tensor) -> list[Tensor]:
    """Return the gradients of a float64 output with respect to all inputs that are not None.

    `upstream` is the gradient of the output.
    """
    return list(torch.autograd.grad(output, [o for o in inputs if o is not None], double(upstream)))


def cross_entropy(
    x: Tensor,
    weight: Tensor,
    target: Tensor,
    *,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    reduction: str = "mean",
) -> Tensor:
    """Return the cross-entropy of all logits at once in float64: -sum(q log p) + z log(Z)^2."""
    logits = x @ weight.T
    log_z = torch.log(torch.exp(logits).sum(-1))
    counts = target.cpu() != ignore_index
    wanted = torch.full_like(logits, label_smoothing / logits.shape[-1])
    label = torch.where(counts, target.cpu(), 0).unsqueeze(-1)
    wanted = wanted + (1 - label_smoothing) * torch.zeros_like(logits).scatter(-1, label, 1.0)
    losses = -(wanted * (logits - log_z.unsqueeze(-1))).sum(-1) + z_loss * log_z**2
    losses = torch.where(counts, losses, 0)
    if reduction == "none":
        return losses
    return losses.sum() / counts.sum() if reduction == "mean" else losses.sum()


def moe_experts(
    x: Tensor,
    experts: Tensor,
    weights: Tensor,
    up: Tensor,
    down: Tensor,
    up_bias: Tensor | None,
    down_bias: Tensor | None,
    activation: str,
    gated: bool,
) -> Tensor:
    """Return the experts' weighted output in float64, one token and one expert at a time."""
    x, weights, up, down = double(x), double(weights), double(up), double(down)
    output = torch.zeros_like(x)
    for token, chosen in enumerate(experts.tolist()):
        for choice, expert in enumerate(chosen):
            hidden = up[expert] @ x[token]
            if up_bias is not None:
                hidden = hidden + double(up_bias)[expert]
            first, second = hidden.chunk(2) if gated else (hidden, 1.0)
            part = down[expert] @ (ACTIVATION[activation](first) * second)
            if down_bias is not None:
                part = part + double(down_bias)[expert]
            output[token] += weights[token, choice] * part
    return output


def peak_bytes(work: Callable[[], object]) -> int:
    """Return the peak of the CPU memory in bytes that `work` allocates."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        work()
    events = profiled.profiler.kineto_results.events()
    moves = [(one.start_ns(), one.nbytes()) for one in events if one.name() == "[memory]"]
    total = peak = 0
    for _, size in sorted(moves, key=lambda move: move[0]):
        total += size
        peak = max(peak, total)
    return peak


def linear_activation(layer: nn.Module, activation: Callable, x: Tensor, **how) -> Tensor:
    """Return activation(x W^T + b) in float64, with the layer's parameters."""
    total = double(x) @ double(layer.weight).T
    if layer.bias is not None:
        total = total + double(layer.bias)
    return activation(total, **how)


def feed_forward(layer: nn.Module, activation: Callable, x: Tensor) -> Tensor:
    """Return the output in float64 of a FusedFFNLayer: linear, activation, linear."""
    hidden = linear_activation(layer.up, activation, x)
    output = hidden @ double(layer.down.weight).T
    return output if layer.down.bias is None else output + double(layer.down.bias)


def reference_gradients(
    layer: nn.Module, activation: Callable, x: Tensor, upstream: Tensor, **how
) -> list[Tensor]:
    """Return the float64 gradients of x and of the layer's parameters, in order, by autograd."""
    leaves = [double(one).requires_grad_() for one in (x, *layer.parameters())]
    total = leaves[0] @ leaves[1].T
    if len(leaves) > 2:
        total = total + leaves[2]
    return list(torch.autograd.grad(activation(total, **how), leaves, double(upstream)))
