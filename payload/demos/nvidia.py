"""Seven demonstrations of the NVIDIA backend. Run: `python -m demos.nvidia`; exits 1 if one fails.

Every demonstration also checks what it shows. Without an NVIDIA device the rules are those of an
L4 and the numbers the CPU's, and every part says `degraded`.
"""

from __future__ import annotations

import copy
import sys
import warnings
from typing import Any

import torch
from torch import nn

from demos.stage import Part, require, show_all
from suites.backend_models import encoder, in_float64, mlp, nvidia_rules, resnet
from torchbridge import evidence
from torchbridge.attention import create_flash_attention_3
from torchbridge.backends.errors import OutOfMemoryError
from torchbridge.backends.nvidia import (
    CUDAUtilities,
    FP8Compiler,
    NVIDIABackend,
    NVIDIAMemoryManager,
    NVIDIAOptimizer,
    create_cuda_integration,
)
from torchbridge.backends.optimise import LEVELS
from torchbridge.hardware import Hardware
from torchbridge.numbers import relative_error, whole_float32
from torchbridge.timing import Spread, compare, warm_up

MIB = 2**20
CHIPS = {
    "T4": (7, 5),
    "A100": (8, 0),
    "A10G": (8, 6),
    "L4": (8, 9),
    "H100": (9, 0),
    "B200": (10, 0),
}


def setting(device: torch.device) -> dict[str, Any]:
    """Return device and hardware for the classes shown; report degraded if they do not match."""
    hardware, trouble = nvidia_rules(device)
    if trouble:
        evidence.degraded(trouble)
        print(f"[DEGRADED] {trouble}")
    return {"hardware": hardware, "device": device}


def backend(device: torch.device) -> None:
    """Show what the device is, and what its generation supports."""
    made = NVIDIABackend(**setting(device))
    info = made.get_device_info()
    for name in ("device", "name", "architecture", "target", "units", "features"):
        print(f"  {name:<13} {info[name]}")
    print("\n  By compute capability:  bf16   fp8")
    for name, capability in CHIPS.items():
        one = NVIDIABackend(hardware=Hardware.nvidia(capability), device=device)
        bf16 = "yes" if one.hardware.has("bf16") else "no"
        fp8 = "yes" if one.supports_fp8 else "no"
        print(
            f"  {name:<5} {one.hardware.target:<7} {one.settings.architecture.value:<10} "
            f"{bf16:<6} {fp8}"
        )
        require(one.supports_fp8 == (capability >= (8, 9)), "FP8 from sm_89 on")


def levels(device: torch.device) -> None:
    """Show three levels on a small ResNet: passes, evidence and error."""
    optimizer = NVIDIAOptimizer(**setting(device))
    model, x = resnet().to(device), torch.randn(4, 3, 32, 32, device=device)
    expected = in_float64(model, x)
    print("Recommended:", *optimizer.get_optimization_recommendations(model), sep="\n  - ")
    for level, limit in zip(LEVELS, (1e-4, 1e-4, 3e-2), strict=True):
        result = optimizer.optimize(copy.deepcopy(model), level)
        with whole_float32():
            error = relative_error(result.optimized_model(x), expected)
        print(f"\n{level}: relative error {error:.1e} against float64")
        for one in result.passes:
            text = one.evidence if one.applied else f"not applied: {one.reason}"
            print(f"  {'+' if one.applied else '-'} {one.name:<14} {text}")
        require(error <= limit, f"a relative error of at most {limit}")
        require("set_mode" in result.optimizations_applied, "the model in evaluation mode")


@torch.no_grad()
def fp8(device: torch.device) -> None:
    """Show linear layers in FP8: storage bytes, error, and the predicted speedup."""
    compiler = FP8Compiler(**setting(device))
    model = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 512)).to(device).eval()
    x = torch.randn(64, 512, device=device)
    if compiler.supported:
        prepared = compiler.prepare_for_fp8(model)
        before, after = compiler.get_fp8_stats(model), compiler.get_fp8_stats(prepared)
        error = prepared(x).double().sub(model(x).double()).square().mean().sqrt()
        error = (error / model(x).double().square().mean().sqrt()).item()
        paths = ", ".join(compiler.get_fp8_stats(prepared)["paths_taken"])
        sizes = before["storage_bytes"], after["storage_bytes"]
        print(f"  {after['fp8_layers']} layers in FP8, {after['coverage']:.0%} of the weights")
        print(f"  Storage {sizes[0]:,} -> {sizes[1]:,} bytes ({sizes[1] / sizes[0]:.2f}x)")
        print(f"  Relative RMS error {error:.1%}, computed by {paths}")
        require(error < 0.08 and sizes[1] < 0.26 * sizes[0], "a quarter of the bytes, within 8%")
        for tokens in (1, 64, 4096):
            result = compiler.estimate_speedup(model, tokens=tokens)
            gain = f"{result.speedup:.2f}x over bfloat16"
            print(f"  At most {gain} with {tokens} rows ({result.source})")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        refusal = FP8Compiler(hardware=Hardware.nvidia((8, 6)), device=device)
        same = refusal.prepare_for_fp8(model)
    print(f"  On an A10G: {caught[0].message}")
    require(same is model, "the very same model on an A10G")


