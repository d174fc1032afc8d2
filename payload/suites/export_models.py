"""Small models for the export tests: harmless ones, and ones that exporters get wrong."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Encoder(nn.Module):
    """Token ids [B, S] -> [B, S, vocabulary], with positions up to `longest`."""

    def __init__(self, vocabulary: int = 50, width: int = 16, longest: int = 32) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(longest, width)
        self.block = nn.TransformerEncoderLayer(width, 2, 32, dropout=0.3, batch_first=True)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, ids: Tensor) -> Tensor:
        """[B, S] -> [B, S, vocabulary]"""
        places = torch.arange(ids.shape[1], device=ids.device)
        return self.head(self.block(self.tokens(ids) + self.positions(places)))


class ConvNet(nn.Module):
    """[B, 3, H, W] -> [B, 4], with a batch norm whose statistics are not the default ones."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.head = nn.Linear(8, 4)
        nn.init.uniform_(self.norm.running_mean, -1, 1)
        nn.init.uniform_(self.norm.running_var, 0.5, 2)

    def forward(self, x: Tensor) -> Tensor:
        """[B, 3, H, W] -> [B, 4]"""
        return self.head(F.relu(self.norm(self.conv(x))).mean(dim=(2, 3)))


class TwoInputs(nn.Module):
    """(x [B, 6], y [B, 6], mask [B] bool) -> the sum in a dictionary and the masked product."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 3)

    def forward(self, x: Tensor, y: Tensor, mask: Tensor) -> dict[str, Tensor]:
        """{"sum": [B, 3], "product": [B, 6]}"""
        product = torch.where(mask[:, None], x * y, torch.zeros_like(x))
        return {"sum": self.linear(x + y), "product": product}


class Tied(nn.Module):
    """Embedding and head are one matrix, a buffer is a view of another."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(20, 8)
        self.head = nn.Linear(8, 20, bias=False)
        self.head.weight = self.tokens.weight
        self.register_buffer("table", torch.randn(4, 8))
        self.register_buffer("first", self.table[:2])
        self.register_buffer("columns", torch.randn(8, 3).t())

    def forward(self, ids: Tensor) -> Tensor:
        """[B, S] -> [B, S, 20]"""
        shift = self.table.sum(dim=0) + self.first.sum(dim=0) + self.columns.sum(dim=0)
        return self.head(self.tokens(ids) + shift)


class Frozen(nn.Module):
    """Its Python number is the example's batch: a trace keeps it for ever."""

    def forward(self, x: Tensor) -> Tensor:
        """[B, d] -> [B, d], divided by B"""
        return x / float(x.shape[0])


class Branching(nn.Module):
    """It takes another branch for negative sums: a trace keeps the example's."""

    def forward(self, x: Tensor) -> Tensor:
        """[B, d] -> [B, d]"""
        return x + 1 if x.sum() > 0 else x - 1


class Careless(nn.Module):
    """It writes into its input."""

    def forward(self, x: Tensor) -> Tensor:
        """[B, d] -> [B, d]"""
        return x.add_(1) * 2


class Stateful(nn.Linear):
    """Its state_dict holds more than tensors."""

    def get_extra_state(self) -> dict[str, int]:
        """A counter."""
        return {"calls": 3}

    def set_extra_state(self, state: dict[str, int]) -> None:
        """Nothing to do."""


def mlp(dtype: torch.dtype = torch.float32) -> nn.Module:
    """12 -> 24 -> 5."""
    return nn.Sequential(nn.Linear(12, 24), nn.GELU(), nn.Linear(24, 5)).to(dtype)
