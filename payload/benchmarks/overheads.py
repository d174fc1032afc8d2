"""Overheads of the backends and of configurations: every iteration is a sample, the device waited
for, each first result checked. What has a baseline is a benchmark: equal first, then in turns.

Without the vendor's device its rules are tried with the processor's numbers, and it says
`degraded`. Run: `python -m benchmarks.overheads nvidia` (amd, tpu, config); `--budget` bounds the
seconds, and with them the iterations: 15 metrics and 1,300 of them for nvidia.
"""

from __future__ import annotations

import argparse
import copy
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from suites.backend_models import mlp, nvidia_rules, resnet
from torchbridge import __version__, evidence
from torchbridge.attention import create_flash_attention_3
from torchbridge.backends.amd import AMDBackend, HIPUtilities, ROCmCompiler, matrix_core_fill
from torchbridge.backends.errors import TPUMemoryError, XLANotAvailable
from torchbridge.backends.nvidia import (
    CUDADeviceManager,
    CUDAOptimizations,
    FP8Compiler,
    NVIDIABackend,
    NVIDIAMemoryManager,
    NVIDIAOptimizer,
)
from torchbridge.backends.optimise import LEVELS
from torchbridge.backends.tpu import (
    TPUBackend,
    TPUMemoryManager,
    XLACompiler,
    create_xla_integration,
    tiled,
    validate_model,
)
from torchbridge.backends.xla import XLA, load
from torchbridge.bench import Arm, Benchmark, Equality, close_to, run_benchmark
from torchbridge.config import AMDConfig, Config, NVIDIAConfig, TPUConfig, detect_architecture
from torchbridge.config.vendors import detect_tpu_version
from torchbridge.device import describe, pick_device
from torchbridge.hardware import Hardware, probe
from torchbridge.timing import Spread, timed
from torchbridge.validation import PRESETS, UnifiedValidator

LEAST, UNCOUNTED = 5, 2  # iterations, also past the budget; and before they count
LIMIT_MS = 1.0  # for making a configuration or telling an architecture
EXACT, NEAR = close_to(1e-5), close_to(1e-2)  # a TPU multiplies in bfloat16
Fresh = Callable[[], object]


@dataclass(frozen=True, slots=True)
class TimedWork:
    """Work that is timed `iterations` times, each on a new result of `fresh`.

    `right` checks the first result; a median above `limit_ms` fails.
    """

    name: str
    iterations: int
    work: Callable[..., object]
    right: Callable[[object], bool] = lambda result: result is not None
    fresh: Fresh | None = None
    limit_ms: float | None = None

    def once(self, device: torch.device) -> tuple[float, object]:
        """Run once; return (seconds, result)."""
        made = [] if self.fresh is None else [self.fresh()]
        results: list[object] = []
        return timed(lambda: results.append(self.work(*made)), device), results[0]

    def run(self, prefix: str, device: torch.device, budget_s: float) -> bool:
        """Check, time, print and emit; False if the result was wrong or too slow."""
        name = f"{prefix}/{self.name}"
        result, *_ = [self.once(device)[1] for _ in range(UNCOUNTED)]
        if not evidence.check(f"{name}/right", self.right(result)):
            print(f"  {self.name:<36} WRONG: nothing is timed")
            return False
        samples_ms: list[float] = []
        until = time.perf_counter() + budget_s
        while len(samples_ms) < self.iterations:
            if len(samples_ms) >= LEAST and time.perf_counter() > until:
                break
            samples_ms.append(1e3 * self.once(device)[0])
        spread, count = Spread.from_samples(samples_ms), len(samples_ms)
        params = {"device": str(device), "iterations": count}
        evidence.metric(name, samples_ms, unit="ms", direction="lower", **params)
        quartiles = f"{spread.low:.4f} to {spread.high:.4f}"
        print(f"  {self.name:<36} {spread.median:>9.4f} ms  ({quartiles}), {count} iterations")
        if self.limit_ms is None:
            return True
        value = {"value": spread.median, "unit": "ms", "tolerance": self.limit_ms}
        return evidence.check(f"{name}/limit", spread.median <= self.limit_ms, **value)


Section = Iterator["TimedWork | Benchmark"]


def evaluating(prepared: object) -> bool:
    """Return whether a prepared model, or an optimizer's result, is in evaluation mode."""
    model = getattr(prepared, "model", None) or prepared.optimized_model
    return not model.training


