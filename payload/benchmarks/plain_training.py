"""The training problem of UC4, and the plain loop that is the baseline."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torchbridge.bench import Equality
from torchbridge.train import TensorBatches

FEATURES, CLASSES, SAMPLES, BATCH = 784, 10, 2048, 64
# of the mean loss of an epoch between two arms; autocast may draw dropout from other numbers
TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.05, torch.float16: 0.05}
SEPARATION = 0.15  # of the classes' centres, in standard deviations of the noise, per feature


def samples(count: int, seed: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Draw x [count, 784], y [count]: noise around one of ten fixed centres."""
    centres = torch.randn(CLASSES, FEATURES, generator=torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(0, CLASSES, (count,), generator=generator)
    noise = torch.randn(count, FEATURES, generator=generator)
    return (SEPARATION * centres[y] + noise).to(device), y.to(device)


def training_set(device: torch.device) -> TensorBatches:
    """Return 2048 samples in batches of 64 with a fixed shuffle."""
    return TensorBatches(*samples(SAMPLES, 1, device), BATCH, seed=0)


def perceptron(device: torch.device) -> nn.Module:
    """Create an MLP 784-256-256-10 with ReLU, dropout 0.2 and fixed weights."""
    torch.manual_seed(42)
    layers = [nn.Linear(FEATURES, 256), nn.ReLU(), nn.Dropout(0.2)]
    layers += [nn.Linear(256, 256), nn.ReLU(), nn.Dropout(0.2), nn.Linear(256, CLASSES)]
    return nn.Sequential(*layers).to(device)


def plain_loop(model: nn.Module, batches: TensorBatches, epochs: int, seed: int) -> list[float]:
    """Train as a tutorial does: float32, default AdamW, the loss read after every step."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model.train()
    torch.manual_seed(seed)
    losses = []
    for epoch in range(epochs):
        batches.set_epoch(epoch)
        for x, y in batches:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses


def epoch_means(losses: Sequence[float], epochs: int) -> list[float]:
    """Return the mean loss of each epoch, from the losses of all steps."""
    steps = len(losses) // epochs
    return [sum(losses[n * steps : (n + 1) * steps]) / steps for n in range(epochs)]


def apart(ours: Sequence[float], theirs: Sequence[float], epochs: int) -> float:
    """Return the largest difference of an epoch's mean loss."""
    pairs = zip(epoch_means(ours, epochs), epoch_means(theirs, epochs), strict=True)
    return max(abs(a - b) for a, b in pairs)


def same_losses(
    limit: float, epochs: int, ours: Sequence[float], theirs: Sequence[float]
) -> Equality:
    """Check that mean losses of epochs differ by at most `limit`."""
    found = apart(ours, theirs, epochs)
    return Equality(found <= limit, found, limit, "loss")
