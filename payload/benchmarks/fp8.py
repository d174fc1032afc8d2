"""A float8 linear layer, its quantising included, against bfloat16's and float32's F.linear.

The arms' outputs are compared before anything is timed; they take turns in one process. Memory is
read off the storages. On accelerators both arms are compiled: float8 pays only where the quantising
is fused. An accelerator without FP8 units (an A10G) cannot compile it: the job is refused with that
reason, and `--no-compile` shows how much slower it is there. The table at the end says where float8
won, and what the dispatcher (path "predicted") picks there.

Run: `python -m benchmarks.fp8`. For other programs:

    fp8_arms(size, device)       a Benchmark of `torchbridge.bench`: size is (in, out, batch)
    storage(layer, plain)        shares of the weight's bytes
    pick(size, device, ratios)   what the dispatcher picks, and its share of the better arm's speed
"""

from __future__ import annotations

import argparse
import statistics
import sys
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from torchbridge import __version__, evidence
from torchbridge.bench import Arm, Benchmark, Equality, Outcome, Work, run_benchmark
from torchbridge.device import describe, pick_device
from torchbridge.fp8 import (
    FP8Dtype,
    FP8InferenceLinear,
    Job,
    checks,
    choose,
    get_fp8_info,
    why_not_compiled,
)
from torchbridge.hardware import Hardware, probe
from torchbridge.kernels import KernelRefused
from torchbridge.numbers import relative_rms

Size = tuple[int, int, int]  # in, out, batch
SIZES: tuple[Size, ...] = ((512, 512, 32), (1024, 1024, 32), (2048, 2048, 16))
LARGE: tuple[Size, ...] = ((1024, 1024, 1024), (2048, 2048, 2048), (4096, 4096, 4096))
LARGE += ((8192, 8192, 8192), (4096, 14336, 4096), (4096, 4096, 16))
BASELINES = {"bf16": torch.bfloat16, "fp32": torch.float32}
PRODUCT_LIMIT = checks.PRODUCT_LIMIT[FP8Dtype.E4M3]
GOALS = {"ada": 1.3, "hopper": 1.5}  # of sizes from 4096 on, against bfloat16
PICK_GOAL = 0.97  # of the better arm's speed
SCALES_LIMIT = 0.01  # of the weight's bytes


@dataclass(frozen=True, slots=True)
class Layers:
    """Both arms' layers, with the settings of the float8 one."""

    float8: FP8InferenceLinear
    plain: nn.Linear

    @classmethod
    def create(
        cls, size: Size, dtype: torch.dtype, granularity: str, device: torch.device
    ) -> Layers:
        """Create both layers with the same weights; float8's are quantised from float32."""
        plain = nn.Linear(size[0], size[1], device=device)
        float8 = FP8InferenceLinear(plain, granularity=granularity, path="auto")
        return cls(float8, plain.to(dtype))


def fp8_arms(
    size: Size,
    device: torch.device,
    *,
    baseline: str = "bf16",
    granularity: str = "tensor",
    compiled: bool | None = None,
) -> Benchmark:
    """Compare FP8InferenceLinear, including quantisation, with nn.Linear; run in inference mode.

    By default both are compiled, except on the CPU. The goal depends on the device's generation;
    there is a threshold only on devices with FP8 units.

    Raises:
        KernelRefused: compiled, for hardware without FP8 units.
    """
    whole = device.type != "cpu" if compiled is None else compiled
    if whole and (reason := why_not_compiled(device, probe(device))) is not None:
        raise KernelRefused(reason)
    layers = Layers.create(size, BASELINES[baseline], granularity, device)
    return benchmark_of(layers, size, device, baseline, whole)


def benchmark_of(
    layers: Layers, size: Size, device: torch.device, baseline: str, whole: bool
) -> Benchmark:
    """Compare two existing layers; `whole`: both are compiled."""
    hardware, (inner, columns, batch) = probe(device), size
    x = torch.randn(batch, inner, device=device, dtype=BASELINES[baseline])
    make = _compiled if whole else _as_it_is
    subject, other = make(layers.float8), make(layers.plain)
    large = min(size) >= 4096
    flops = 2.0 * inner * columns * batch
    moved = inner * columns + (batch * inner + batch * columns) * x.element_size()
    return Benchmark(
        name=f"fp8/{inner}x{columns}x{batch}/{baseline}",
        subject=Arm(f"float8, a scale per {layers.float8.input_kind.value}", lambda: subject(x)),
        baseline=Arm(f"F.linear in {baseline}", lambda: other(x), compiled=whole),
        equal=close_within_fp8,
        device=device,
        params={
            "in": inner,
            "out": columns,
            "batch": batch,
            "threads": torch.get_num_threads(),
            "compiled": whole,
        },
        threshold=0.9 if large and hardware.has("fp8") else None,
        goal=GOALS.get(hardware.architecture) if large and baseline == "bf16" else None,
        work=Work(flops=flops, bytes=moved, number="fp8"),
    )


def close_within_fp8(subject: Tensor, baseline: Tensor) -> Equality:
    """Check agreement within the error of e4m3 products, by relative RMS."""
    error = relative_rms(subject, baseline)
    return Equality(error <= PRODUCT_LIMIT, error, PRODUCT_LIMIT, "relative RMS")


def _compiled(layer: nn.Module) -> nn.Module:
    """Compile the whole layer, or raise: a part in eager mode would be timed unnoticed."""
    return torch.compile(layer, fullgraph=True)


