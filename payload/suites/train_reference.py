"""Small training problems, and AdamW from its formulas in float64."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torchbridge.hardware import Hardware
from torchbridge.train import TensorBatches

FEATURES, CLASSES = 20, 4
NO_AMP = Hardware("cpu", "plain", "plain", "plain")
BF16 = Hardware("cpu", "with bf16", "any", "with-bf16", features=frozenset({"fp16", "bf16"}))
FP16 = Hardware("cpu", "with fp16", "any", "with-fp16", features=frozenset({"fp16"}))


def problem(device: torch.device, samples: int = 256, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return normal x [N, 20], and y [N]: the index of the largest of the first four features."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(samples, FEATURES, generator=generator)
    return x.to(device), x[:, :CLASSES].argmax(dim=1).to(device)


def batches(device: torch.device, size: int = 32, *, shuffled: bool = False) -> TensorBatches:
    """Return the training problem in batches."""
    return TensorBatches(*problem(device), size, seed=7 if shuffled else None)


def network(dropout: float = 0.0, seed: int = 0) -> nn.Module:
    """Return a network 20 -> 32 -> 4 whose weights depend only on the seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        parts = nn.Linear(FEATURES, 32), nn.ReLU(), nn.Dropout(dropout), nn.Linear(32, CLASSES)
        return nn.Sequential(*parts)


def weights(model: nn.Module) -> list[Tensor]:
    """Return copies of all parameters."""
    return [p.detach().clone() for p in model.parameters()]


class AdamW64:
    """AdamW (decoupled decay, bias correction) in float64 on the CPU, from the paper's formulas."""

    def __init__(self, parameters: list[Tensor], decay: float = 0.01) -> None:
        self.parameters = [p.detach().cpu().double() for p in parameters]
        self.first = [torch.zeros_like(p) for p in self.parameters]
        self.second = [torch.zeros_like(p) for p in self.parameters]
        self.decay = decay
        self.taken = 0

    def step(self, gradients: list[Tensor], rate: float) -> None:
        """Update the parameters once by their gradients, with learning rate `rate`."""
        self.taken += 1
        for index, gradient in enumerate(gradients):
            g = gradient.detach().cpu().double()
            self.first[index] = 0.9 * self.first[index] + 0.1 * g
            self.second[index] = 0.999 * self.second[index] + 0.001 * g * g
            mean = self.first[index] / (1 - 0.9**self.taken)
            spread = (self.second[index] / (1 - 0.999**self.taken)).sqrt()
            kept = self.parameters[index] * (1 - rate * self.decay)
            self.parameters[index] = kept - rate * mean / (spread + 1e-8)


def train_by_hand(
    model: nn.Module,
    data: TensorBatches,
    rates: list[float],
    *,
    clip: float = math.inf,
    decay: float = 0.01,
) -> tuple[list[float], list[Tensor]]:
    """Return all losses and the final weights in float64 on the CPU, after one step per rate."""
    model = model.cpu().double()
    optimizer, losses = AdamW64(list(model.parameters()), decay), []
    for rate, (x, y) in zip(rates, list(data) * len(rates), strict=False):
        loss = F.cross_entropy(model(x.cpu().double()), y.cpu())
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        norm = math.sqrt(sum(g.square().sum().item() for g in gradients))
        gradients = [g * min(1.0, clip / norm) for g in gradients]
        optimizer.step(gradients, rate)
        with torch.no_grad():
            for parameter, value in zip(model.parameters(), optimizer.parameters, strict=True):
                parameter.copy_(value)
        losses.append(loss.item())
    return losses, optimizer.parameters
