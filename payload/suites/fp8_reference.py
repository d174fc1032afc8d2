"""float8 from its definition, in float64 on the CPU: codes, rounding, scales, products.

The numbers are independent of torch's float8 casts and of the library: bit layouts and arithmetic.
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
# Against numbers that are rounded alike only sums differ: in float32 on the CPU; FP8 units keep
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
    """Distance between neighbours in `dtype` around each of the finite numbers x, float64."""
    _, mantissa_bits, bias = LAYOUTS[dtype]
    exponent = torch.frexp(x.double().abs()).exponent - 1  # 2^e <= |x| < 2^(e + 1)
    lowest = torch.where(x == 0, 1 - bias, exponent.clamp_min(1 - bias))
    return torch.ldexp(torch.ones_like(x, dtype=torch.float64), lowest - mantissa_bits)


def rounded(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Finite x to the nearest number of `dtype`, ties to even, saturating; float64."""
    step = ulp(x, dtype)
    limit = LIMITS[dtype]
    return (torch.round(x.double() / step) * step).clamp(-limit, limit)


def scales(x: Tensor, dtype: torch.dtype, height: int | None, width: int | None) -> Tensor:
    """A scale for each `height` x `width` block of x [M, K] (None: all), of x's shape, float64.

    As float32 has it: limit / largest number; 1 where all are zero.
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


SHAPES = {  # rows and columns that share a scale, of activations (or gradients) and of weights
    "tensor": ((None, None), (None, None)),
    "row": ((1, None), (1, None)),
    "block": ((1, BLOCK), (BLOCK, BLOCK)),
}


def snapped(x: Tensor, dtype: torch.dtype, shape: tuple[int | None, int | None]) -> Tensor:
    """x [M, K] as float8 with scales by `shape` remembers it, float64."""
    scale = scales(x, dtype, *shape)
    scaled = x.detach().cpu().float() * scale.float()
    return rounded(scaled, dtype) / scale


def forward(x: Tensor, weight: Tensor, dtype: torch.dtype, granularity: str) -> Tensor:
    """x [M, K] times weight [N, K] transposed, both rounded to `dtype`, in float64."""
    rows, tiles = SHAPES[granularity]
    return snapped(x, dtype, rows) @ snapped(weight, dtype, tiles).T


def backward(
    gradient: Tensor,
    x: Tensor,
    weight: Tensor,
    dtypes: tuple[torch.dtype, torch.dtype],
    granularity: str,
) -> tuple[Tensor, Tensor]:
    """Gradients of x and weight, from `gradient` [M, N], rounded to (forward, backward) dtypes."""
    near, back = dtypes
    rows, tiles = SHAPES[granularity]
    by_x = snapped(gradient, back, rows) @ snapped(weight.T, near, tiles).T
    by_weight = snapped(gradient.T, back, rows) @ snapped(x.T, near, rows).T
    return by_x, by_weight


def exact(x: Tensor, layer: nn.Linear) -> Tensor:
    """The layer without any rounding, float64."""
    bias = None if layer.bias is None else layer.bias.detach().cpu().double()
    return F.linear(x.detach().cpu().double(), layer.weight.detach().cpu().double(), bias)


def mlp(device: torch.device, activation: nn.Module | None = None) -> nn.Sequential:
    """64 -> 128 -> 10; of GELU unless told."""
    model = nn.Sequential(nn.Linear(64, 128), activation or nn.GELU(), nn.Linear(128, 10))
    return model.to(device)


def task(device: torch.device) -> tuple[Tensor, Tensor]:
    """x [64, 64] and what a linear map makes of it, [64, 10]."""
    x = torch.randn(64, 64, device=device)
    return x, x @ torch.randn(64, 10, device=device) / 8


def scale_of(x: Tensor, fmt: FP8Dtype) -> object:
    """limit / largest number, to compare a scale with."""
    limit = LIMITS[native_dtype(fmt, x.device)]
    return pytest.approx(limit / x.detach().abs().max().item(), rel=1e-6)


def assert_kernel(actual: Tensor, expected: Tensor) -> None:
    """Equal but for the order and the width of the sums."""
    assert_close(actual.float(), expected, KERNEL.get(actual.device.type, KERNEL_ELSEWHERE))


def assert_forward(layer: fp8.NativeFP8Linear, x: Tensor) -> None:
    """y equals the product of the rounded numbers, and is near the exact one."""
    fmt = layer.forward_format
    flat = x.reshape(-1, layer.in_features)
    expected = forward(flat, layer.weight, native_dtype(fmt, x.device), layer.granularity)
    if layer.bias is not None:
        expected = expected + layer.bias.detach().cpu().double()
    out = layer(x)
    assert_kernel(out, expected.reshape(*x.shape[:-1], layer.out_features))
    assert rms_error(out, exact(x, layer)) <= PRODUCT[fmt]


def assert_gradients(layer: fp8.NativeFP8Linear, x: Tensor, gradient: Tensor) -> None:
    """Of x and weight they are products of the rounded numbers, of the bias a plain sum."""
    layer(x).backward(gradient)
    formats = layer.forward_format, layer.backward_format
    near, back = (native_dtype(fmt, x.device) for fmt in formats)
    by_x, by_weight = backward(gradient, x, layer.weight, (near, back), layer.granularity)
    assert_kernel(x.grad, by_x)
    assert_kernel(layer.weight.grad, by_weight)
    if layer.bias is not None:
        assert_close(layer.bias.grad, gradient.sum(dim=0), 1e-5)


def kernel_works(device: torch.device, single: bool = True) -> bool:
    """Does torch's kernel multiply e4m3 matrices here? Asked directly, the library left aside."""
    kernel = getattr(torch, "_scaled_mm", None)
    ones = torch.ones(16, 16, device=device).to(native_dtype(FP8Dtype.E4M3, device))
    two = torch.full((() if single else (16, 1)), 2.0, device=device)
    try:
        out = kernel(ones, ones.t(), two, two.reshape(two.shape[::-1]), out_dtype=torch.bfloat16)
    except (TypeError, RuntimeError, ValueError, NotImplementedError):
        return False
    return bool((out == 64).all())


def assert_path(layer: nn.Module) -> None:
    """The path is float8's where the device has it; elsewhere the reason is told."""
    available = kernel_works(layer.weight.device)
    assert layer.path_taken == ("scaled_mm" if available else "dequantised")
    assert (layer.fallback is None) == available


def assert_scale(x: Tensor, fmt: FP8Dtype) -> None:
    """The largest number lands on the format's largest."""
    limit = LIMITS[native_dtype(fmt, x.device)]
    scale = fp8.compute_fp8_scale(x, fmt)
    assert (scale.dtype, scale.shape) == (torch.float32, ())
    assert scale.item() == scale_of(x, fmt)
    assert fp8.quantize_to_fp8(x, scale, fmt).float().abs().max().item() == limit


def assert_quantised(x: Tensor, fmt: FP8Dtype) -> None:
    """Every number is the nearest of the format to x * scale, and off by half a step at most."""
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
    """30 steps of Adam on the squared error; the loss afterwards, over that of answering zero."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(30):
        optimizer.zero_grad()
        with torch.autocast(x.device.type, dtype, enabled=dtype != torch.float32):
            out = model(x)
        F.mse_loss(out.float(), target).backward()
        optimizer.step()
    return (F.mse_loss(model(x), target) / target.square().mean()).item()
