"""Overheads of the TPU backend: seven sections, the device waited for, each result checked first.

Without a TPU its parts work on the CPU, and say `degraded`; what needs torch_xla is skipped by
name. Preparation has a baseline: the prepared model against the model as it was. Run: `python -m
benchmarks.tpu`.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import sys
import warnings

import torch
from torch import nn

from benchmarks.iterations import Iterated, run
from suites.backend_models import mlp, resnet
from torchbridge import __version__, evidence
from torchbridge.backends.errors import TPUMemoryError, XLANotAvailable
from torchbridge.backends.tpu import (
    TPUBackend,
    TPUMemoryManager,
    XLACompiler,
    create_xla_integration,
    tiled,
    validate_model,
)
from torchbridge.backends.xla import XLA, load
from torchbridge.config import TPUConfig, TPUVersion, detect_tpu_version
from torchbridge.device import describe
from torchbridge.timing import compare, warm_up

FLOOR = 0.8  # of the unprepared model's speed; fails when the whole interval is below
TOLERANCE = 1e-2  # relative error between the arms: a TPU multiplies in bfloat16


def rules() -> list[Iterated]:
    """Sections that no device has a part in: configuration, validation, tiles."""
    config, model = TPUConfig(version="v5e"), mlp()
    written = config.to_dict()
    return [
        Iterated("configuration/creation", 100, TPUConfig, lambda c: c.cache_size == 100),
        Iterated(
            "configuration/round_trip", 100, lambda: TPUConfig.from_dict(written), config.__eq__
        ),
        Iterated(
            "configuration/detection",
            100,
            lambda: detect_tpu_version("v5litepod-8"),
            lambda version: version is TPUVersion.V5E,
        ),
        Iterated(
            "validation/model", 100, lambda: validate_model(model, config), lambda f: f.passed
        ),
        Iterated(
            "memory_manager/tiles",
            100,
            lambda: tiled((127, 127), torch.float32),
            lambda layout: layout.tiled_bytes == 128 * 128 * 4,
        ),
    ]


def backend_parts(backend: TPUBackend) -> list[Iterated]:
    """Backend and optimizer: linear, convolutional, and a nested input."""
    data = {"x": torch.randn(64, 128), "rest": [torch.ones(3)]}
    evaluating = [
        Iterated(
            f"optimizer/{name}_{level}",
            20,
            lambda m, level=level: backend.prepare_model(m, level=level),
            lambda prepared: not prepared.model.training,
            make,
        )
        for name, make in (("linear", lambda: nn.Linear(64, 128)), ("convolution", resnet))
        for level in ("conservative", "balanced", "aggressive")
    ]
    return [
        Iterated("backend/device_info", 100, backend.get_device_info, lambda d: d["units"] >= 0),
        Iterated(
            "backend/data",
            100,
            lambda: backend.prepare_data(data),
            lambda moved: moved["x"].device == backend.device,
        ),
        Iterated(
            "backend/memory_stats", 100, backend.get_memory_stats, lambda s: s["total_bytes"] > 0
        ),
        *evaluating,
    ]


def xla_parts(xla: XLA) -> list[Iterated]:
    """Compiler, integration and memory manager: what torch_xla has a part in."""
    config, model, x = TPUConfig(), mlp(), torch.randn(8, 128)
    warm = XLACompiler(config, xla)
    warm.compile_model(model, (x,))
    parts = [
        Iterated(
            "xla_compiler/cold",
            5,
            lambda m: XLACompiler(config, xla).compile_model(m, (x,)),
            lambda compiled: compiled.compilation.error < TOLERANCE,
            mlp,
        ),
        Iterated(
            "xla_compiler/cached",
            100,
            lambda: warm.compile_model(model, (x,)),
            lambda compiled: compiled.model is model,
        ),
        Iterated(
            "xla_integration/creation",
            100,
            lambda: create_xla_integration(config, xla),
            lambda parts: len(parts) == 3,
        ),
    ]
    manager = TPUMemoryManager(config, xla)
    try:
        manager.memory()
    except TPUMemoryError as error:
        evidence.check("tpu/memory_manager/allocation", "skipped", reason=str(error))
        return parts
    allocation = Iterated(
        "memory_manager/allocation",
        100,
        lambda: manager.allocate_tensor((128, 128)),
        lambda tensor: tensor.shape == (128, 128),
    )
    return [*parts, allocation]


@torch.inference_mode()
def against_unprepared(backend: TPUBackend, budget_s: float, params: dict[str, object]) -> bool:
    """A residual network, prepared (balanced) against as it was, in turns."""
    plain = resnet().to(backend.device).eval()
    prepared = backend.prepare_model(copy.deepcopy(plain), level="balanced").model
    x = torch.randn(8, 3, 32, 32).to(backend.device)
    expected = plain(x)
    error = ((prepared(x) - expected).abs().max() / expected.abs().max()).item()
    limits = {"value": error, "unit": "relative", "tolerance": TOLERANCE}
    if not evidence.check("tpu/preparation/arms_equal", error <= TOLERANCE, **limits):
        print(f"  the arms differ by {error:.1e}: nothing is timed")
        return False
    arms = (lambda: prepared(x)), (lambda: plain(x))
    for arm in arms:
        warm_up(arm, backend.device, budget_s=budget_s / 4)
    times = compare(*arms, device=backend.device, budget_s=budget_s / 2)
    ratio, (low, high) = statistics.median(times.ratios), times.interval()
    told = {**params, "baseline": "unprepared model"}
    evidence.metric("tpu/preparation/ratio", times.ratios, unit="x", direction="higher", **told)
    print(f"  prepared over unprepared: {ratio:.2f}x [{low:.2f}, {high:.2f}], error {error:.1e}")
    return evidence.check(
        "tpu/preparation/ratio_floor", high >= FLOOR, value=ratio, unit="x", tolerance=FLOOR
    )


def main(arguments: list[str] | None = None) -> int:
    """All sections; 0 if all checks passed."""
    parser = argparse.ArgumentParser(description="Overheads of the TPU backend")
    parser.add_argument("--budget", type=float, default=40.0, help="seconds, about")
    options = parser.parse_args(arguments)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # said below, in full
        backend = TPUBackend()
    torch.manual_seed(0)
    print(f"TPU backend, torchbridge {__version__}, {describe(backend.device)}")
    if backend.degraded:
        evidence.degraded(backend.degraded)
        print(f"[DEGRADED] {backend.degraded}")
    metrics = rules() + backend_parts(backend)
    try:
        metrics += xla_parts(load())
    except XLANotAvailable as error:
        for name in ("xla_compiler", "xla_integration", "memory_manager/allocation"):
            evidence.check(f"tpu/{name}", "skipped", reason=str(error))
            print(f"  {name:<34} skipped: no torch_xla")
    params: dict[str, object] = {"device": str(backend.device), "torch": torch.__version__}
    share_s = 0.75 * options.budget
    good = run("tpu", metrics, backend.device, budget_s=share_s, params=params)
    good &= against_unprepared(backend, 0.25 * options.budget, params)
    print("PASS" if good else "FAIL: a check above failed")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
