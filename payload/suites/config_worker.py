"""One of two processes of a configuration's test: `python -m suites.config_worker RANK STORE`."""

from __future__ import annotations

import os
import socket
import sys

import torch
import torch.distributed as dist

from torchbridge.config import Config
from torchbridge.process import running


def main(rank: int, store: str) -> None:
    """Meet the other, print the sum of rank + 1 over both, and part."""
    if "lo" in (name for _, name in socket.if_nameindex()):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    place = {"world_size": 2, "rank": rank, "backend": "gloo", "init_method": f"file://{store}"}
    total = torch.tensor(rank + 1.0)
    with running(Config().update(distributed=place)):
        dist.all_reduce(total)
    print(total.item(), dist.is_initialized())


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
