"""A reference of float8 in float64 on the CPU: codes, rounding, scales and products.

It follows from the bit layouts, independently of torch's float8 casts and of the library.
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from suites.numerics import assert_close, rms_error
from torchbridge import fp8
from torchbridge.float8 import native_dtype
from torchbridge.fp8 import FP8Dtype

ROUND_TRIP = {FP8Dtype.E4M3: 0.03, FP8Dtype.E5M2: 0.06}  # relative RMS on normal numbers
PRODUCT = {FP8Dtype.E4M3: 0.045, FP8Dtype.E5M2: 0.09}
# Operands are rounded as in the reference, so only sums differ: float32 on the CPU; FP8 units keep
# fewer bits (https://arxiv.org/abs/2412.19437, 3.3.2), and some kernels write bfloat16 only.
KERNEL = {"cpu": 1e-5}
KERNEL_ELSEWHERE = 8e-3
BLOCK = 128
LAYOUTS = {  # exponent bits, mantissa bits, exponent bias
    torch.float8_e4m3fn: (4, 3, 7),
    torch.float8_e5m2: (5, 2, 15),
    torch.float8_e4m3fnuz: (4, 3, 8),
    torch.float8_e5m2fnuz: (5, 2, 16),
}
LIMITS = {
    torch.float8_e4m3fn: 448.0,
    torch.float8_e5m2: 57344.0,
    torch.float8_e4m3fnuz: 240.0,
    torch.float8_e5m2fnuz: 57344.0,
}


def ulp(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the distance between neighbours in `dtype` at each finite number of x, in float64."""
    _, mantissa_bits, bias = LAYOUTS[dtype]
    exponent = torch.frexp(x.double().abs()).exponent - 1  # 2^e <= |x| < 2^(e + 1)
    lowest = torch.where(x == 0, 1 - bias, exponent.clamp_min(1 - bias))
    return torch.ldexp(torch.ones_like(x, dtype=torch.float64), lowest - mantissa_bits)


