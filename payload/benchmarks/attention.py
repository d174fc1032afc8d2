"""Attention forward: the path that `auto` takes, and FlexAttention, against named baselines.

Both arms are compared before anything is timed; they take turns in one process. What the budget has
no time for is left out and said so. Floors are low, goals are what is hoped for.

Run: `python -m benchmarks.attention`. For other programs, all of them as `Comparison`s, whose
`benchmark(device)` is one of `torchbridge.bench`; to be run in inference mode:

    attention_arms(shape, device)  `auto` against each of SDPA's back-ends that runs
    forwards(shape, device)        the layer of 512 and 8 heads against softmax and SDPA
    flexes(shape, device)          a window of 128 and a causal mask, by FlexAttention
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import sdpa_kernel

from torchbridge import __version__, bench, evidence
from torchbridge.attention import (
    FULL,
    Causal,
    CausalSlidingWindow,
    FlashAttention3,
    PathRefused,
    Pattern,
    attend,
    why_not_on,
)
from torchbridge.attention.sdpa import BACKENDS, visible
from torchbridge.device import describe, pick_device

TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2}  # relative error between the arms
Arm = Callable[[], Tensor]


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of one measurement, which are the parameters of its metrics."""

    batch: int
    sequence: int
    heads: int = 8
    head_dim: int = 64
    dtype: str = "float32"

    def tensors(self, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
        """Return normally distributed q, k, v [B, H, S, D]."""
        shape = (3, self.batch, self.heads, self.sequence, self.head_dim)
        return tuple(torch.randn(shape, device=device, dtype=getattr(torch, self.dtype)))

    def work(self, seen: float) -> bench.Work:
        """Return the cost of two products of `seen` of the scores; q, k, v and output move once."""
        scores = self.batch * self.heads * self.sequence**2 * seen
        number = "fp32" if self.dtype == "float32" else "bf16"
        size = getattr(torch, self.dtype).itemsize
        moved = 4 * self.batch * self.heads * self.sequence * self.head_dim * size
        return bench.Work(flops=4 * scores * self.head_dim, bytes=moved, number=number)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two arms that compute the same, with the required and the hoped-for ratio of their times."""

    name: str
    baseline_name: str
    subject: Arm
    baseline: Arm
    shape: Shape
    threshold: float
    goal: float | None = None
    seen: float = 1.0  # the share of the scores that the pattern sees

    @property
    def metric(self) -> str:
        """The prefix of its metrics' names."""
        return f"attention/{self.name}/{self.baseline_name}"

    def benchmark(self, device: torch.device) -> bench.Benchmark:
        """Return the benchmark for `bench.run_benchmark`."""
        dtype = getattr(torch, self.shape.dtype)
        return bench.Benchmark(
            name=self.metric,
            subject=bench.Arm(self.name, self.subject, compiled="flex" in self.name),
            baseline=bench.Arm(self.baseline_name, self.baseline),
            equal=bench.close_to(TOLERANCE[dtype]),
            device=device,
            params={**asdict(self.shape), "threads": torch.get_num_threads()},
            threshold=self.threshold,
            goal=self.goal,
            work=self.shape.work(self.seen) if "forward" not in self.name else None,
        )


def explicit_softmax(q: Tensor, k: Tensor, v: Tensor, seen: Tensor | None = None) -> Tensor:
    """Compute attention by two matrix products and a softmax."""
    scores = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5
    if seen is not None:
        scores = scores.masked_fill(~seen, float("-inf"))
    return scores.softmax(dim=-1) @ v


def layer_by(layer: FlashAttention3, x: Tensor, mix: Callable[..., Tensor]) -> Tensor:
    """Compute the layer with `mix` as its attention."""
    heads = layer.qkv(x).unflatten(-1, (3, layer.num_heads, -1)).permute(2, 0, 3, 1, 4)
    return layer.out(mix(*heads).transpose(1, 2).flatten(2))


def attention_arms(shape: Shape, device: torch.device) -> list[Comparison]:
    """Compare `auto` with each of SDPA's back-ends that runs; the goal is 1 against the best."""
    q, k, v = shape.tensors(device)
    made = []
    for pattern in (FULL, Causal()):
        causal = pattern is not FULL

        def ours(pattern: Pattern = pattern) -> Tensor:
            return attend(q, k, v, pattern=pattern)[0]

        for backend, kind in BACKENDS.items():
            try:
                attend(q, k, v, pattern=pattern, path=f"sdpa_{backend}")
            except PathRefused:
                continue

            def theirs(kind: object = kind, causal: bool = causal) -> Tensor:
                with sdpa_kernel(kind):
                    return F.scaled_dot_product_attention(q, k, v, is_causal=causal)

            name = f"auto_{pattern.name}/{shape.batch}x{shape.sequence}"
            seen = 0.5 if causal else 1.0
            made.append(Comparison(name, f"sdpa_{backend}", ours, theirs, shape, 0.5, 1.0, seen))
    return made


def forwards(shape: Shape, device: torch.device) -> list[Comparison]:
    """Compare the layer of width 512 and 8 heads with both baselines, with the same weights."""
    dtype = getattr(torch, shape.dtype)
    layer = FlashAttention3(512, shape.heads).to(device, dtype).eval()
    x = torch.randn(shape.batch, shape.sequence, 512, device=device, dtype=dtype)
    arms = {"explicit_softmax": explicit_softmax, "sdpa": F.scaled_dot_product_attention}
    long = device.type != "cpu" and shape.sequence >= 2048
    goals = {"explicit_softmax": 3.0 if long else 1.0, "sdpa": 1.0}
    return [
        Comparison(
            f"forward/{shape.batch}x{shape.sequence}",
            name,
            lambda: layer(x),
            lambda mix=mix: layer_by(layer, x, mix),
            shape,
            0.9 if device.type == "cpu" else 0.5,
            goals[name],
        )
        for name, mix in arms.items()
    ]


def flexes(shape: Shape, device: torch.device) -> list[Comparison]:
    """Compare compiled FlexAttention, causal and with a window of 128."""
    q, k, v = shape.tensors(device)
    window = CausalSlidingWindow(128)
    band = visible(window, (1, 1, shape.sequence, shape.sequence), device)

    def flex(pattern: Pattern) -> Tensor:
        return attend(q, k, v, pattern=pattern, path="flex")[0]

    def sdpa(mask: Tensor | None = None) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)

    slow, sizes = device.type == "cpu", f"{shape.batch}x{shape.sequence}"
    of_window = (2.5, 3.7) if slow else (1.0, 4.0)  # threshold and goal
    of_causal = (0.8, 1.0) if slow else (0.3, 0.9)  # cuDNN may be SDPA's
    windowed = (lambda: flex(window)), (lambda: sdpa(band))
    causal = (lambda: flex(Causal())), sdpa
    seen = band.float().mean().item()
    return [
        Comparison(
            f"flex_window_128/{sizes}", "sdpa_dense_mask", *windowed, shape, *of_window, seen
        ),
        Comparison(f"flex_causal/{sizes}", "sdpa_causal", *causal, shape, *of_causal, 0.5),
    ]


