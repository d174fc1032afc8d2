"""Training an MLP 784-256-256-10 for one epoch: the gain of each part of the loop.

The baseline is `plain_loop`: float32, default AdamW, the loss read after every step. All arms start
from the same weights and seed and must have its losses before they are timed: `no_wait` reads no
loss, `no_wait_fused` uses fused AdamW, `graphed` (on CUDA) replays whole steps, `auto` is the
default loop. Run: `python -m benchmarks.training`. For other programs: `works(device)` returns
every arm by name, `plain_loop` first; an arm runs from the first weights and returns its losses,
which `plain_training.apart` compares.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from functools import partial

import torch

from benchmarks.plain_training import (
    TOLERANCE,
    perceptron,
    plain_loop,
    same_losses,
    training_set,
)
from torchbridge import __version__
from torchbridge.bench import Arm, Benchmark, run_benchmark
from torchbridge.device import describe, pick_device
from torchbridge.train import TensorBatches, TrainConfig, fit, why_not_fused

EPOCHS, SEED = 2, 7
GOAL = 1.3  # of the baseline's speed, for the loop as it comes
THRESHOLD = 0.9  # fails when the whole confidence interval is below


def arms(device: torch.device) -> dict[str, TrainConfig]:
    """Return the settings of each arm by name; `auto` is the default."""
    plain = {"epochs": EPOCHS, "seed": SEED}
    single = {**plain, "precision": "float32", "graphed": False}
    chosen = {"no_wait": TrainConfig(**single, fused=False)}
    if reason := why_not_fused(device):
        print(f"The fused arm is left out: {reason}")
    else:
        chosen["no_wait_fused"] = TrainConfig(**single, fused=True)
    if device.type == "cuda":
        chosen["graphed"] = TrainConfig(**plain, precision="float32", graphed=True)
    chosen["auto"] = TrainConfig(**plain)
    return chosen


def works(device: torch.device) -> dict[str, Callable[[], Sequence[float]]]:
    """Return every arm by name, the baseline first; each returns the losses of one run."""
    data = training_set(device)
    ours = {name: partial(run_ours, device, data, config) for name, config in arms(device).items()}
    return {"plain_loop": partial(run_plain, device, data), **ours}


def run_ours(device: torch.device, data: TensorBatches, config: TrainConfig) -> tuple[float, ...]:
    """Train by the library's loop from the first weights; return the losses."""
    return fit(perceptron(device), data, config, device=device).losses


def run_plain(device: torch.device, data: TensorBatches) -> list[float]:
    """Train by the plain loop from the same weights; return the losses."""
    return plain_loop(perceptron(device), data, EPOCHS, SEED)


def measure(name: str, config: TrainConfig, device: torch.device, budget_s: float) -> bool:
    """Compare one arm with the plain loop; False if a check failed."""
    data = training_set(device)
    result = fit(perceptron(device), data, config, device=device)
    dtype = result.precision.dtype or torch.float32
    print(f"\n{name}: {dtype}, AdamW {'fused' if result.unfused is None else 'not fused'}")
    graph = f"{result.replays} of {result.steps} steps from a graph"
    print(f"  {graph}{f' ({result.ungraphed})' if result.ungraphed else ''}")
    benchmark = Benchmark(
        name=f"training/{name}",
        subject=Arm(name, partial(run_ours, device, data, config)),
        baseline=Arm("plain_loop", partial(run_plain, device, data)),
        equal=partial(same_losses, TOLERANCE[dtype], EPOCHS),
        device=device,
        params={"dtype": str(dtype).removeprefix("torch."), "epochs": EPOCHS},
        threshold=THRESHOLD,
        goal=GOAL,
    )
    return run_benchmark(benchmark, pairs=30, at_least=6, budget_s=budget_s).ok


def main(arguments: list[str] | None = None) -> int:
    """Run all arms; return 0 if every check passed."""
    parser = argparse.ArgumentParser(description="The training loop against a plain one")
    parser.add_argument("--budget", type=float, default=12.0, help="seconds per arm")
    options = parser.parse_args(arguments)
    device = pick_device()
    print(f"Training, torchbridge {__version__}, {describe(device)}")
    results = [
        measure(name, config, device, options.budget) for name, config in arms(device).items()
    ]
    print(f"\n{sum(results)}/{len(results)} arms passed their checks")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
