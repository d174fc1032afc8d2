"""Overheads of the AMD backend, in iterations, the device waited for, each result checked first.

Without a ROCm device the rules are those of an MI300X, the numbers the CPU's, and it says
`degraded`. A compiled kernel is compared with the function it was made from, in turns; compile
times are metrics of their own. Run: `python -m benchmarks.amd`.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile

import torch
from torch import Tensor, nn

from benchmarks.iterations import Iterated, emit, run
from suites.backend_models import mlp, resnet
from torchbridge import __version__, evidence
from torchbridge.backends.amd import AMDBackend, HIPUtilities, ROCmCompiler, matrix_core_fill
from torchbridge.config import AMDConfig
from torchbridge.device import describe, pick_device
from torchbridge.hardware import Hardware, probe
from torchbridge.timing import compare, warm_up

TOLERANCE = 1e-5  # relative error between the arms
LEVELS = ("conservative", "balanced", "aggressive")
CHIPS = ("gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1201")


def bias_gelu(x: Tensor, bias: Tensor) -> Tensor:
    """The kernel that is compiled."""
    return nn.functional.gelu(x + bias)


def gated(x: Tensor, bias: Tensor) -> Tensor:
    """A longer one: a gate, a norm, a residual."""
    y = torch.sigmoid(x + bias) * torch.tanh(x - bias)
    return x + (y - y.mean(dim=-1, keepdim=True)) * torch.rsqrt(y.var(dim=-1, keepdim=True) + 1e-5)


def backend_parts(backend: AMDBackend, hardware: Hardware) -> list[Iterated]:
    """Backend, levels and matrix cores."""
    device, linear = backend.device, nn.Linear(1000, 10)
    levels = [
        Iterated(
            f"optimizer/{level}",
            10,
            lambda m, level=level: backend.prepare_model(m, level=level),
            lambda prepared: not prepared.model.training,
            resnet,
        )
        for level in LEVELS
    ]
    return [
        Iterated(
            "backend/creation",
            20,
            lambda: AMDBackend(hardware=hardware, device=device),
            lambda made: made.device == device,
        ),
        *(
            Iterated(name, count, backend.prepare_model, lambda p: not p.model.training, make)
            for name, count, make in (
                ("backend/prepare_small", 20, mlp),
                ("backend/prepare_medium", 10, lambda: resnet(32, 4)),
            )
        ),
        Iterated(
            "backend/device_info",
            20,
            backend.get_device_info,
            lambda info: info["target"] == hardware.target,
        ),
        *levels,
        Iterated(
            "matrix_cores/fill",
            5,
            lambda: matrix_core_fill(linear),
            lambda fill: 0.61 < fill[""] < 0.63,
        ),
    ]


def decisions() -> list[Iterated]:
    """What each architecture decides."""
    return [
        Iterated(
            f"architecture/{target}",
            5,
            lambda target=target: AMDConfig().on(Hardware.amd(target)),
            lambda found, target=target: found.matrix_cores == target.startswith("gfx9"),
        )
        for target in CHIPS
    ]


def clock_parts(device: torch.device) -> list[Iterated]:
    """Streams, events, regions."""
    utilities = HIPUtilities(device, profiling=True)

    def pass_through() -> int:
        with utilities.profile_region("empty"):
            pass
        return utilities.profiling_summary()["empty"].count

    def event() -> object:
        made = utilities.create_event()
        made.record()
        return made

    return [
        Iterated("hip/stream", 10, utilities.create_stream, lambda _: utilities.streams >= 1),
        Iterated("hip/event", 10, event, lambda made: made.elapsed_time(made) == 0),
        Iterated("hip/profiling", 20, pass_through, lambda count: count >= 1),
    ]


def compilation(
    hardware: Hardware, device: torch.device, budget_s: float, params: dict[str, object]
) -> bool:
    """Cold and warm compile times of two kernels; then each against its function, in turns."""
    inputs = torch.randn(1024, 1024, device=device), torch.randn(1024, device=device)
    compiler, good = ROCmCompiler(AMDConfig(), hardware), True
    for function in (bias_gelu, gated):
        kernel = compiler.compile_kernel(function, inputs)  # cold; raises if it computes wrongly
        name = f"compile/{function.__name__}"
        emit("amd", f"{name}_cold", [1e3 * kernel.seconds], params)
        again = Iterated(
            f"{name}_warm",
            10,
            lambda function=function: compiler.compile_kernel(function, inputs),
            lambda found, kernel=kernel: found is kernel,
        )
        good &= run("amd", [again], device, budget_s=1.0, params=params)
        good &= against_eager(function.__name__, kernel.call, function, inputs, budget_s, params)
    return good


@torch.inference_mode()
def against_eager(name, compiled, eager, inputs, budget_s, params) -> bool:
    """One compiled kernel and its function: equal first, then timed in turns."""
    device, expected = inputs[0].device, eager(*inputs)
    error = ((compiled(*inputs) - expected).abs().max() / expected.abs().max()).item()
    limits = {"value": error, "unit": "relative", "tolerance": TOLERANCE}
    if not evidence.check(f"amd/kernel/{name}/arms_equal", error <= TOLERANCE, **limits):
        print(f"  {name}: the arms differ by {error:.1e}: nothing is timed")
        return False
    arms = (lambda: compiled(*inputs)), (lambda: eager(*inputs))
    for arm in arms:
        warm_up(arm, device, budget_s=budget_s / 4)
    times = compare(*arms, device=device, budget_s=budget_s / 2)
    ratio, (low, high) = statistics.median(times.ratios), times.interval()
    told = {**params, "baseline": "eager function", "shape": "1024x1024"}
    evidence.metric(f"amd/kernel/{name}/ratio", times.ratios, unit="x", direction="higher", **told)
    print(f"  {name} over eager: {ratio:.2f}x [{low:.2f}, {high:.2f}], error {error:.1e}")
    return True


def main(arguments: list[str] | None = None) -> int:
    """All sections; 0 if all checks passed."""
    parser = argparse.ArgumentParser(description="Overheads of the AMD backend")
    parser.add_argument("--budget", type=float, default=30.0, help="seconds, without compiling")
    options = parser.parse_args(arguments)
    device = pick_device()
    hardware, params = probe(device), {"device": str(device), "torch": torch.__version__}
    torch.manual_seed(0)
    print(f"AMD backend, torchbridge {__version__}, {describe(device)}")
    if hardware.vendor != "amd":
        reason = f"no ROCm device: an MI300X's rules, the numbers of {device}"
        evidence.degraded(reason)
        print(f"[DEGRADED] {reason}")
        hardware = Hardware.amd("gfx942")
    backend = AMDBackend(hardware=hardware, device=device)
    metrics = backend_parts(backend, hardware) + decisions() + clock_parts(device)
    good = run("amd", metrics, device, budget_s=options.budget / 2, params=params)
    with tempfile.TemporaryDirectory() as folder:  # an empty cache: cold is cold
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
        good &= compilation(hardware, device, options.budget / 4, params)
    print("PASS" if good else "FAIL: a check above failed")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
