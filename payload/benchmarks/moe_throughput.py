"""MoE throughput: 8 experts, top-2, 4096 tokens, float32, against a loop over expert masks.

Every assignment is computed in both arms, their outputs are compared before anything is timed, and
the arms take turns in one process. Run: `python -m benchmarks.moe_throughput`.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from torchbridge import __version__, evidence
from torchbridge.device import describe, pick_device
from torchbridge.moe import MoEConfig, MoELayer
from torchbridge.timing import Comparison, Spread, compare, warm_up

TOLERANCE = 1e-5  # relative error between the arms
FLOOR = 0.9  # of the baseline's speed; fails when the whole confidence interval is below


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of one measurement; they are its metrics' params."""

    hidden: int
    expert_hidden: int
    experts: int = 8
    top_k: int = 2
    batch: int = 32
    sequence: int = 128
    dtype: str = "float32"

    @property
    def tokens(self) -> int:
        """Tokens in one batch."""
        return self.batch * self.sequence


def mask_loop(layer: MoELayer, x: Tensor) -> Tensor:
    """The baseline: for each expert find its tokens, compute them, add them in. x [T, d]."""
    bank, routing = layer.experts, layer.router(x)
    indices, weights = routing["expert_indices"], routing["expert_weights"]
    output = torch.zeros_like(x)
    for expert in range(len(bank)):
        token, choice = torch.where(indices == expert)
        if token.numel() == 0:
            continue
        hidden = torch.relu(x[token] @ bank.up[expert].T + bank.up_bias[expert])
        rows = hidden @ bank.down[expert].T + bank.down_bias[expert]
        output.index_add_(0, token, rows * weights[token, choice, None])
    return output


def verify(layer: MoELayer, x: Tensor, shape: Shape) -> bool:
    """Both arms give the same numbers, and the layer computes every assignment."""
    actual, expected = layer(x), mask_loop(layer, x)
    error = ((actual - expected).abs().max() / expected.abs().max()).item()
    computed, wanted = int(layer.computed.sum()), shape.tokens * shape.top_k
    name = f"moe/{shape.hidden}"
    same = evidence.check(
        f"{name}/arms_equal", error <= TOLERANCE, value=error, unit="relative", tolerance=TOLERANCE
    )
    all_done = evidence.check(
        f"{name}/all_computed", computed == wanted, value=computed, unit="assignments", tolerance=0
    )
    print(f"  checked first: relative error {error:.1e}, {computed} of {wanted} assignments")
    return same and all_done


def report(result: Comparison, shape: Shape, layer: MoELayer) -> bool:
    """Print the figures, emit them as metrics; False if the floor is missed."""
    params = {**asdict(shape), "tokens": shape.tokens, "baseline": "mask_loop"}
    params |= {"device": str(layer.router.gate.weight.device), "path": layer.path_taken}
    params["threads"] = torch.get_num_threads()
    name = f"moe/{shape.hidden}"
    subject_ms = [1e3 * s for s in result.subject_s]
    baseline_ms = [1e3 * s for s in result.baseline_s]
    speeds = [shape.tokens / s for s in result.subject_s]
    evidence.metric(f"{name}/tokens_per_s", speeds, unit="tokens/s", direction="higher", **params)
    evidence.metric(f"{name}/latency", subject_ms, unit="ms", direction="lower", **params)
    evidence.metric(f"{name}/baseline_latency", baseline_ms, unit="ms", direction="lower", **params)
    evidence.metric(f"{name}/ratio", result.ratios, unit="x", direction="higher", **params)
    ours, theirs = Spread.of(subject_ms), Spread.of(baseline_ms)
    ratio, (low, high) = statistics.median(result.ratios), result.interval()
    speed = shape.tokens / ours.median  # thousand tokens per second, as the time is in ms
    print(f"Hidden size {shape.hidden}: {ours.median:.2f} ms/batch, {speed:.1f}K tokens/sec")
    print(f"  quartiles {ours.low:.2f} to {ours.high:.2f} ms, path {layer.path_taken}")
    print(f"  mask loop {theirs.median:.2f} ms ({theirs.low:.2f} to {theirs.high:.2f})")
    print(f"  ratio {ratio:.3f}x [{low:.3f}, {high:.3f}] in {len(speeds)} interleaved pairs")
    return evidence.check(
        f"{name}/ratio_floor", high >= FLOOR, value=ratio, unit="x", tolerance=FLOOR
    )


@torch.inference_mode()
def measure(shape: Shape, device: torch.device, *, pairs: int, budget_s: float) -> bool:
    """One size: verify, warm up, time, report; False if a check failed."""
    torch.manual_seed(0)
    config = MoEConfig(num_experts=shape.experts, top_k=shape.top_k)
    layer = MoELayer(config, shape.hidden, shape.expert_hidden).to(device).eval()
    x = torch.randn(shape.tokens, shape.hidden, device=device)
    print(f"\n{shape.batch} x {shape.sequence} tokens, hidden {shape.hidden}", flush=True)
    if not verify(layer, x, shape):
        print("  the arms differ: nothing is timed")
        return False
    arms = (lambda: layer(x)), (lambda: mask_loop(layer, x))
    for arm in arms:
        warm_up(arm, device, budget_s=budget_s / 8, at_least=1)  # it ran once to be verified
    result = compare(*arms, device=device, pairs=pairs, at_least=3, budget_s=budget_s)
    if layer.fallback:
        evidence.degraded(f"moe/{shape.hidden}: {layer.fallback}")
    return report(result, shape, layer)


def main(arguments: list[str] | None = None) -> int:
    """Both sizes; 0 if all checks passed."""
    parser = argparse.ArgumentParser(description="MoE throughput against a per-expert mask loop")
    parser.add_argument("--hidden", type=int, nargs="+", default=[512, 1024])
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--pairs", type=int, default=50, help="at most; at least 3 are made")
    parser.add_argument("--budget", type=float, default=15.0, help="seconds per size")
    options = parser.parse_args(arguments)
    device = pick_device()
    print(f"MoE throughput, torchbridge {__version__}, {describe(device)}")
    results = [
        measure(
            Shape(hidden=hidden, expert_hidden=4 * hidden, batch=options.batch),
            device,
            pairs=options.pairs,
            budget_s=options.budget,
        )
        for hidden in options.hidden
    ]
    print(f"\n{sum(results)}/{len(results)} sizes passed their checks")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