@torch.inference_mode()
def measure(comparison: Comparison, device: torch.device, budget_s: float) -> bool:
    """Run one comparison; return False if a check failed."""
    print()
    return bench.run_benchmark(comparison.benchmark(device), budget_s=budget_s, pairs=50).ok


def plan(device: torch.device, sequences: list[int]) -> list[Callable[[], list[Comparison]]]:
    """Return the measurements, the slowest last; tensors are allocated when each runs."""
    dtype = "float32" if device.type == "cpu" else "bfloat16"
    shapes = [Shape(2, 100), *(Shape(4, length, dtype=dtype) for length in sequences)]
    entries = [lambda shape=shape: forwards(shape, device) for shape in shapes]
    reason = why_not_on(device)
    if reason is None:
        sizes = (1, 2048, 4) if device.type == "cpu" else (16, 2048, 16)  # else it is all launches
        entries.insert(2, lambda: flexes(Shape(*sizes, dtype=dtype), device))
        if device.type != "cpu":
            entries.insert(3, lambda: attention_arms(Shape(4, 4096, 16, 128, dtype), device))
    else:
        evidence.degraded(f"FlexAttention is not measured: {reason}")
        print(f"FlexAttention is not measured: {reason}")
    return entries


def main(arguments: list[str] | None = None) -> int:
    """Run all that the budget allows; return 0 if no check failed."""
    parser = argparse.ArgumentParser(description="Attention forward against named baselines")
    parser.add_argument("--sequences", type=int, nargs="+", default=[512, 1024, 2048])
    parser.add_argument("--budget", type=float, default=60.0, help="seconds, compiling included")
    options = parser.parse_args(arguments)
    device = pick_device()
    print(f"Attention, torchbridge {__version__}, {describe(device)}")
    torch.manual_seed(0)
    start, results, last = time.perf_counter(), [], 0.0
    for make in plan(device, options.sequences):
        for comparison in make():
            begun = time.perf_counter()
            if results and begun - start + last > options.budget:
                print(f"\n{comparison.metric}: left out, no time")
                evidence.check(comparison.metric, "skipped", reason="the budget is spent")
                continue
            results.append(measure(comparison, device, options.budget / 30))
            last = time.perf_counter() - begun
    print(f"\n{sum(results)}/{len(results)} comparisons passed their checks")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
