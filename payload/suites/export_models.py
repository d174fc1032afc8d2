"""Small models for the tests of export: ordinary ones, and ones that exporters get wrong."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Encoder(nn.Module):
    """A transformer: token ids [B, S] -> logits [B, S, vocabulary], for S up to `longest`."""

    def __init__(self, vocabulary: int = 50, width: int = 16, longest: int = 32) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(longest, width)
        self.block = nn.TransformerEncoderLayer(width, 2, 32, dropout=0.3, batch_first=True)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, ids: Tensor) -> Tensor:
        """Return logits [B, S, vocabulary] for ids [B, S]."""
        places = torch.arange(ids.shape[1], device=ids.device)
        return self.head(self.block(self.tokens(ids) + self.positions(places)))


class ConvNet(nn.Module):
    """A network [B, 3, H, W] -> [B, 4] with a batch norm that has non-default statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.head = nn.Linear(8, 4)
        nn.init.uniform_(self.norm.running_mean, -1, 1)
        nn.init.uniform_(self.norm.running_var, 0.5, 2)

    def forward(self, x: Tensor) -> Tensor:
        """Return the output [B, 4] for x [B, 3, H, W]."""
        return self.head(F.relu(self.norm(self.conv(x))).mean(dim=(2, 3)))


class TwoInputs(nn.Module):
    """A model with three inputs (x [B, 6], y [B, 6], bool mask [B]) and a dictionary as output."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 3)

    def forward(self, x: Tensor, y: Tensor, mask: Tensor) -> dict[str, Tensor]:
        """Return "sum" [B, 3]: linear(x + y), and "product" [B, 6]: x * y, or 0 if masked."""
        product = torch.where(mask[:, None], x * y, torch.zeros_like(x))
        return {"sum": self.linear(x + y), "product": product}


class Tied(nn.Module):
    """A model whose embedding and head share their weight; one buffer is a view of another."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(20, 8)
        self.head = nn.Linear(8, 20, bias=False)
        self.head.weight = self.tokens.weight
        self.register_buffer("table", torch.randn(4, 8))
        self.register_buffer("first", self.table[:2])
        self.register_buffer("columns", torch.randn(8, 3).t())

    def forward(self, ids: Tensor) -> Tensor:
        """Return logits [B, S, 20] for ids [B, S]."""
        shift = self.table.sum(dim=0) + self.first.sum(dim=0) + self.columns.sum(dim=0)
        return self.head(self.tokens(ids) + shift)


class Frozen(nn.Module):
    """A model that converts the batch size to a Python number; a trace keeps it as a constant."""

    def forward(self, x: Tensor) -> Tensor:
        """Return x [B, d] divided by B."""
        return x / float(x.shape[0])


class Branching(nn.Module):
    """A model with a branch on the sum of its input; a trace keeps only the example's branch."""

    def forward(self, x: Tensor) -> Tensor:
        """Return x [B, d] plus 1 if its sum is positive, else minus 1."""
        return x + 1 if x.sum() > 0 else x - 1


class Careless(nn.Module):
    """A model that writes into its input."""

    def forward(self, x: Tensor) -> Tensor:
        """Add 1 to x [B, d] in place; return twice the result."""
        return x.add_(1) * 2


class Stateful(nn.Linear):
    """A linear layer whose state_dict contains a value that is not a tensor."""

    def get_extra_state(self) -> dict[str, int]:
        """Return the additional state: a counter."""
        return {"calls": 3}

    def set_extra_state(self, state: dict[str, int]) -> None:
        """Ignore the additional state."""


def mlp(dtype: torch.dtype = torch.float32) -> nn.Module:
    """Return a perceptron [B, 12] -> [B, 5] with 24 hidden features and GELU."""
    return nn.Sequential(nn.Linear(12, 24), nn.GELU(), nn.Linear(24, 5)).to(dtype)