def memory(device: torch.device) -> None:
    """Show usage, a bounded pool, and a refused allocation."""
    manager = NVIDIAMemoryManager(device=setting(device)["device"], pool_limit_bytes=4 * MIB)
    stats = manager.get_memory_stats()
    for name in ("total_bytes", "free_bytes", "allocated_bytes", "peak_bytes"):
        print(f"  {name:<16} {stats[name] / 2**30:8.2f} GiB")
    for _ in range(10):
        tensor = manager.allocate_tensor((512, 512), pool_id="activations")
        manager.return_to_pool(tensor, "activations")
    pool = manager.get_pool_stats("activations")
    print(f"  Pool after 10 rounds of 1 MiB: {pool}")
    require((pool["hits"], pool["bytes"]) == (9, MIB), "nine of ten from the pool")
    image = torch.randn(2, 3, 127, 127, device=device)
    moved = manager.optimize_tensor_layout(image)
    print(f"  Layout: {tuple(image.shape)} {image.stride()} -> {moved.stride()}, same numbers")
    require(torch.equal(image, moved), "the same numbers in the same shape")
    try:
        manager.allocate_with_oom_protection((1024,) * 4)
    except OutOfMemoryError as error:
        print(f"  4 TiB: {error}")
    else:
        require(False, "4 TiB to be refused")


@torch.no_grad()
def attention(device: torch.device) -> None:
    """Show FlashAttention3: its path, its error, and that causal is causal."""
    setting(device)
    x = torch.randn(2, 100, 512, device=device)
    for causal in (False, True):
        layer = create_flash_attention_3(512, 8, causal=causal).to(device).eval()
        output = layer(x)
        exact = copy.deepcopy(layer).cpu().double()
        exact.path = "explicit"
        error = relative_error(output, exact(x.cpu().double()))
        changed = x.clone()
        changed[:, -1] += 1
        leak = relative_error(layer(changed)[:, :-1], output[:, :-1])
        shapes = f"{tuple(x.shape)} -> {tuple(output.shape)}"
        print(f"  causal={causal!s:<5} {shapes} by {layer.path_taken}")
        print(f"    relative error {error:.1e}; the last token moves the others by {leak:.1e}")
        require(error < 1e-4 and (leak < 1e-6) == causal, "exact numbers, and no look ahead")


def cuda(device: torch.device) -> None:
    """Show versions, flags, and the time of a product."""
    hardware = setting(device)["hardware"]
    utilities = CUDAUtilities()
    for name, value in utilities.get_cuda_env_info().items():
        print(f"  {name:<13} {value}")
    manager, optimizations = create_cuda_integration()
    for index in range(manager.device_count):
        result = manager.get_device_properties(index)
        print(f"  device {index}: " + ", ".join(f"{k} {v}" for k, v in result.items()))
    optimizations.hardware = hardware
    before = torch.get_float32_matmul_precision()
    with optimizations.flags() as result:
        print(f"  Switches for a model's run: {result}")
    require(torch.get_float32_matmul_precision() == before, "the switches as they were")
    a = torch.randn(512, 512, device=manager.device)
    spread = utilities.profile(lambda: a @ a)
    print(
        f"  512 x 512 x 512 product: {1e6 * spread.median:.0f} us "
        f"({1e6 * spread.low:.0f} to {1e6 * spread.high:.0f})"
    )
    require(0 < spread.low <= spread.median <= spread.high, "a time")


def pipeline(device: torch.device) -> None:
    """Prepare a transformer encoder at level aggressive, verify it, and time it against eager."""
    optimizer = NVIDIAOptimizer(**setting(device))
    model = nn.Sequential(encoder(), nn.Flatten(), mlp_head()).to(device).eval()
    x = torch.randn(8, 16, 32, device=device)
    expected, eager = in_float64(model, x), copy.deepcopy(model)
    result = optimizer.optimize_for_inference(model, (x,))
    error = relative_error(result.optimized_model(x), expected)
    print(f"  Applied: {', '.join(result.optimizations_applied)}")
    print(f"  Relative error {error:.1e}, compiled in {result.compilation_time:.1f} s")
    require(error < 3e-2, "the same outputs within bfloat16's rounding")
    compiled = next(one for one in result.passes if one.name == "compile")
    if not compiled.applied:
        evidence.degraded(f"not compiled: {compiled.reason}")
        print(f"  [DEGRADED] not compiled: {compiled.reason}")
    with torch.inference_mode():
        arms = (lambda: result.optimized_model(x)), (lambda: eager(x))
        for arm in arms:
            warm_up(arm, device, budget_s=2.0)
        times = compare(*arms, device=device, quads=15, budget_s=5.0)
    ours, theirs = (
        Spread.from_samples([1e3 * s for s in one]) for one in (times.subject_s, times.baseline_s)
    )
    print(f"  {ours.median:.2f} ms, eager {theirs.median:.2f} ms: {times.ratio}")
    held = NVIDIAMemoryManager(device=device).optimize_model_memory(eager)
    print(f"  The eager model holds {held['after_bytes']:,} bytes")


def mlp_head() -> nn.Module:
    """Return a network that maps [B, 512] to [B, 128]."""
    return nn.Sequential(nn.Linear(16 * 32, 128), nn.GELU(), mlp())


DEMOS: tuple[Part, ...] = (
    ("NVIDIA Backend", backend),
    ("Optimization Levels", levels),
    ("FP8 Compiler", fp8),
    ("Memory Manager", memory),
    ("FlashAttention-3", attention),
    ("CUDA Utilities", cuda),
    ("Complete Pipeline", pipeline),
)


if __name__ == "__main__":
    sys.exit(show_all("NVIDIA Backend Integration", DEMOS))
