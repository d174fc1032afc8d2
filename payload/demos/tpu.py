"""Six demonstrations of the TPU backend. Run: `python -m demos.tpu`; exits 1 if one fails.

Every demonstration also checks what it shows. Without a TPU the backend's numbers are the CPU's and
said to be `degraded`; what only XLA can show is skipped.
"""

from __future__ import annotations

import sys
import warnings

import torch
from torch import nn

from demos.stage import Part, Skip, require, show_all
from suites.backend_models import in_float64, mlp
from torchbridge import evidence
from torchbridge.backends.errors import XLANotAvailable
from torchbridge.backends.optimise import LEVELS
from torchbridge.backends.tpu import (
    TPUBackend,
    XLACompiler,
    XLADeviceManager,
    tiled,
    validate_model,
)
from torchbridge.backends.xla import XLA, load
from torchbridge.config import TPUConfig, TPUVersion, detect_tpu_topology, detect_tpu_version
from torchbridge.hardware import Hardware
from torchbridge.numbers import relative_error
from torchbridge.peaks import peak_bandwidth, peak_flops

GIB = 2**30


def installed() -> XLA:
    """Return torch_xla; report degraded if its device is not a TPU.

    Raises:
        Skip: torch_xla is missing.
    """
    try:
        xla = load()
    except XLANotAvailable as error:
        raise Skip(str(error)) from error
    if not xla.is_tpu:
        evidence.degraded(f"torch_xla computes on {xla.device_type}, not on a TPU")
        print(f"[DEGRADED] torch_xla computes on {xla.device_type}")
    return xla


def backend() -> TPUBackend:
    """Return the backend; report degraded if it uses no TPU."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # said below, in full
        made = TPUBackend()
    if made.degraded:
        evidence.degraded(made.degraded)
        print(f"[DEGRADED] {made.degraded}")
    return made


def configuration(_: torch.device) -> None:
    """Show the chips, and what their names imply."""
    print("| chip | memory  | bf16 TFLOP/s | GB/s  | FLOP per byte |")
    for version in list(TPUVersion)[1:]:
        chip = Hardware.tpu(version.value)
        flops, speed = peak_flops(chip, "bf16"), peak_bandwidth(chip)
        memory = TPUConfig(version=version).memory_bytes // GIB
        print(
            f"| {version.value:<4} | {memory:>3} GiB | {flops / 1e12:>12,.0f} "
            f"| {speed / 1e9:>5,.0f} | {flops / speed:>13.0f} |"
        )
    for name in ("v4-8", "v5litepod-16", "v5p-128", "TPU v6 lite"):
        version, topology = detect_tpu_version(name), detect_tpu_topology(name)
        print(f"  {name!r}: {version.value}, {topology.value}")
    require(detect_tpu_version("v5litepod-16") is TPUVersion.V5E, "v5litepod to be v5e")


def device_info(_: torch.device) -> None:
    """Show the backend's device."""
    made = backend()
    for name, value in made.get_device_info().items():
        print(f"  {name:<13} {value}")
    print(f"  rank {made.rank} of {made.world_size}")
    require(made.is_available == (made.degraded is None), "a TPU, or the reason why there is none")


def preparation(_: torch.device) -> None:
    """Show the levels: passes, evidence, and error against float64."""
    made = backend()
    x = torch.randn(32, 128)
    limits = dict(zip(LEVELS, (1e-2, 1e-2, 3e-2), strict=True))  # a TPU multiplies in bfloat16
    for level in LEVELS:
        model = mlp()
        expected = in_float64(model, x)
        prepared = made.prepare_model(model, level=level)
        error = relative_error(prepared.model(x.to(made.device)), expected)
        print(f"{level}: relative error {error:.1e}")
        for one in prepared.passes:
            print(
                f"  {one.name:<17} {'yes: ' + one.evidence if one.applied else 'no: ' + one.reason}"
            )
        require(error < limits[level], f"an error below {limits[level]}")
        require(isinstance(prepared.model, nn.Module) and not prepared.model.training, "a Module")


def compilation(_: torch.device) -> None:
    """Show shapes, graphs and cache, then a training step as one graph."""
    xla = installed()
    compiler, model = XLACompiler(TPUConfig(), xla), mlp()
    for rows in (8, 16, 8):
        compiled = compiler.compile_model(model, (torch.randn(rows, 128),))
        one = compiled.compilation
        print(f"[{rows}, 128]: {one.graphs} graph(s), {one.seconds:.2f} s, error {one.error:.1e}")
    stats = compiler.stats.cache
    print(f"Cache: {stats.hits} hit(s), {stats.misses} misses, {stats.size} of {stats.capacity}")
    require((stats.hits, stats.misses) == (1, 2), "the third shape to be known")
    learner = nn.Linear(128, 128).to(xla.device())
    step = compiler.optimize_for_training(
        learner, torch.optim.SGD(learner.parameters(), lr=0.1), nn.functional.mse_loss
    )
    x = torch.randn(64, 128).to(xla.device())
    losses = [step(x, x).item() for _ in range(5)]
    print("Loss of five steps: " + " ".join(f"{loss:.3f}" for loss in losses))
    require(losses[-1] < losses[0], "the loss to fall")
    print(f"Device: {XLADeviceManager(xla).info()}")


def memory(_: torch.device) -> None:
    """Show the tiles of some shapes, and the device's memory."""
    print("| shape            | dtype    | bytes      | in tiles   | padding |")
    for shape in ((4096, 4096), (1000, 1000), (8, 2049, 65), (512, 1)):
        for dtype in (torch.float32, torch.bfloat16):
            layout, name = tiled(shape, dtype), str(dtype).removeprefix("torch.")
            print(
                f"| {shape!s:<16} | {name:<8} | {layout.bytes:>10,} "
                f"| {layout.tiled_bytes:>10,} | {layout.waste:>7.1%} |"
            )
            require(layout.tiled_bytes % 4096 == 0, "whole tiles")
    for name, value in backend().get_memory_stats().items():
        print(f"  {name:<15} {value / GIB:>8.2f} GiB")


def validation(_: torch.device) -> None:
    """Show findings before compilation."""
    narrow = nn.Sequential(nn.Linear(4096, 4096), nn.Linear(4096, 3))
    phase = nn.Linear(8, 8, dtype=torch.complex128)
    for name, model in (("a narrow head", narrow), ("complex weights", phase)):
        found = validate_model(model, TPUConfig())
        print(f"{name}: {'passed' if found.passed else 'refused'}")
        for text in found.errors + found.warnings:
            print(f"  {text}")
    require(validate_model(narrow, TPUConfig()).warnings != (), "a warning")
    require(not validate_model(phase, TPUConfig()).passed, "a refusal")


PARTS: tuple[Part, ...] = (
    ("Chips and Configuration", configuration),
    ("Backend and Device", device_info),
    ("Model Preparation", preparation),
    ("XLA Compilation", compilation),
    ("Memory and Tiles", memory),
    ("Validation", validation),
)

if __name__ == "__main__":
    sys.exit(show_all("TPU Backend Demonstrations", PARTS))
