"""Training an MLP 784-256-256-10 for one epoch: what each part of the loop gains over a plain one.

The baseline is `plain_loop`: float32, default AdamW, the loss read off after every step. All arms
start from the same weights and seed and must have its losses before they are timed: `no_wait` reads
no loss, `no_wait_fused` updates all weights at once, `graphed` (on CUDA) replays whole steps, and
`auto` is the loop as it comes. Run: `python -m benchmarks.training`.

For others: `works(device)` has every arm by name, `plain_loop` first: a run from the first weights,
which returns the losses of its steps; `plain_training.apart` compares them.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Sequence
from functools import partial

import torch

from benchmarks.plain_training import (
    SAMPLES,
    TOLERANCE,
    apart,
    perceptron,
    plain_loop,
    training_set,
)
from torchbridge import __version__, evidence
from torchbridge.device import describe, pick_device
from torchbridge.timing import Comparison, Spread, compare, warm_up
from torchbridge.train import TensorBatches, TrainConfig, fit, why_not_fused

EPOCHS, SEED = 2, 7
GOAL = 1.3  # of the baseline's speed, for the loop as it comes
FLOOR = 0.9  # fails when the whole confidence interval is below


def arms(device: torch.device) -> dict[str, TrainConfig]:
    """By name; `auto` is the loop as it comes."""
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
    """Every arm by name, the baseline first: one run from the first weights, and its losses."""
    data = training_set(device)
    ours = {name: partial(run_ours, device, data, config) for name, config in arms(device).items()}
    return {"plain_loop": partial(run_plain, device, data), **ours}


def verify(name: str, config: TrainConfig, data: TensorBatches, device: torch.device) -> str:
    """The dtype that an arm computes in; an empty text if its losses are not the baseline's."""
    expected = plain_loop(perceptron(device), data, EPOCHS, SEED)
    result = fit(perceptron(device), data, config, device=device)
    difference = apart(result.losses, expected, EPOCHS)
    dtype = result.precision.dtype or torch.float32
    limit, same = TOLERANCE[dtype], difference <= TOLERANCE[dtype]
    print(f"\n{name}: {dtype}, AdamW {'fused' if result.unfused is None else 'not fused'}")
    graph = f"{result.replays} of {result.steps} steps from a graph"
    print(f"  {graph}{f' ({result.ungraphed})' if result.ungraphed else ''}")
    print(f"  mean losses of an epoch apart by {difference:.1e}, allowed {limit:g}")
    evidence.check(
        f"training/{name}/losses_equal", same, value=difference, unit="loss", tolerance=limit
    )
    return str(dtype).removeprefix("torch.") if same else ""


def report(name: str, times: Comparison, device: torch.device, dtype: str) -> bool:
    """Print the figures, emit them; False if the floor is missed."""
    params = {"device": str(device), "dtype": dtype, "baseline": "plain_loop"}
    params |= {"epochs": EPOCHS, "threads": torch.get_num_threads()}
    for arm, seconds in ((name, times.subject_s), (f"{name}/baseline", times.baseline_s)):
        ms = [1e3 * s / EPOCHS for s in seconds]
        evidence.metric(f"training/{arm}/epoch", ms, unit="ms", direction="lower", **params)
        spread = Spread.of(ms)
        quartiles = f"quartiles {spread.low:.1f} to {spread.high:.1f}"
        speed = 1e3 * SAMPLES / spread.median
        print(f"  {arm:<26} {spread.median:>7.1f} ms/epoch  {speed:>9,.0f} samples/s  {quartiles}")
    ratios, (low, high) = times.ratios, times.interval()
    evidence.metric(f"training/{name}/ratio", ratios, unit="x", direction="higher", **params)
    ratio = statistics.median(ratios)
    goal = f"goal {GOAL:.1f}x {'met' if ratio >= GOAL else 'not met'}"
    print(
        f"  ratio {ratio:.3f}x [{low:.3f}, {high:.3f}] in {len(ratios)} interleaved pairs, {goal}"
    )
    return evidence.check(
        f"training/{name}/ratio_floor", high >= FLOOR, value=ratio, unit="x", tolerance=FLOOR
    )


def run_ours(device: torch.device, data: TensorBatches, config: TrainConfig) -> tuple[float, ...]:
    """Losses of one run of the library's loop, from the first weights."""
    return fit(perceptron(device), data, config, device=device).losses


def run_plain(device: torch.device, data: TensorBatches) -> list[float]:
    """Losses of one run of the plain loop, from the same weights."""
    return plain_loop(perceptron(device), data, EPOCHS, SEED)


def measure(name: str, config: TrainConfig, device: torch.device, budget_s: float) -> bool:
    """One arm: verify, warm up, time, report; False if a check failed."""
    data = training_set(device)
    dtype = verify(name, config, data, device)
    if not dtype:
        print("  the arms differ: nothing is timed")
        return False
    ours, plain = partial(run_ours, device, data, config), partial(run_plain, device, data)
    for arm in (ours, plain):
        warm_up(arm, device, budget_s=budget_s / 8)
    times = compare(ours, plain, device=device, pairs=30, at_least=5, budget_s=budget_s)
    return report(name, times, device, dtype)


def main(arguments: list[str] | None = None) -> int:
    """All arms; 0 if every check passed."""
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