def degraded(reason: str | None) -> None:
    """Report the job as degraded if there is a reason."""
    if reason:
        evidence.degraded(reason)
        print(f"[DEGRADED] {reason}")


def nvidia(device: torch.device) -> Section:
    """Yield the work of backend and optimizer, then of the other parts."""
    hardware, reason = nvidia_rules(device)
    degraded(reason)
    here = {"hardware": hardware, "device": device}
    backend, optimizer = NVIDIABackend(**here), NVIDIAOptimizer(**here)
    yield TimedWork("backend/creation", 100, lambda: NVIDIABackend(**here))
    yield TimedWork("backend/model_preparation", 100, backend.prepare_model, evaluating, mlp)
    yield TimedWork("backend/device_info", 100, backend.get_device_info)
    for level in LEVELS:
        work = partial(optimizer.optimize, level=level)
        yield TimedWork(f"optimizer/{level}", 50, work, evaluating, mlp)
    yield from nvidia_parts(here)


def nvidia_parts(here: dict[str, Any]) -> Section:
    """Yield the work of FP8 compiler, memory manager, CUDA utilities and attention."""
    hardware, device = here["hardware"], here["device"]
    compiler, linear = FP8Compiler(**here), nn.Linear(128, 128).to(device)
    if compiler.supported:
        for name in ("prepare_for_fp8", "get_fp8_stats", "estimate_speedup"):
            yield TimedWork(f"fp8_compiler/{name}", 100, partial(getattr(compiler, name), linear))
    else:  # a refusal is no preparation, however quick
        reason = f"{hardware.target} has no FP8 units"
        evidence.check("nvidia/fp8_compiler", "skipped", reason=reason)
        print(f"  fp8_compiler: skipped, {reason}")
    manager, image = NVIDIAMemoryManager(device=device), torch.randn(8, 3, 127, 127, device=device)
    allocate, layout = manager.allocate_tensor, manager.optimize_tensor_layout
    yield TimedWork("memory/allocation", 100, lambda: allocate((128, 128)))
    yield TimedWork("memory/layout", 100, lambda: layout(image), lambda t: torch.equal(t, image))
    yield TimedWork("memory/stats", 100, manager.get_memory_stats, lambda s: s["total_bytes"] > 0)
    yield TimedWork("cuda_utilities/device_manager", 100, CUDADeviceManager)
    optimize = CUDAOptimizations(**here).optimize_model
    yield TimedWork("cuda_utilities/optimization", 100, optimize, fresh=lambda: nn.Linear(128, 128))
    layer = create_flash_attention_3(512, 8).to(device).eval()
    explicit, x = copy.deepcopy(layer), torch.randn(2, 100, 512, device=device)
    explicit.path = "explicit"
    ours = Arm("flash attention 3's layer", lambda: layer(x))
    theirs = Arm("explicit softmax", lambda: explicit(x))
    yield Benchmark(name="attention", subject=ours, baseline=theirs, equal=EXACT, device=device)


def bias_gelu(x: Tensor, bias: Tensor) -> Tensor:
    """Compute gelu(x + bias), a function to compile."""
    return nn.functional.gelu(x + bias)


def gated(x: Tensor, bias: Tensor) -> Tensor:
    """Compute a gate, a norm and a residual, a longer function to compile."""
    y = torch.sigmoid(x + bias) * torch.tanh(x - bias)
    return x + (y - y.mean(dim=-1, keepdim=True)) * torch.rsqrt(y.var(dim=-1, keepdim=True) + 1e-5)