def rounded(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Return finite x rounded to the nearest number of `dtype`, in float64.

    Ties are rounded to even, and numbers beyond the limit become the limit.
    """
    step = ulp(x, dtype)
    limit = LIMITS[dtype]
    return (torch.round(x.double() / step) * step).clamp(-limit, limit)


def scales(x: Tensor, dtype: torch.dtype, height: int | None, width: int | None) -> Tensor:
    """Return the scale of each number of x [M, K], in float64.

    Each `height` x `width` block (None: the whole dimension) has one scale, computed in float32:
    limit / largest magnitude, or 1 if all numbers are zero.
    """
    x = x.detach().cpu().float()
    rows, columns = x.shape
    height, width = height or rows, width or columns
    out = torch.ones(rows, columns, dtype=torch.float64)
    for top in range(0, rows, height):
        for left in range(0, columns, width):
            block = slice(top, top + height), slice(left, left + width)
            largest = x[block].abs().max()
            if largest > 0:
                out[block] = (torch.tensor(LIMITS[dtype]) / largest).double()
    return out


SHAPES = {  # rows, columns per scale: of activations or gradients, of weights
    "tensor": ((None, None), (None, None)),
    "row": ((1, None), (1, None)),
    "block": ((1, BLOCK), (BLOCK, BLOCK)),
}


def snapped(x: Tensor, dtype: torch.dtype, shape: tuple[int | None, int | None]) -> Tensor:
    """Return x [M, K] in float64 after quantisation to float8 with block `shape` and back."""
    scale = scales(x, dtype, *shape)
    scaled = x.detach().cpu().float() * scale.float()
    return rounded(scaled, dtype) / scale


def forward(x: Tensor, weight: Tensor, dtype: torch.dtype, granularity: str) -> Tensor:
    """Return x [M, K] @ weight [N, K]^T in float64, both operands rounded to `dtype`."""
    rows, tiles = SHAPES[granularity]
    return snapped(x, dtype, rows) @ snapped(weight, dtype, tiles).T


def backward(
    gradient: Tensor,
    x: Tensor,
    weight: Tensor,
    dtypes: tuple[torch.dtype, torch.dtype],
    granularity: str,
) -> tuple[Tensor, Tensor]:
    """Return the float64 gradients of x and weight for `gradient` [M, N].

    `dtypes` are the float8 dtypes of (x and weight, gradient), to which the operands are rounded.
    """
    near, back = dtypes
    rows, tiles = SHAPES[granularity]
    by_x = snapped(gradient, back, rows) @ snapped(weight.T, near, tiles).T
    by_weight = snapped(gradient.T, back, rows) @ snapped(x.T, near, rows).T
    return by_x, by_weight


def exact(x: Tensor, layer: nn.Linear) -> Tensor:
    """Return the layer's output in float64, without rounding of the operands."""
    bias = None if layer.bias is None else layer.bias.detach().cpu().double()
    return F.linear(x.detach().cpu().double(), layer.weight.detach().cpu().double(), bias)


def mlp(device: torch.device, activation: nn.Module | None = None) -> nn.Sequential:
    """Return a perceptron 64 -> 128 -> 10 on the device, with GELU by default."""
    model = nn.Sequential(nn.Linear(64, 128), activation or nn.GELU(), nn.Linear(128, 10))
    return model.to(device)


def task(device: torch.device) -> tuple[Tensor, Tensor]:
    """Return inputs [64, 64] and their random linear map [64, 10] as targets."""
    x = torch.randn(64, 64, device=device)
    return x, x @ torch.randn(64, 10, device=device) / 8


def scale_of(x: Tensor, fmt: FP8Dtype) -> object:
    """Return the expected scale, limit / largest magnitude of x, as pytest's approximate number."""
    limit = LIMITS[native_dtype(fmt, x.device)]
    return pytest.approx(limit / x.detach().abs().max().item(), rel=1e-6)


def assert_kernel(actual: Tensor, expected: Tensor) -> None:
    """Check that a kernel's output equals `expected` up to the order and precision of the sums."""
    assert_close(actual.float(), expected, KERNEL.get(actual.device.type, KERNEL_ELSEWHERE))


def assert_forward(layer: fp8.NativeFP8Linear, x: Tensor) -> None:
    """Check that the output is the product of the rounded operands, and near the exact product."""
    fmt = layer.forward_format
    flat = x.reshape(-1, layer.in_features)
    expected = forward(flat, layer.weight, native_dtype(fmt, x.device), layer.granularity)
    if layer.bias is not None:
        expected = expected + layer.bias.detach().cpu().double()
    out = layer(x)
    assert_kernel(out, expected.reshape(*x.shape[:-1], layer.out_features))
    assert rms_error(out, exact(x, layer)) <= PRODUCT[fmt]


def assert_gradients(layer: fp8.NativeFP8Linear, x: Tensor, gradient: Tensor) -> None:
    """Check the layer's gradients.

    Those of x and weight are products of the rounded operands; that of the bias is a plain sum.
    """
    layer(x).backward(gradient)
    formats = layer.forward_format, layer.backward_format
    near, back = (native_dtype(fmt, x.device) for fmt in formats)
    by_x, by_weight = backward(gradient, x, layer.weight, (near, back), layer.granularity)
    assert_kernel(x.grad, by_x)
    assert_kernel(layer.weight.grad, by_weight)
    if layer.bias is not None:
        assert_close(layer.bias.grad, gradient.sum(dim=0), 1e-5)


def kernel_works(device: torch.device, single: bool = True) -> bool:
    """Whether torch's kernel multiplies e4m3 matrices here, tried directly without the library."""
    kernel = getattr(torch, "_scaled_mm", None)
    ones = torch.ones(16, 16, device=device).to(native_dtype(FP8Dtype.E4M3, device))
    two = torch.full((() if single else (16, 1)), 2.0, device=device)
    try:
        out = kernel(ones, ones.t(), two, two.reshape(two.shape[::-1]), out_dtype=torch.bfloat16)
    except (TypeError, RuntimeError, ValueError, NotImplementedError):
        return False
    return bool((out == 64).all())


def assert_path(layer: nn.Module) -> None:
    """Check that the layer used torch's float8 kernel if it works here, and else gives a reason."""
    available = kernel_works(layer.weight.device)
    assert layer.path_taken == ("scaled_mm" if available else "dequantised")
    assert (layer.fallback is None) == available


def assert_scale(x: Tensor, fmt: FP8Dtype) -> None:
    """Check that the scale maps the largest magnitude of x to the largest number of the format."""
    limit = LIMITS[native_dtype(fmt, x.device)]
    scale = fp8.compute_fp8_scale(x, fmt)
    assert (scale.dtype, scale.shape) == (torch.float32, ())
    assert scale.item() == scale_of(x, fmt)
    assert fp8.quantize_to_fp8(x, scale, fmt).float().abs().max().item() == limit


def assert_quantised(x: Tensor, fmt: FP8Dtype) -> None:
    """Check that each number is x * scale rounded to the nearest number of the format."""
    dtype = native_dtype(fmt, x.device)
    scale = fp8.compute_fp8_scale(x, fmt)
    quantised = fp8.quantize_to_fp8(x, scale, fmt)
    scaled = (x.float() * scale).cpu()
    assert (quantised.dtype, quantised.shape) == (dtype, x.shape)
    assert torch.equal(quantised.cpu().double(), rounded(scaled, dtype))
    back = fp8.dequantize_from_fp8(quantised, scale, torch.float64).cpu()
    bound = ulp(scaled, dtype) / 2 / scale.item()
    assert ((back - x.cpu().double()).abs() <= bound * (1 + 1e-5)).all()
    assert rms_error(back, x) <= ROUND_TRIP[fmt]


def train(model: nn.Module, x: Tensor, target: Tensor, dtype: torch.dtype = torch.float32) -> float:
    """Train for 30 steps of Adam; return the squared error relative to that of predicting zero."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(30):
        optimizer.zero_grad()
        with torch.autocast(x.device.type, dtype, enabled=dtype != torch.float32):
            out = model(x)
        F.mse_loss(out.float(), target).backward()
        optimizer.step()
    return (F.mse_loss(model(x), target) / target.square().mean()).item()