def _as_it_is(layer: nn.Module) -> nn.Module:
    return layer


def storage(layer: FP8InferenceLinear, plain: nn.Linear) -> tuple[float, float]:
    """Return the bytes of the float8 weight, and of its scales, over those of the plain weight."""
    ours = layer.weight.untyped_storage().nbytes()
    scales = layer.weight_scale.untyped_storage().nbytes()
    return ours / plain.weight.untyped_storage().nbytes(), scales / ours


def check_storage(name: str, baseline: str, layers: Layers) -> bool:
    """Check that a weight takes one byte per number, plus scales."""
    share, scales = storage(layers.float8, layers.plain)
    wanted = 1 / BASELINES[baseline].itemsize
    print(f"  weight {share:g} of {baseline}'s, its scales {scales:.4%} of that", end="")
    print(f"; path {layers.float8.path_taken}")
    return evidence.check(
        f"{name}/weight_bytes", share == wanted, value=share, unit="x", tolerance=0
    ) & evidence.check(
        f"{name}/scale_bytes", scales < SCALES_LIMIT, value=scales, unit="x", tolerance=SCALES_LIMIT
    )


def pick(
    size: Size, hardware: Hardware, ratio: float, *, compiled: bool = True
) -> tuple[str, float, str]:
    """Return the dispatcher's choice, its share of the better arm's speed, and its reason.

    `ratio` is bfloat16's measured time over float8's; `compiled`: both arms were compiled.
    """
    made = choose(Job(size[2], size[0], size[1], kept=True, fused=compiled), hardware)
    share = min(1.0, ratio if made.float8 else 1 / ratio)
    return ("float8" if made.float8 else made.plain.name), share, made.reason


def measure(
    size: Size, device: torch.device, *, granularity: str, compiled: bool, budget_s: float
) -> tuple[bool, Outcome]:
    """Compare one size with both baselines; return (all checks passed, result for bfloat16)."""
    outcomes, good = {}, True
    for baseline, dtype in BASELINES.items():
        torch.manual_seed(0)
        if compiled:
            torch.compiler.reset()  # every size is compiled for itself, none is one too many
        layers = Layers.create(size, dtype, granularity, device)
        benchmark = benchmark_of(layers, size, device, baseline, compiled)
        outcomes[baseline] = run_benchmark(benchmark, budget_s=budget_s)
        if layers.float8.fallback:
            evidence.degraded(f"{benchmark.name}: {layers.float8.fallback}")
        good &= outcomes[baseline].ok
        good &= check_storage(benchmark.name, baseline, layers)
    return good, outcomes["bf16"]


def table(outcomes: dict[Size, Outcome], device: torch.device, *, compiled: bool) -> None:
    """Print where float8 was faster, and what the dispatcher would have chosen."""
    hardware = probe(device)
    print(f"\n{'in x out x batch':<22}{'float8 / bf16':>14}  picks      share of the better arm")
    for size, outcome in outcomes.items():
        if not outcome.samples:
            continue
        ratio = statistics.median(outcome.ratios)
        name, share, reason = pick(size, hardware, ratio, compiled=compiled)
        met = "" if share >= PICK_GOAL else f" (goal {PICK_GOAL} not met)"
        print(
            f"{'x'.join(map(str, size)):<22}{ratio:>13.3f}x  {name:<10} {share:.3f}{met}: {reason}"
        )
        shares = [pick(size, hardware, one, compiled=compiled)[1] for one in outcome.ratios]
        params = {"device": str(device), "pick": name}
        metric = f"fp8/{'x'.join(map(str, size))}/pick_share"
        evidence.metric(metric, shares, unit="x", direction="higher", **params)


@torch.inference_mode()
def main(arguments: list[str] | None = None) -> int:
    """Run all sizes; return 0 if all checks passed."""
    device = pick_device()
    accelerator = device.type != "cpu"
    parser = argparse.ArgumentParser(description="FP8 linear layer against bf16 and fp32")
    parser.add_argument("--budget", type=float, default=30.0, help="seconds of timing in all")
    parser.add_argument("--granularity", choices=("tensor", "row", "block"), default="tensor")
    parser.add_argument(
        "--compile", action=argparse.BooleanOptionalAction, default=accelerator, help="both arms"
    )
    options = parser.parse_args(arguments)
    reason = why_not_compiled(device, probe(device)) if options.compile else None
    if not evidence.check("fp8/units", reason is None, **({"reason": reason} if reason else {})):
        print(f"refused on {describe(device)}: {reason}; --no-compile runs it in eager mode")
        return 1
    sizes = SIZES + LARGE if accelerator else SIZES
    print(f"FP8 linear layer, torchbridge {__version__}, {describe(device)}")
    info = get_fp8_info(device)
    print(f"scaled_mm: {info['scaled_mm'] or info['why_not']}")
    how = {"granularity": options.granularity, "compiled": options.compile}
    budget_s, good, outcomes = options.budget / len(sizes) / len(BASELINES), [], {}
    for size in sizes:
        print(f"\n{size[0]} -> {size[1]}, batch {size[2]}", flush=True)
        passed, outcomes[size] = measure(size, device, budget_s=budget_s, **how)
        good.append(passed)
    table(outcomes, device, compiled=options.compile)
    if not probe(device).has("fp8"):
        print("\nNo FP8 units here: all that float8 can save is memory.")
    print(f"\n{sum(good)}/{len(good)} sizes passed their checks")
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