def amd(device: torch.device) -> Section:
    """Yield the work of backend, levels, matrix cores and architectures, then kernels."""
    hardware = probe(device)
    if hardware.vendor != "amd":
        degraded(f"no ROCm device: an MI300X's rules, the numbers of {device}")
        hardware = Hardware.amd("gfx942")
    here, linear = {"hardware": hardware, "device": device}, nn.Linear(1000, 10)
    backend = AMDBackend(**here)
    yield TimedWork("backend/creation", 20, lambda: AMDBackend(**here))
    yield TimedWork("backend/prepare_small", 20, backend.prepare_model, evaluating, mlp)
    medium = partial(resnet, 32, 4)
    yield TimedWork("backend/prepare_medium", 10, backend.prepare_model, evaluating, medium)
    yield TimedWork("backend/device_info", 20, backend.get_device_info)
    for level in LEVELS:
        work = partial(backend.prepare_model, level=level)
        yield TimedWork(f"optimizer/{level}", 10, work, evaluating, resnet)
    fill = partial(matrix_core_fill, linear)
    yield TimedWork("matrix_cores/fill", 5, fill, lambda params: 0.61 < params[""] < 0.63)
    for target in ("gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1201"):
        chip, cores = Hardware.amd(target), target.startswith("gfx9")
        decide = partial(AMDConfig().on, chip)
        right = lambda params, cores=cores: params.matrix_cores == cores  # noqa: E731
        yield TimedWork(f"architecture/{target}", 5, decide, right)
    yield from amd_kernels(hardware, device)


def amd_kernels(hardware: Hardware, device: torch.device) -> Section:
    """Yield the work of HIP utilities, compilation, and kernels against their sources."""
    utilities = HIPUtilities(device, profiling=True)

    def pass_through() -> object:
        with utilities.profile_region("empty"):
            return utilities.create_event()

    yield TimedWork("hip/stream", 10, utilities.create_stream)
    yield TimedWork("hip/event", 10, utilities.create_event)
    yield TimedWork("hip/profiling", 20, pass_through)
    inputs = torch.randn(1024, 1024, device=device), torch.randn(1024, device=device)
    compiler = ROCmCompiler(AMDConfig(), hardware)
    with tempfile.TemporaryDirectory() as folder:  # an empty cache: cold is cold
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
        for function in (bias_gelu, gated):
            kernel = compiler.compile_kernel(function, inputs)  # raises if it computes wrongly
            name, seconds = f"compile/{function.__name__}", [kernel.seconds]
            evidence.metric(f"amd/{name}_cold", seconds, unit="s", direction="lower")
            warm = partial(compiler.compile_kernel, function, inputs)
            right = lambda found, kernel=kernel: found is kernel  # noqa: E731
            yield TimedWork(f"{name}_warm", 10, warm, right)
            yield Benchmark(
                name=f"kernel/{function.__name__}",
                subject=Arm(kernel.path_taken, partial(kernel.call, *inputs)),
                baseline=Arm("eager function", partial(function, *inputs)),
                equal=EXACT,
                device=device,
            )


def tpu(_: torch.device) -> Section:
    """Yield the work of configuration, validation and tiles, backend, and torch_xla."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # said below, in full
        backend = TPUBackend()
    degraded(backend.degraded)
    yield from tpu_rules()
    yield from tpu_backend(backend)
    try:
        yield from tpu_compiler(load())
    except XLANotAvailable as error:
        evidence.check("tpu/xla", "skipped", reason=str(error))
        print("  xla_compiler, xla_integration, memory_manager: skipped, no torch_xla")


def tpu_rules() -> Section:
    """Yield the work that needs no device."""
    config, model = TPUConfig(version="v5e"), mlp()
    read = partial(TPUConfig.from_dict, config.to_dict())
    yield TimedWork("configuration/creation", 100, TPUConfig, limit_ms=LIMIT_MS)
    yield TimedWork("configuration/round_trip", 100, read, lambda c: c == config)
    detect = partial(detect_tpu_version, "v5litepod-8")
    yield TimedWork("configuration/detection", 100, detect, lambda v: v.value == "v5e")
    validate = partial(validate_model, model, config)
    yield TimedWork("validation/model", 100, validate, lambda found: found.passed)
    tile = partial(tiled, (127, 127), torch.float32)
    yield TimedWork("memory_manager/tiles", 100, tile, lambda t: t.tiled_bytes == 128 * 128 * 4)


def tpu_backend(backend: TPUBackend) -> Section:
    """Yield the backend's overheads, and a prepared model against the original."""
    data = {"x": torch.randn(64, 128), "rest": [torch.ones(3)]}
    move, on = partial(backend.prepare_data, data), lambda moved: moved["x"].device
    yield TimedWork("backend/device_info", 100, backend.get_device_info)
    yield TimedWork("backend/data", 100, move, lambda moved: on(moved) == backend.device)
    yield TimedWork("backend/memory_stats", 100, backend.get_memory_stats)
    for name, make in (("linear", partial(nn.Linear, 64, 128)), ("convolution", resnet)):
        for level in LEVELS:
            work = partial(backend.prepare_model, level=level)
            yield TimedWork(f"optimizer/{name}_{level}", 20, work, evaluating, make)
    plain, image = resnet().to(backend.device).eval(), torch.randn(8, 3, 32, 32)
    image = image.to(backend.device)
    prepared = backend.prepare_model(copy.deepcopy(plain), level="balanced").model
    yield Benchmark(
        name="preparation",
        subject=Arm("prepared, balanced", lambda: prepared(image)),
        baseline=Arm("unprepared model", lambda: plain(image)),
        equal=NEAR,
        device=backend.device,
        threshold=0.8,
    )


