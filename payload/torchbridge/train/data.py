"""Batches of tensors in memory, and the accuracy of a model on them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor, nn

from torchbridge.passes import evaluating

Batch = tuple[Tensor, Tensor]  # inputs [B, ...], targets [B, ...]


def send(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy a tensor to the device without synchronisation, from the host by page-locked memory."""
    if device.type == "cuda" and tensor.device.type == "cpu" and not tensor.is_pinned():
        tensor = tensor.pin_memory()  # kept by torch until the copy is through
    return tensor.to(device, non_blocking=True)


class TensorBatches:
    """Split inputs [N, ...] and targets [N, ...] into batches; the last one may be smaller.

    With a seed they are shuffled, deterministically by seed and epoch.
    """

    def __init__(
        self, inputs: Tensor, targets: Tensor, batch_size: int, *, seed: int | None = None
    ) -> None:
        if len(inputs) != len(targets):
            raise ValueError(f"{len(inputs)} inputs are not {len(targets)} targets")
        self.inputs = inputs
        self.targets = targets
        self.batch_size = batch_size
        self.seed = seed
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch, which determines the order."""
        self.epoch = epoch

    def __len__(self) -> int:
        return math.ceil(len(self.inputs) / self.batch_size)

    def __iter__(self) -> Iterator[Batch]:
        if self.seed is None:
            pairs = zip(
                self.inputs.split(self.batch_size),
                self.targets.split(self.batch_size),
                strict=True,
            )
            yield from pairs
            return
        generator = torch.Generator().manual_seed(self.seed + self.epoch)
        order = torch.randperm(len(self.inputs), generator=generator)
        for part in order.to(self.inputs.device).split(self.batch_size):
            yield self.inputs.index_select(0, part), self.targets.index_select(0, part)


@torch.no_grad()
def accuracy(model: nn.Module, batches: Iterable[Batch]) -> float:
    """Return the share of targets [B] equal to the argmax of [B, classes], in eval mode."""
    right, total = [], 0
    with evaluating(model):
        for inputs, targets in batches:
            right.append((model(inputs).argmax(dim=1) == targets).sum())
            total += len(targets)
    return torch.stack(right).sum().item() / total
