"""One process of the parallel test: `python -m suites.parallel_worker RANK WORLD STORE OUT`."""

from __future__ import annotations

import os
import socket
import sys

import torch
import torch.distributed as dist
from torch import Tensor

from torchbridge.moe import MoEConfig, MoELayer

TOKENS, HIDDEN, EXPERTS = 30, 8, 4
MASKS = {"all": [True] * 4, "first": [True, True, False, False]}  # "first": process 1 gets nothing


def build(expert_parallelism: bool) -> MoELayer:
    """Return the layer, with the same weights in every process."""
    torch.manual_seed(3)
    settings = {"expert_dropout": 0.0, "router_dropout": 0.0, "num_experts": EXPERTS}
    config = MoEConfig(expert_parallelism=expert_parallelism, **settings)
    return MoELayer(config, HIDDEN, 16).double()


def tokens_of(rank: int) -> Tensor:
    """Return the tokens [n, d] of a process: the first 20 of 30 if `rank` is 0, else the rest."""
    x = torch.randn(TOKENS, HIDDEN, generator=torch.Generator().manual_seed(9)).double()
    return x[:20] if rank == 0 else x[20:]


def run(layer: MoELayer, x: Tensor, mask: str) -> dict[str, Tensor]:
    """Return the output, and the gradients of the sum of its squares by parameter and "x"."""
    layer.zero_grad()
    x = x.clone().requires_grad_()
    output = layer(x, torch.tensor(MASKS[mask]))
    output.square().sum().backward()
    gradients = {name: p.grad.clone() for name, p in layer.named_parameters()}
    return {"output": output.detach(), "x": x.grad, **gradients}


def main(rank: int, world: int, store: str, out: str) -> None:
    """Run as one process of a gloo group of `world`; save the results of all masks to `out`."""
    if "lo" in (name for _, name in socket.if_nameindex()):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    layer = build(expert_parallelism=True)
    torch.save({mask: run(layer, tokens_of(rank), mask) for mask in MASKS}, out)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4])
