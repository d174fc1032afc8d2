"""AdamW, fused into one kernel where that works, and its learning rate."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from torchbridge.train.config import TrainConfig


def why_not_fused(device: torch.device) -> str | None:
    """Return why AdamW cannot be fused on `device`, by trying a step; None if it can."""
    parameter = nn.Parameter(torch.zeros(1, device=device))
    parameter.grad = torch.ones_like(parameter)
    try:
        torch.optim.AdamW([parameter], lr=1.0, fused=True).step()
    except (RuntimeError, NotImplementedError) as error:
        return f"no fused AdamW on {device.type}: {str(error).splitlines()[0]}"
    return None


def make_adamw(
    parameters: Iterable[nn.Parameter], config: TrainConfig, rate: Tensor | None = None
) -> tuple[torch.optim.AdamW, str | None]:
    """Create AdamW for the parameters that require gradients; return (optimizer, why not fused).

    With `rate`, a scalar on their device, it reads the learning rate from there and can be captured
    in a CUDA graph.

    Raises:
        ValueError: no parameter requires a gradient, or fused is required and does not work.
    """
    learning = [parameter for parameter in parameters if parameter.requires_grad]
    if not learning:
        raise ValueError("no parameter of the model requires a gradient: there is nothing to train")
    reason = why_not_fused(learning[0].device) if config.fused is not False else "not asked for"
    if config.fused and reason:
        raise ValueError(f"fused was asked for: {reason}; use fused=None")
    options = {"weight_decay": config.weight_decay, "fused": reason is None}
    if rate is None:
        return torch.optim.AdamW(learning, lr=config.learning_rate, **options), reason
    return torch.optim.AdamW(learning, lr=rate, capturable=True, **options), reason


def learning_rate(config: TrainConfig, step: int, steps: int) -> float:
    """Return the learning rate of `step`, counted from 0, of `steps` in total.

    The rate rises linearly over `warmup_steps` steps to the full rate. Then it is constant, or
    decays and would be zero one step after the last.
    """
    if step < config.warmup_steps:
        return config.learning_rate * (step + 1) / config.warmup_steps
    done = (step - config.warmup_steps) / max(1, steps - config.warmup_steps)
    if config.schedule == "linear":
        return config.learning_rate * (1 - done)
    if config.schedule == "cosine":
        return config.learning_rate * (1 + math.cos(math.pi * done)) / 2
    return config.learning_rate
