"""MoE throughput: 8 experts, top-2, against what one would take instead, in the same run.

4096 tokens against a loop over expert masks, against all experts on all tokens and against
transformers' Mixtral experts, 64 tokens against the latter; on accelerators in bfloat16 as well.
Every assignment is computed in all arms, their outputs are compared before anything is timed, and
they take turns. Run: `python -m benchmarks.moe_throughput`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import replace

import torch

from benchmarks.moe_arms import (
    TOLERANCE,
    Shape,
    dense_all_experts,
    hf_arms,
    hf_benchmarks,
    mask_loop,
    own_benchmarks,
    why_no_hf,
)
from torchbridge import __version__, evidence
from torchbridge.bench import Benchmark, Outcome, run_benchmark
from torchbridge.device import describe, pick_device
from torchbridge.timing import Spread

__all__ = ["TOLERANCE", "dense_all_experts", "hf_arms", "mask_loop"]

DENSE_ON_CPU = 512  # all experts of wider layers take a CPU most of a minute
DECODED = 64  # tokens


def benchmarks(hidden: int, batch: int, device: torch.device, *, full: bool) -> Iterator[Benchmark]:
    """Yield the benchmarks of one hidden size; on the CPU, unless `full`, those for one minute."""
    on_cpu = device.type == "cpu"
    brief = on_cpu and not full
    for dtype in ("float32",) if on_cpu else ("float32", "bfloat16"):
        goals = {"eager": 2.0, "grouped_mm": 1.0} if dtype == "bfloat16" else {}
        for benchmark in own_benchmarks(
            Shape(hidden, 4 * hidden, batch=batch, dtype=dtype), device
        ):
            if brief and hidden > DENSE_ON_CPU and benchmark.baseline.name == "dense_all_experts":
                print(f"\nhidden {hidden}: all experts computed, and transformers' with --full")
            else:
                yield benchmark
        if brief or why_no_hf() is not None:
            continue
        shape = Shape.gated(hidden, batch=batch, dtype=dtype)
        yield from hf_benchmarks(shape, device, goals=goals)
        decode = replace(shape, batch=DECODED, sequence=1)
        thresholds, goals = ({"eager": 1.05}, {}) if on_cpu else ({}, {"eager": 2.0})
        yield from hf_benchmarks(decode, device, thresholds=thresholds, goals=goals)


def report(outcome: Outcome) -> None:
    """Print and emit the throughput."""
    benchmark, seconds = outcome.benchmark, outcome.seconds("subject")
    tokens, hidden = int(benchmark.params["tokens"]), benchmark.params["hidden"]
    speeds = [tokens / s for s in seconds]
    params = {
        **benchmark.params,
        "baseline": benchmark.baseline.name,
        "device": str(benchmark.device),
    }
    evidence.metric(
        f"{benchmark.name}/tokens_per_s", speeds, unit="tokens/s", direction="higher", **params
    )
    if benchmark.baseline.name == "mask_loop":  # the line that earlier validations print
        batch_ms, speed = (
            1e3 * Spread.from_samples(seconds).median,
            Spread.from_samples(speeds).median / 1e3,
        )
        print(f"Hidden size {hidden}: {batch_ms:.2f} ms/batch, {speed:.1f}K tokens/sec", flush=True)


@torch.inference_mode()
def main(arguments: list[str] | None = None) -> int:
    """Run all sizes; return 0 if all checks passed."""
    parser = argparse.ArgumentParser(description="MoE throughput against named baselines")
    parser.add_argument("--hidden", type=int, nargs="+", default=[512, 1024])
    parser.add_argument("--batch", type=int, default=32, help="of 128 tokens each")
    parser.add_argument("--pairs", type=int, default=50, help="of a benchmark, at most")
    parser.add_argument("--at-least", type=int, default=12, help="pairs of a benchmark")
    parser.add_argument("--budget", type=float, default=2.0, help="seconds per benchmark")
    parser.add_argument("--full", action="store_true", help="on the CPU all that a GPU runs")
    options = parser.parse_args(arguments)
    device = pick_device()
    print(f"MoE throughput, torchbridge {__version__}, {describe(device)}")
    if reason := why_no_hf():
        print(f"without transformers' experts: {reason}")
        evidence.check("moe/hf_experts", "skipped", reason=reason)
    passed = []
    for hidden in options.hidden:
        for benchmark in benchmarks(hidden, options.batch, device, full=options.full):
            params = benchmark.params
            print(f"\n{params['tokens']} tokens, {params['dtype']}, hidden {hidden}")
            outcome = run_benchmark(
                benchmark, pairs=options.pairs, at_least=options.at_least, budget_s=options.budget
            )
            passed.append(outcome.ok)
            if outcome.samples:
                report(outcome)
    print(f"\n{sum(passed)}/{len(passed)} benchmarks passed their checks")
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
