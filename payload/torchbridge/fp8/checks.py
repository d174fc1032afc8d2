"""Test what a device can do with float8."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torchbridge.device import pick_device
from torchbridge.float8 import FP8Dtype, FP8QuantizedTensor, native_dtype
from torchbridge.fp8.dispatch import no_units
from torchbridge.fp8.linear import NativeFP8Linear
from torchbridge.fp8.matmul import Path, find_path
from torchbridge.hardware import Hardware, probe
from torchbridge.numbers import relative_rms

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
    """Return the path of a product of e4m3 matrices."""
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
    """Return (error, limit) of a layer's output and of both gradients, by name."""
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
