"""Test what a device can do with float8, and measure one layer."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from torchbridge.device import pick_device
from torchbridge.float8 import FP8Dtype, FP8QuantizedTensor, native_dtype
from torchbridge.fp8.dispatch import no_units
from torchbridge.fp8.inference import FP8InferenceLinear
from torchbridge.fp8.linear import NativeFP8Linear
from torchbridge.fp8.matmul import Path, find_path
from torchbridge.hardware import Hardware, probe
from torchbridge.numbers import relative_rms
from torchbridge.timing import Comparison, Spread, compare, timed, warm_up

ROUND_TRIP_LIMIT = {FP8Dtype.E4M3: 0.03, FP8Dtype.E5M2: 0.06}  # relative RMS on normal numbers
PRODUCT_LIMIT = {FP8Dtype.E4M3: 0.045, FP8Dtype.E5M2: 0.09}
_USE = {FP8Dtype.E4M3: "weights and activations", FP8Dtype.E5M2: "gradients"}


def is_fp8_available(device: torch.device | None = None) -> bool:
    """Return whether the device multiplies e4m3 matrices with correct results."""
    return _product(device or pick_device()).fallback is None


def get_fp8_info(device: torch.device | None = None) -> dict[str, Any]:
    """Describe float8 on a device: formats, kernel or why there is none, FP8 units."""
    device = device or pick_device()
    product = _product(device)
    return {
        "torch": torch.__version__,
        "device": str(device),
        "hardware_accelerated": probe(device).has("fp8"),
        "scaled_mm": product.kernel,
        "why_not": product.fallback,
        "formats": {
            fmt.name: {
                "dtype": str(native_dtype(fmt, device)),
                "max": torch.finfo(native_dtype(fmt, device)).max,
                "use": _USE[fmt],
            }
            for fmt in FP8Dtype
        },
    }


def _product(device: torch.device) -> Path:
    """How a product of e4m3 matrices is computed."""
    dtype = native_dtype(FP8Dtype.E4M3, device)
    return find_path(device, dtype, dtype, torch.float32, single=True)


def validate_fp8_setup(device: torch.device | None = None) -> dict[str, Any]:
    """Compare casts, product and gradients on normally distributed numbers with float32.

    Returns `passed`, and `checks`: by name the `error` (relative RMS), `limit` and `passed`.
    """
    device = device or pick_device()
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(64, 128, generator=generator).to(device)
    errors = {
        f"round_trip_{fmt.name.lower()}": (
            relative_rms(FP8QuantizedTensor.from_tensor(x, fmt).dequantize(), x),
            ROUND_TRIP_LIMIT[fmt],
        )
        for fmt in FP8Dtype
    }
    errors |= _layer_errors(x, generator)
    checks = {
        name: {"error": error, "limit": limit, "passed": error <= limit}
        for name, (error, limit) in errors.items()
    }
    return {"passed": all(one["passed"] for one in checks.values()), "checks": checks}


def _layer_errors(x: Tensor, generator: torch.Generator) -> dict[str, tuple[float, float]]:
    """Errors and limits of a layer's output and gradients."""
    layer = NativeFP8Linear(128, 96, bias=False, path="auto", device=x.device)
    x, weight = x.clone().requires_grad_(), layer.weight
    gradient = torch.randn(64, 96, generator=generator).to(x.device)
    wanted = x @ weight.t()
    by_x, by_weight = torch.autograd.grad(wanted, (x, weight), gradient)
    actual = layer(x)
    actual_by_x, actual_by_weight = torch.autograd.grad(actual, (x, weight), gradient)
    limits = PRODUCT_LIMIT[FP8Dtype.E4M3], PRODUCT_LIMIT[FP8Dtype.E5M2]
    return {
        "product": (relative_rms(actual, wanted), limits[0]),
        "gradient_of_input": (relative_rms(actual_by_x, by_x), limits[1]),
        "gradient_of_weight": (relative_rms(actual_by_weight, by_weight), limits[1]),
    }


def why_not_compiled(device: torch.device, hardware: Hardware) -> str | None:
    """Return why float8 layers cannot be compiled for a device; None if they can.

    Triton, which Inductor uses, rejects float8 on GPUs without FP8 units.
    """
    reason = None if device.type == "cpu" else no_units(hardware)
    return reason and f"{reason}: Triton has no float8 there, so that nothing can be compiled"


@torch.inference_mode()
def benchmark_fp8_layer(
    in_features: int,
    out_features: int,
    batch: int,
    *,
    iterations: int = 100,
    budget_s: float = 5.0,
    dtype: torch.dtype = torch.bfloat16,
    compiled: bool = False,
    granularity: str = "tensor",
    device: torch.device | None = None,
) -> dict[str, Any]:
    """Time FP8InferenceLinear, including quantisation, against nn.Linear of `dtype`.

    The input is [batch, in]. At least 3 and at most `iterations` pairs are timed within `budget_s`
    seconds. Returns samples in seconds (`fp8_s`, `baseline_s`), `speedup` (median ratio, above 1 is
    faster), `interval`, `error` (relative RMS of the outputs against float32), `path_taken`, and
    bytes of both weights. With `compiled`, both arms are compiled; `compile_s` is the untimed
    duration of their first calls.

    Raises:
        RuntimeError: the layers' outputs differ, or this hardware cannot compile float8.
    """
    device = device or pick_device()
    if compiled and (reason := why_not_compiled(device, probe(device))) is not None:
        raise RuntimeError(reason)
    plain = nn.Linear(in_features, out_features, device=device)
    x = torch.randn(batch, in_features, device=device)
    expected = plain(x)
    layer = FP8InferenceLinear(plain, granularity=granularity, path="auto")
    plain, x = plain.to(dtype), x.to(dtype)
    subject, baseline = layer, plain
    if compiled:  # whole, or an error: a part that stays eager would be timed unseen
        torch.compiler.reset()
        subject, baseline = (torch.compile(one, fullgraph=True) for one in (layer, plain))
    arms = (lambda: subject(x)), (lambda: baseline(x))
    compile_s = sum(timed(arm, device) for arm in arms) if compiled else 0.0
    error, other = (relative_rms(arm(), expected) for arm in arms)
    limit = PRODUCT_LIMIT[FP8Dtype.E4M3]
    if not (error <= limit and other <= limit):
        message = f"outputs are off by {error:.3f} (float8) and {other:.3f}, over {limit}"
        raise RuntimeError(f"{message}: nothing timed")
    for arm in arms:
        warm_up(arm, device, budget_s=budget_s / 8)
    times = compare(*arms, device=device, pairs=iterations, budget_s=budget_s)
    return _figures(times, layer, plain) | {"error": error, "compile_s": compile_s}


def _figures(times: Comparison, layer: FP8InferenceLinear, plain: nn.Linear) -> dict[str, Any]:
    """Times, path, and bytes of storage."""
    return {
        "fp8_s": times.subject_s,
        "baseline_s": times.baseline_s,
        "ratios": times.ratios,
        "speedup": Spread.of(times.ratios).median,
        "interval": times.interval(),
        "path_taken": layer.path_taken,
        "fallback": layer.fallback,
        "fp8_bytes": layer.weight.untyped_storage().nbytes(),
        "baseline_bytes": plain.weight.untyped_storage().nbytes(),
        "scale_bytes": layer.weight_scale.untyped_storage().nbytes(),
    }