def tpu_compiler(xla: XLA) -> Section:
    """Yield the work that uses torch_xla."""
    config, model, x = TPUConfig(), mlp(), torch.randn(8, 128)
    warm = XLACompiler(config, xla)
    cold = lambda m: XLACompiler(config, xla).compile_model(m, (x,))  # noqa: E731
    yield TimedWork("xla_compiler/cold", 5, cold, fresh=mlp)
    yield TimedWork("xla_compiler/cached", 100, lambda: warm.compile_model(model, (x,)))
    yield TimedWork("xla_integration/creation", 100, lambda: create_xla_integration(config, xla))
    manager = TPUMemoryManager(config, xla)
    try:
        manager.memory()
    except TPUMemoryError as error:
        evidence.check("tpu/memory_manager/allocation", "skipped", reason=str(error))
        return
    allocate = partial(manager.allocate_tensor, (128, 128))
    yield TimedWork("memory_manager/allocation", 100, allocate)


def same(subject: object, baseline: object) -> Equality:
    """Check that two configurations are equal."""
    return Equality(subject == baseline, unit="settings")


def config(device: torch.device) -> Section:
    """Yield creation, conversion and validation of configurations, and presets against copies."""
    presets = {"basic": Config, **PRESETS}
    validator = UnifiedValidator(device=device)
    for name, preset in presets.items():
        ready = preset()
        yield TimedWork(f"create/{name}", 100, preset, ready.__eq__, limit_ms=LIMIT_MS)
        validate = partial(validator.validate_config, ready)
        yield TimedWork(f"validate/{name}", 10, validate, lambda report: report.ok)
        yield Benchmark(
            name=f"create/{name}",
            subject=Arm(name, preset),
            baseline=Arm("deepcopy", partial(copy.deepcopy, ready)),
            equal=same,
            device=device,
        )
    detect = lambda: detect_architecture(probe(device))  # noqa: E731
    yield TimedWork("detect_architecture", 50, detect, limit_ms=LIMIT_MS)
    for capability in ((7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (10, 0)):
        chip = Hardware.nvidia(capability)
        fp8, decide = capability >= (8, 9), partial(NVIDIAConfig().on, chip)
        right = lambda params, fp8=fp8: params.fp8_enabled == fp8  # noqa: E731
        yield TimedWork(f"features/{chip.target}", 5, decide, right)


SECTIONS: dict[str, Callable[[torch.device], Section]] = {
    "nvidia": nvidia,
    "amd": amd,
    "tpu": tpu,
    "config": config,
}


def held(benchmark: Benchmark, budget_s: float) -> bool:
    """Run a benchmark; return whether outputs agree and its threshold is reached."""
    with torch.inference_mode():
        return run_benchmark(benchmark, budget_s=budget_s).ok


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one section; return 0 if all checks passed."""
    parser = argparse.ArgumentParser(description="Overheads, in iterations")
    parser.add_argument("section", choices=SECTIONS)
    parser.add_argument("--budget", type=float, default=60.0, help="seconds, without compiling")
    options = parser.parse_args(arguments)
    device, section = pick_device(), options.section
    print(f"Overheads: {section}, torchbridge {__version__}, {describe(device)}")
    torch.manual_seed(0)
    share_s, good, count = options.budget / 30, True, 0
    for one in SECTIONS[section](device):
        count += 1
        if isinstance(one, TimedWork):
            good &= one.run(section, device, share_s)
        else:
            good &= held(replace(one, name=f"{section}/{one.name}"), 2 * share_s)
    print(f"{count} metrics: {'PASS' if good else 'FAIL: a check above failed'}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
