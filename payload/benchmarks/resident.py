"""Time a product and a small network in turns, to compare two versions of the payload.

The caller keeps a process of each version and gives turns; alone it takes one turn. Run: `python -m
benchmarks.resident`.
"""

from __future__ import annotations

import argparse
import statistics
import sys

import torch
from torch import nn

from torchbridge import __version__
from torchbridge.bench import Arm, take_turns
from torchbridge.device import describe, pick_device


def arms(device: torch.device) -> dict[str, Arm]:
    """Return the arms by the metric's name."""
    torch.manual_seed(0)
    x = torch.randn(256, 256, device=device)
    model = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 10)).to(device)
    return {
        "resident/product": Arm("product", lambda: x @ x),
        "resident/perceptron": Arm("perceptron", lambda: model(x)),
    }


@torch.inference_mode()
def main(arguments: list[str] | None = None) -> int:
    """Take turns until they end; return 0."""
    parser = argparse.ArgumentParser(description="Two works, timed in turns")
    parser.add_argument("--samples", type=int, default=9, help="of each work, in a turn")
    options = parser.parse_args(arguments)
    device = pick_device()
    torch.set_num_threads(1)
    print(f"In turns, torchbridge {__version__}, {describe(device)}", flush=True)
    taken = take_turns(arms(device), device, samples=options.samples, dtype="float32")
    for name, latencies in taken.items():
        print(f"  {name:<24} {statistics.median(latencies):.4f} ms of {len(latencies)} samples")
    return 0


if __name__ == "__main__":
    sys.exit(main())
