"""A small model that an MoE layer is trained in."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from torchbridge import moe


def train_classifier(device: torch.device, steps: int) -> list[float]:
    """Loss per step of a small model on labels that can be learned; everything is seeded here."""
    torch.manual_seed(5)
    layer = moe.create_moe(32, num_experts=4, expert_dropout=0.0, router_dropout=0.0)
    head = nn.Linear(32, 4)
    model = nn.ModuleList([layer, head]).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    x = torch.randn(256, 32, device=device)
    labels = x[:, :4].argmax(dim=1)
    losses = []
    for _ in range(steps):
        hidden, aux = layer(x, return_router_logits=True)
        loss = F.cross_entropy(head(x + hidden), labels)
        optimizer.zero_grad()
        (loss + aux["load_balance_loss"] + aux["router_z_loss"]).backward()
        optimizer.step()
        losses.append(loss.item())
    return losses
