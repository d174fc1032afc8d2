"""Overheads of the NVIDIA backend's parts: 15 metrics, 1,300 iterations, the device waited for.

Each iteration is a sample. Attention is compared with an explicit softmax, whose numbers must be
the same first; the others have no baseline but their own past. Run: `python -m
benchmarks.nvidia_backend`; `--budget` bounds the seconds, and with them the iterations.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from suites.backend_models import mlp, nvidia_rules
from torchbridge import __version__, evidence
from torchbridge.attention import create_flash_attention_3
from torchbridge.backends.nvidia import (
    CUDADeviceManager,
    CUDAOptimizations,
    FP8Compiler,
    NVIDIABackend,
    NVIDIAMemoryManager,
    NVIDIAOptimizer,
)
from torchbridge.device import describe, pick_device
from torchbridge.hardware import Hardware
from torchbridge.timing import Spread, compare, timed, warm_up

LEAST = 5  # iterations, also past the budget
TOLERANCE = 1e-5  # relative error between the arms of attention


@dataclass(frozen=True, slots=True)
class Metric:
    """`work` is timed, on what `fresh` makes anew for each iteration."""

    section: str
    name: str
    iterations: int
    work: Callable[..., object]
    fresh: Callable[[], object] | None = None

    @property
    def id(self) -> str:
        """`nvidia/backend/creation`"""
        return f"nvidia/{self.section}/{self.name}".lower().replace(" ", "_")

    def samples_s(self, device: torch.device, until: float) -> list[float]:
        """Seconds of each iteration after two that do not count; fewer past `until`."""
        samples: list[float] = []
        for number in range(self.iterations + 2):
            made = [] if self.fresh is None else [self.fresh()]
            seconds = timed(lambda made=made: self.work(*made), device)
            if number >= 2:
                samples.append(seconds)
            if len(samples) >= LEAST and time.perf_counter() > until:
                break
        return samples


def backend_metrics(hardware: Hardware, device: torch.device) -> list[Metric]:
    """Backend and optimizer; models are made outside of the timing."""
    options = {"hardware": hardware, "device": device}
    backend, optimizer = NVIDIABackend(**options), NVIDIAOptimizer(**options)
    by_level = [
        Metric("Optimizer", level, 50, lambda m, level=level: optimizer.optimize(m, level), mlp)
        for level in ("conservative", "balanced", "aggressive")
    ]
    return [
        Metric("Backend", "creation", 100, lambda: NVIDIABackend(**options)),
        Metric("Backend", "model preparation", 100, backend.prepare_model, mlp),
        Metric("Backend", "device info", 100, backend.get_device_info),
        *by_level,
    ]


def part_metrics(hardware: Hardware, device: torch.device) -> list[Metric]:
    """FP8 compiler, memory manager, CUDA utilities."""
    compiler = FP8Compiler(hardware=hardware, device=device)
    manager = NVIDIAMemoryManager(device=device)
    optimizations = CUDAOptimizations(device=device, hardware=hardware)
    linear = nn.Linear(128, 128).to(device)
    image = torch.randn(8, 3, 127, 127, device=device)
    layer = "FP8 compiler"
    fp8 = [
        Metric(layer, "preparation", 100, lambda: compiler.prepare_for_fp8(linear)),
        Metric(layer, "stats", 100, lambda: compiler.get_fp8_stats(linear)),
        Metric(layer, "speedup estimation", 100, lambda: compiler.estimate_speedup(linear)),
    ]
    if not compiler.supported:  # a refusal is no preparation, however quick
        reason = f"{hardware.target} has no FP8 units"
        evidence.check("nvidia/fp8_compiler", "skipped", reason=reason)
        print(f"  {layer}: skipped, {reason}")
    return [
        *(fp8 if compiler.supported else []),
        Metric("Memory", "allocation", 100, lambda: manager.allocate_tensor((128, 128))),
        Metric("Memory", "layout", 100, lambda: manager.optimize_tensor_layout(image)),
        Metric("Memory", "stats", 100, manager.get_memory_stats),
        Metric("CUDA utilities", "device manager", 100, CUDADeviceManager),
        Metric(
            "CUDA utilities",
            "optimization",
            100,
            optimizations.optimize_model,
            lambda: nn.Linear(128, 128),
        ),
    ]


def run(metric: Metric, device: torch.device, until: float, params: dict[str, object]) -> int:
    """Time, print and emit one metric; how many iterations were made."""
    samples_ms = [1e3 * s for s in metric.samples_s(device, until)]
    spread, made = Spread.of(samples_ms), len(samples_ms)
    params = {**params, "iterations": made}
    evidence.metric(metric.id, samples_ms, unit="ms", direction="lower", **params)
    title = f"{metric.section}: {metric.name}"
    quartiles = f"{spread.low:.4f} to {spread.high:.4f}"
    print(f"  {title:<34} {spread.median:>9.4f} ms  ({quartiles}), {made} iterations", flush=True)
    return made


@torch.inference_mode()
def attention(device: torch.device, budget_s: float, params: dict[str, object]) -> tuple[bool, int]:
    """FlashAttention-3's layer [2, 100, 512], 8 heads: against an explicit softmax, in turns."""
    layer = create_flash_attention_3(512, 8).to(device).eval()
    baseline = copy.deepcopy(layer)
    baseline.path = "explicit"
    x = torch.randn(2, 100, 512, device=device)
    expected = baseline(x)
    error = ((layer(x) - expected).abs().max() / expected.abs().max()).item()
    name = "nvidia/flashattention-3"
    if not evidence.check(
        f"{name}/arms_equal", error <= TOLERANCE, value=error, unit="relative", tolerance=TOLERANCE
    ):
        print(f"  FlashAttention-3: the arms differ by {error:.1e}: nothing is timed")
        return False, 0
    arms = (lambda: layer(x)), (lambda: baseline(x))
    for arm in arms:
        warm_up(arm, device, budget_s=budget_s / 4, at_least=10)
    times = compare(*arms, device=device, pairs=50, at_least=LEAST, budget_s=budget_s / 2)
    samples_ms = [1e3 * s for s in times.subject_s]
    params = {**params, "iterations": len(samples_ms), "path": layer.path_taken}
    params["baseline"] = "explicit softmax"
    evidence.metric(f"{name}/forward", samples_ms, unit="ms", direction="lower", **params)
    evidence.metric(f"{name}/ratio", times.ratios, unit="x", direction="higher", **params)
    ratio, (low, high) = statistics.median(times.ratios), times.interval()
    print(
        f"  {'FlashAttention-3: forward':<34} {Spread.of(samples_ms).median:>9.4f} ms  by "
        f"{layer.path_taken}, {len(samples_ms)} iterations"
    )
    print(f"    explicit softmax over it {ratio:.2f}x [{low:.2f}, {high:.2f}], error {error:.1e}")
    return True, len(samples_ms)


def main(arguments: list[str] | None = None) -> int:
    """All metrics; 0 if attention's arms agree."""
    parser = argparse.ArgumentParser(description="Overheads of the NVIDIA backend's parts")
    parser.add_argument("--budget", type=float, default=60.0, help="seconds, of all together")
    budget_s = parser.parse_args(arguments).budget
    device = pick_device()
    hardware, trouble = nvidia_rules(device)
    print(f"NVIDIA backend, torchbridge {__version__}, {describe(device)}")
    if trouble:
        evidence.degraded(trouble)
        print(f"[DEGRADED] {trouble}")
    torch.manual_seed(0)
    params = {"device": str(device), "rules": hardware.target}
    metrics = backend_metrics(hardware, device) + part_metrics(hardware, device)
    share, total = budget_s / (len(metrics) + 2), 0
    for metric in metrics:
        total += run(metric, device, time.perf_counter() + share, params)
    good, made = attention(device, 2 * share, params)
    print(f"\n{len(metrics) + good} metrics from {total + made:,} iterations")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
